package workspace

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Bounds of a diff. What is over them is named and not shown.
const (
	maxDiffFile = 4 << 20
	maxDiff     = 64 << 20
)

// Diff writes how the workspace differs from its start, in the unified format
// that `git apply` reads. Files that are no text, or too large, are named
// only; so is what changed in .git. Nothing is written when nothing changed.
func (w *Workspace) Diff(out io.Writer) error {
	from, err := os.OpenRoot(w.path(startName))
	if err != nil {
		return fmt.Errorf("diff workspace: %w", err)
	}
	defer from.Close()
	to, err := os.OpenRoot(w.Path())
	if err != nil {
		return fmt.Errorf("diff workspace: %w", err)
	}
	defer to.Close()
	d := &differ{out: bufio.NewWriter(out), left: maxDiff}
	d.dirs(from, to, "", 0)
	if d.git > 0 {
		fmt.Fprintf(d.out, "Files in .git differ: %d, not shown\n", d.git)
	}
	if err := d.out.Flush(); err != nil {
		return fmt.Errorf("diff workspace: %w", err)
	}
	return nil
}

type differ struct {
	out  *bufio.Writer
	left int
	git  int // changed files in a .git folder
}

// side is one of the two states of a path; the zero side is "not there".
type side struct {
	dir  *os.Root
	info fs.FileInfo
}

func (s side) there() bool { return s.info != nil }
func (s side) isDir() bool { return s.there() && s.info.IsDir() }

// isFile is true for what a diff can hold: regular files and links.
func (s side) isFile() bool {
	return s.there() && (s.info.Mode().IsRegular() || s.info.Mode()&fs.ModeSymlink != 0)
}

func stat(dir *os.Root, name string) side {
	if dir == nil {
		return side{}
	}
	info, err := dir.Lstat(name)
	if err != nil {
		return side{}
	}
	return side{dir: dir, info: info}
}

// dirs compares two folders, either of which may be nil.
func (d *differ) dirs(from, to *os.Root, rel string, depth int) {
	for _, name := range names(from, to) {
		p := path.Join(rel, name)
		a, b := stat(from, name), stat(to, name)
		if (a.isFile() || b.isFile()) && d.differ(a, b) {
			d.entry(a, b, p)
		}
		if (a.isDir() || b.isDir()) && depth < maxDepth {
			sub, other := open(a), open(b)
			d.dirs(sub, other, p, depth+1)
			closeRoot(sub)
			closeRoot(other)
		}
	}
}

func open(s side) *os.Root {
	if !s.isDir() {
		return nil
	}
	root, err := s.dir.OpenRoot(s.info.Name())
	if err != nil {
		return nil
	}
	return root
}

func closeRoot(r *os.Root) {
	if r != nil {
		r.Close()
	}
}

// names merges the sorted names of two folders.
func names(from, to *os.Root) []string {
	var list []string
	var a, b []fs.DirEntry
	if from != nil {
		a = readDir(from)
	}
	if to != nil {
		b = readDir(to)
	}
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || (len(a) > 0 && a[0].Name() < b[0].Name()):
			list, a = append(list, a[0].Name()), a[1:]
		case len(a) == 0 || b[0].Name() < a[0].Name():
			list, b = append(list, b[0].Name()), b[1:]
		default:
			list, a, b = append(list, a[0].Name()), a[1:], b[1:]
		}
	}
	return list
}

// differ compares kind, run bit and contents. Times say nothing: an agent can
// set them.
func (d *differ) differ(a, b side) bool {
	if !a.isFile() || !b.isFile() {
		return true
	}
	if gitMode(a) != gitMode(b) {
		return true
	}
	if a.info.Mode().IsRegular() && a.info.Size() != b.info.Size() {
		return true
	}
	x, closeX, errX := reader(a)
	if errX != nil {
		return true
	}
	defer closeX()
	y, closeY, errY := reader(b)
	if errY != nil {
		return true
	}
	defer closeY()
	return !equal(x, y)
}

func reader(s side) (io.Reader, func(), error) {
	if s.info.Mode()&fs.ModeSymlink != 0 {
		target, err := s.dir.Readlink(s.info.Name())
		return strings.NewReader(target), func() {}, err
	}
	f, err := openRegular(s.dir, s.info.Name())
	if err != nil {
		return nil, nil, err
	}
	return f, func() { f.Close() }, nil
}

