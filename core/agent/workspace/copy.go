package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Limits bound a copy, so that an agent can't fill the disk with its copies.
type Limits struct {
	Bytes int64 // of all files together; 0 means 16 GiB
	Files int   // entries of all kinds; 0 means 2,000,000
}

const (
	defaultBytes = 16 << 30
	defaultFiles = 2_000_000
	maxDepth     = 256 // folders in folders; two open files each
)

// Note says what a copy left out or changed, and why.
type Note struct {
	Path   string // relative to the workspace
	Reason string
}

// linkRule says what becomes of a link: its target in the copy, or false to
// leave it out, or a reason to note.
type linkRule func(l link) (target string, keep bool, reason string)

// link is a symbolic link in a tree that is being copied.
type link struct {
	top    *os.Root // the tree
	root   string   // its absolute path
	rel    string   // the link in it
	target string   // as written
}

// copier copies one tree.
type copier struct {
	top   *os.Root
	root  string
	rule  linkRule
	left  Limits
	notes *[]Note
}

// copy copies the tree below from into the folder to. Contents, permission
// bits, times and links are kept; sockets, pipes and devices are noted.
func (w *Workspace) copy(from, to string, rule linkRule) error {
	root, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	src, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	c := &copier{top: src, root: root, rule: rule, left: w.limits, notes: &w.notes}
	if c.left.Bytes == 0 {
		c.left.Bytes = defaultBytes
	}
	if c.left.Files == 0 {
		c.left.Files = defaultFiles
	}
	return c.dir(src, dst, "", 0)
}

func (c *copier) note(rel, reason string) {
	*c.notes = append(*c.notes, Note{Path: rel, Reason: reason})
}

func (c *copier) dir(src, dst *os.Root, rel string, depth int) error {
	entries, err := fs.ReadDir(src.FS(), ".")
	if err != nil {
		c.note(rel, "left out: "+err.Error())
		return nil
	}
	for _, e := range entries {
		if c.left.Files--; c.left.Files < 0 {
			return errors.New("the folder has more entries than the limit allows")
		}
		if err := c.entry(src, dst, e.Name(), path.Join(rel, e.Name()), depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) entry(src, dst *os.Root, name, rel string, depth int) error {
	info, err := src.Lstat(name)
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return c.sub(src, dst, info, rel, depth)
	case mode.IsRegular():
		return c.file(src, dst, info, rel)
	case mode&fs.ModeSymlink != 0:
		return c.link(src, dst, name, rel)
	default:
		c.note(rel, "left out: "+kind(mode))
		return nil
	}
}

func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "no regular file"
}

func (c *copier) sub(src, dst *os.Root, info fs.FileInfo, rel string, depth int) error {
	name := info.Name()
	if depth >= maxDepth {
		c.note(rel, "left out: too deep")
		return nil
	}
	from, err := src.OpenRoot(name)
	if err != nil {
		c.note(rel, "left out: "+err.Error())
		return nil
	}
	defer from.Close()
	if err := dst.Mkdir(name, 0o700); err != nil {
		return err
	}
	to, err := dst.OpenRoot(name)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := c.dir(from, to, rel, depth+1); err != nil {
		return err
	}
	return finish(dst, info)
}

// finish sets what could not be set before the contents were there.
func finish(dst *os.Root, info fs.FileInfo) error {
	if err := dst.Chmod(info.Name(), info.Mode().Perm()); err != nil {
		return err
	}
	return dst.Chtimes(info.Name(), info.ModTime(), info.ModTime())
}

func (c *copier) file(src, dst *os.Root, info fs.FileInfo, rel string) error {
	if c.left.Bytes -= info.Size(); c.left.Bytes < 0 {
		return fmt.Errorf("%s: the folder is larger than the limit allows", rel)
	}
	from, err := openRegular(src, info.Name())
	if err != nil {
		c.note(rel, "left out: "+err.Error())
		return nil
	}
	defer from.Close()
	to, err := dst.OpenFile(info.Name(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if e := to.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", rel, err)
	}
	return finish(dst, info)
}

// openRegular opens a file without waiting for the other end of a pipe and
// without following a link.
func openRegular(dir *os.Root, name string) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, errors.New("no regular file"))
	}
	return f, nil
}

func (c *copier) link(src, dst *os.Root, name, rel string) error {
	target, err := src.Readlink(name)
	if err != nil {
		return err
	}
	target, keep, reason := c.rule(link{top: c.top, root: c.root, rel: rel, target: target})
	if reason != "" {
		c.note(rel, reason)
	}
	if !keep {
		return nil
	}
	return dst.Symlink(target, name)
}

// inside tells whether the link stays in its tree, and gives a target that
// does so in a copy, too: an absolute one is made relative.
func (l link) inside() (target string, ok bool) {
	dir := path.Dir(l.rel)
	target = l.target
	if path.IsAbs(target) {
		rel, err := filepath.Rel(l.root, target)
		if err != nil || !filepath.IsLocal(rel) {
			return "", false
		}
		if target, err = filepath.Rel(dir, rel); err != nil {
			return "", false
		}
	}
	if !filepath.IsLocal(path.Join(dir, target)) {
		return "", false
	}
	// Links in between can make ".." lead elsewhere than it reads; the root
	// resolves them and refuses to leave.
	_, err := l.top.Stat(strings.TrimPrefix(dir+"/"+target, "./"))
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		return target, true
	}
	return "", false
}

// absolute is where a link that leaves its tree leads.
func (l link) absolute() string {
	if path.IsAbs(l.target) {
		return l.target
	}
	return filepath.Join(l.root, path.Dir(l.rel), l.target)
}

// sameLinks copies links as they are written: between the workspace and its
// snapshots, which are put back at the same path.
func sameLinks(l link) (string, bool, string) { return l.target, true, "" }

// userLinks is the rule for the user's own folder. A link within it stays in
// the copy, so that an agent never writes through it into the original; one
// that leads out goes on leading to the same place.
func userLinks(l link) (string, bool, string) {
	if target, ok := l.inside(); ok {
		return target, true, ""
	}
	return l.absolute(), true, "a link out of the workspace, to " + l.absolute()
}

// systemDirs hold programs that an agent's own tools may well link to, as a
// Python environment does, and no secret.
var systemDirs = []string{"/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/"}

// trustedLinks is the rule for those who read a copy and trust it. A link that
// leads out of the workspace is kept when the user's folder had it, or when it
// leads to a program of the system.
func (w *Workspace) trustedLinks(l link) (string, bool, string) {
	if target, ok := l.inside(); ok {
		return target, true, ""
	}
	if start, err := os.OpenRoot(w.path(startName)); err == nil {
		defer start.Close()
		if target, err := start.Readlink(l.rel); err == nil && target == l.target {
			return l.target, true, ""
		}
	}
	to := l.absolute()
	if real, err := filepath.EvalSymlinks(to); err == nil {
		for _, dir := range systemDirs {
			if strings.HasPrefix(real, dir) {
				return to, true, ""
			}
		}
	}
	return "", false, "left out: a link out of the workspace, to " + to
}