func equal(x, y io.Reader) bool {
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errX := io.ReadFull(x, a)
		m, errY := io.ReadFull(y, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return false
		}
		if errX != nil || errY != nil {
			return done(errX) && done(errY)
		}
	}
}

func done(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF }

func gitMode(s side) string {
	switch {
	case !s.isFile():
		return ""
	case s.info.Mode()&fs.ModeSymlink != 0:
		return "120000"
	case s.info.Mode()&0o100 != 0:
		return "100755"
	}
	return "100644"
}

// entry writes the difference of one path. A file that became a link, or the
// other way, is a deletion and a new file, as git has it.
func (d *differ) entry(a, b side, p string) {
	if p == ".git" || strings.HasPrefix(p, ".git/") || strings.Contains(p, "/.git/") {
		d.git++
		return
	}
	if !a.isFile() {
		a = side{}
	}
	if !b.isFile() {
		b = side{}
	}
	if a.there() && b.there() && (gitMode(a) == "120000") != (gitMode(b) == "120000") {
		d.pair(a, side{}, p)
		d.pair(side{}, b, p)
		return
	}
	d.pair(a, b, p)
}

func (d *differ) pair(a, b side, p string) {
	x, y := quote("a/"+p), quote("b/"+p)
	fmt.Fprintf(d.out, "diff --git %s %s\n", x, y)
	switch {
	case !a.there():
		fmt.Fprintf(d.out, "new file mode %s\n", gitMode(b))
		x = "/dev/null"
	case !b.there():
		fmt.Fprintf(d.out, "deleted file mode %s\n", gitMode(a))
		y = "/dev/null"
	case gitMode(a) != gitMode(b):
		fmt.Fprintf(d.out, "old mode %s\nnew mode %s\n", gitMode(a), gitMode(b))
	}
	old, okOld := text(a)
	now, okNow := text(b)
	if !okOld || !okNow {
		if !d.sameContents(a, b) {
			fmt.Fprintf(d.out, "Binary files %s and %s differ\n", x, y)
		}
		return
	}
	if len(old)+len(now) > d.left {
		fmt.Fprintf(d.out, "Files %s and %s differ, not shown: the diff is too large\n", x, y)
		return
	}
	body := hunks(diff.Diff("a", old, "b", now))
	if len(body) == 0 {
		return
	}
	d.left -= len(body)
	// git wants a tab after a name with a space, as diff writes it.
	fmt.Fprintf(d.out, "--- %s%s\n+++ %s%s\n", x, tab(x), y, tab(y))
	d.out.Write(body)
}

func (d *differ) sameContents(a, b side) bool {
	if !a.there() || !b.there() || a.info.Size() != b.info.Size() {
		return false
	}
	a.info, b.info = sameMode{a.info}, sameMode{b.info}
	return !d.differ(a, b)
}

// sameMode hides the run bit, for a comparison of contents alone.
type sameMode struct{ fs.FileInfo }

func (s sameMode) Mode() fs.FileMode { return s.FileInfo.Mode() &^ 0o777 }

func tab(name string) string {
	if strings.Contains(name, " ") {
		return "\t"
	}
	return ""
}

// hunks cuts the three header lines off.
func hunks(b []byte) []byte {
	for range 3 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return nil
		}
		b = b[i+1:]
	}
	return b
}

// text returns the contents of a file that can be shown by lines.
func text(s side) ([]byte, bool) {
	if !s.there() {
		return nil, true
	}
	r, closeFile, err := reader(s)
	if err != nil {
		return nil, false
	}
	defer closeFile()
	b, err := io.ReadAll(io.LimitReader(r, maxDiffFile+1))
	if err != nil || len(b) > maxDiffFile || bytes.IndexByte(b, 0) >= 0 {
		return nil, false
	}
	return b, true
}

// quote writes a path as git does: in quotes, with C escapes, when it holds
// anything else than plain ASCII.
func quote(p string) string {
	var b strings.Builder
	plain := true
	for i := range len(p) {
		c := p[i]
		if j := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c); j >= 0 {
			b.WriteByte('\\')
			b.WriteByte("abtnvfr\"\\"[j])
			plain = false
		} else if c < 0x20 || c >= 0x7f {
			fmt.Fprintf(&b, "\\%03o", c)
			plain = false
		} else {
			b.WriteByte(c)
		}
	}
	if plain {
		return p
	}
	return `"` + b.String() + `"`
}
