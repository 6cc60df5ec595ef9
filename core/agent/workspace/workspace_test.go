package workspace

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/penstock-dev/penstock/sdk/invoker"
)

// put writes a tree: a name that ends in / is a folder, a value that starts
// with "-> " a link, one that starts with "+x " a program.
func put(t *testing.T, dir string, tree map[string]string) {
	t.Helper()
	for name, value := range tree {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o755))
		} else if target, ok := strings.CutPrefix(value, "-> "); ok {
			require.NoError(t, os.Symlink(target, path))
		} else if text, ok := strings.CutPrefix(value, "+x "); ok {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
		} else {
			require.NoError(t, os.WriteFile(path, []byte(value), 0o644))
		}
	}
}

// tree reads one back in the same form.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			if list, _ := os.ReadDir(path); len(list) == 0 {
				got[rel+"/"] = ""
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			got[rel] = "-> " + target
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			got[rel] = string(data)
			if info.Mode()&0o100 != 0 {
				got[rel] = "+x " + got[rel]
			}
		default:
			got[rel] = info.Mode().Type().String()
		}
		return nil
	}))
	return got
}

func newWorkspace(t *testing.T, from map[string]string) *Workspace {
	t.Helper()
	src := t.TempDir()
	put(t, src, from)
	w, err := New(Options{Dir: filepath.Join(t.TempDir(), "ws"), From: src})
	require.NoError(t, err)
	return w
}

func TestCopyKeepsTheTree(t *testing.T) {
	from := map[string]string{
		"a.txt": "one\n", "bin/run": "+x #!/bin/sh\n", "empty/": "", "deep/er/f": "", "link": "-> a.txt", "deep/up": "-> ../a.txt",
		"dangling": "-> nothing", "name with \n newline": "x", ".hidden/.f": "y", "dirlink": "-> deep/er",
	}
	src := t.TempDir()
	put(t, src, from)
	old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(src, "a.txt"), old, old))
	require.NoError(t, os.Chmod(filepath.Join(src, "a.txt"), 0o440))
	w, err := New(Options{Dir: filepath.Join(t.TempDir(), "ws"), From: src})
	require.NoError(t, err)
	require.Equal(t, from, tree(t, w.Path()))
	require.Empty(t, w.Notes())
	info, err := os.Stat(filepath.Join(w.Path(), "a.txt"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o440), info.Mode())
	require.True(t, info.ModTime().Equal(old))

	// The original is out of reach of what is written in the copy.
	require.NoError(t, os.WriteFile(filepath.Join(w.Path(), "deep", "er", "f"), []byte("new"), 0o644))
	require.Equal(t, from, tree(t, src))
}

func TestTakenUpAgain(t *testing.T) {
	w := newWorkspace(t, map[string]string{"a": "1"})
	put(t, w.Path(), map[string]string{"b": "2"})
	require.NoError(t, w.Snapshot("s"))
	require.NoError(t, os.MkdirAll(filepath.Join(w.dir, "snapshots", "half.new"), 0o700))
	again, err := New(Options{Dir: w.dir, From: "/nowhere"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, tree(t, again.Path()))
	require.True(t, again.HasSnapshot("s"))
	require.False(t, again.HasSnapshot("half"))
	require.False(t, again.HasSnapshot("half.new"), "a copy that was not finished is none")

	_, err = New(Options{Dir: filepath.Join(t.TempDir(), "x"), From: "/nowhere"})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "/nowhere")
}

func TestSnapshotAndRestore(t *testing.T) {
	before := map[string]string{"a": "1", "d/b": "2", "l": "-> a"}
	w := newWorkspace(t, before)
	require.NoError(t, w.Snapshot("solve.0"))
	require.NoError(t, os.RemoveAll(filepath.Join(w.Path(), "d")))
	put(t, w.Path(), map[string]string{"a": "changed", "new/x": "3"})
	for range 2 {
		require.NoError(t, w.Restore("solve.0"))
		require.Equal(t, before, tree(t, w.Path()))
		put(t, w.Path(), map[string]string{"junk": "x"})
	}
	require.NoError(t, w.Snapshot("solve.0"), "a snapshot is replaced")
	require.NoError(t, w.Restore("solve.0"))
	require.Contains(t, tree(t, w.Path()), "junk")
	require.ErrorIs(t, w.Restore("other"), fs.ErrNotExist)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "a\x00"} {
		require.Error(t, w.Snapshot(name))
		require.False(t, w.HasSnapshot(name))
	}
}

func TestHomesArePrivateAndEmpty(t *testing.T) {
	w := newWorkspace(t, nil)
	a, err := w.NewHome("solve.0.1")
	require.NoError(t, err)
	info, err := os.Stat(a)
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir|0o700, info.Mode())
	put(t, a, map[string]string{".claude/settings": "x"})
	b, err := w.NewHome("solve.0.2")
	require.NoError(t, err)
	require.NotEqual(t, a, b)
	again, err := w.NewHome("solve.0.1")
	require.NoError(t, err)
	require.Empty(t, tree(t, again))
	_, err = w.NewHome("../work")
	require.Error(t, err)
}

// No copy follows a link out of the workspace, and a judger's has none that
// an agent made.
func TestLinksOutOfTheWorkspace(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("the answer"), 0o600))
	shared := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(shared, []byte("data"), 0o600))
	src := t.TempDir()
	put(t, src, map[string]string{"own": "x", "data": "-> " + shared, "abs": "-> " + filepath.Join(src, "own"), "rel": "-> ../outside"})
	w, err := New(Options{Dir: filepath.Join(t.TempDir(), "ws"), From: src})
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"own": "x", "data": "-> " + shared, "abs": "-> own", "rel": "-> " + filepath.Join(filepath.Dir(src), "outside"),
	}, tree(t, w.Path()), "a link to the original's own file stays in the copy; one that leads out goes on doing so")
	require.Len(t, w.Notes(), 2)

	put(t, w.Path(), map[string]string{
		"answer.txt": "-> " + secret, "up": "-> ../../..", "here": "-> " + filepath.Join(w.Path(), "own"),
		"sub/deep/d": "-> ..", "trick": "-> sub/deep/d/../../x", "sub/in": "-> ../own", "loop": "-> loop",
		"python": "-> /bin/sh", "dir": "-> " + filepath.Dir(secret),
	})
	to := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, w.CopyTo(to))
	got := tree(t, to)
	for name := range got {
		data, err := os.ReadFile(filepath.Join(to, name))
		if err == nil {
			require.NotContains(t, string(data), "the answer", name)
		}
	}
	require.Equal(t, "-> own", got["here"], "inside the copy, not in the original")
	require.Equal(t, "-> ../own", got["sub/in"])
	require.Equal(t, "-> "+shared, got["data"], "the user's own link")
	require.Equal(t, "-> /bin/sh", got["python"])
	require.Equal(t, "-> loop", got["loop"])
	for _, name := range []string{"answer.txt", "up", "trick", "dir"} {
		require.NotContains(t, got, name)
		require.True(t, noted(w, name), name)
	}

	// A snapshot keeps what the agent made, as a link.
	require.NoError(t, w.Snapshot("s"))
	require.NoError(t, w.Restore("s"))
	require.Equal(t, "-> "+secret, tree(t, w.Path())["answer.txt"])
	require.Error(t, w.CopyTo(to), "not empty")
}

func noted(w *Workspace, path string) bool {
	for _, n := range w.Notes() {
		if n.Path == path {
			return true
		}
	}
	return false
}

// What is no file, folder or link is left out and noted; a pipe hangs nothing.
func TestSocketsPipesAndDevices(t *testing.T) {
	w := newWorkspace(t, map[string]string{"a": "1"})
	require.NoError(t, unix.Mkfifo(filepath.Join(w.Path(), "pipe"), 0o600))
	t.Chdir(w.Path()) // a socket's path has to be short
	l, err := net.Listen("unix", "sock")
	require.NoError(t, err)
	defer l.Close()
	want := 2
	if unix.Mknod(filepath.Join(w.Path(), "zero"), unix.S_IFCHR|0o600, 1<<8|5) == nil {
		want++
	}
	to := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, w.CopyTo(to))
	require.Equal(t, map[string]string{"a": "1"}, tree(t, to))
	require.Len(t, w.Notes(), want)
	var out bytes.Buffer
	require.NoError(t, w.Diff(&out))
	require.Empty(t, out.String())
}

func TestLimits(t *testing.T) {
	src := t.TempDir()
	put(t, src, map[string]string{"a": "12345", "b": "67890"})
	_, err := New(Options{Dir: t.TempDir(), From: src, Limits: Limits{Bytes: 9}})
	require.ErrorContains(t, err, "larger than the limit")
	_, err = New(Options{Dir: t.TempDir(), From: src, Limits: Limits{Files: 1}})
	require.ErrorContains(t, err, "more entries")
	w, err := New(Options{Dir: t.TempDir(), From: src, Limits: Limits{Bytes: 10, Files: 5}})
	require.NoError(t, err)
	f, err := os.Create(filepath.Join(w.Path(), "sparse"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<40))
	require.NoError(t, f.Close())
	require.ErrorContains(t, w.Snapshot("s"), "sparse")
	require.False(t, w.HasSnapshot("s"))
}

func TestRemoveReadOnlyFolders(t *testing.T) {
	w := newWorkspace(t, map[string]string{"mod/pkg/f": "x"})
	outside := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, os.Mkdir(outside, 0o500))
	put(t, w.Path(), map[string]string{"mod/out": "-> " + outside})
	require.NoError(t, os.Chmod(filepath.Join(w.Path(), "mod", "pkg"), 0o500))
	require.NoError(t, os.Chmod(filepath.Join(w.Path(), "mod"), 0o500))
	require.NoError(t, w.Snapshot("s"))
	require.NoError(t, w.Restore("s"))
	root, err := os.OpenRoot(w.Path())
	require.NoError(t, err)
	unlock(root, "mod") // root needs no such thing, so it is called here by hand
	root.Close()
	info, err := os.Stat(outside)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o500), info.Mode().Perm(), "no link is followed")
	require.NoError(t, w.Remove())
	require.NoDirExists(t, w.dir)
	require.DirExists(t, outside)
}

func TestWriteFiles(t *testing.T) {
	outside := t.TempDir()
	w := newWorkspace(t, map[string]string{"old": "-> original", "original": "kept", "out": "-> " + outside, "in": "-> sub", "sub/": ""})
	home, err := w.NewHome("h")
	require.NoError(t, err)
	require.NoError(t, w.WriteFiles(home, []invoker.File{
		{Path: "CLAUDE.md", Data: "x"}, {Path: "a/b/c", Data: "deep", Mode: 0o755}, {Path: "~/.config/x.json", Data: "{}", Mode: 0o644},
		{Path: "old", Data: "new"}, {Path: "in/f", Data: "through a link that stays"}, {Path: "a/../d", Data: "dots"},
	}))
	got := tree(t, w.Path())
	require.Equal(t, "x", got["CLAUDE.md"])
	require.Equal(t, "+x deep", got["a/b/c"])
	require.Equal(t, "new", got["old"], "a link is replaced, not written through")
	require.Equal(t, "kept", got["original"])
	require.Equal(t, "through a link that stays", got["sub/f"])
	require.Equal(t, "dots", got["d"])
	require.Equal(t, map[string]string{".config/x.json": "{}"}, tree(t, home))
	for name, mode := range map[string]fs.FileMode{w.Path() + "/CLAUDE.md": 0o600, w.Path() + "/a/b/c": 0o755, home + "/.config/x.json": 0o644} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode())
	}
	for _, path := range []string{"", "~/", "/etc/x", "../x", "a/../../x", "out/x", "~/../x", "a/", "x\x00y", "sub", "."} {
		err := w.WriteFiles(home, []invoker.File{{Path: path, Data: "bad"}})
		require.Error(t, err, "%q", path)
		require.ErrorContains(t, err, "of the plan")
	}
	require.Empty(t, tree(t, outside))
}

// The diff is one that git applies, to the very same tree.
func TestDiffIsApplied(t *testing.T) {
	from := map[string]string{
		"same": "x\n", "changed": "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", "gone": "bye\n", "tool": "echo\n", "no newline": "a\nb",
		"d/é\t\"q\".txt": "old\n", "link": "-> same", "filled": "", "emptied": "x\n", "swap": "file\n", "dirfile": "x\n", "with space": "1\n",
	}
	w := newWorkspace(t, from)
	p := w.Path()
	for _, name := range []string{"gone", "link", "swap", "dirfile"} {
		require.NoError(t, os.Remove(filepath.Join(p, name)))
	}
	put(t, p, map[string]string{
		"changed": "1\n2\nthree\n4\n5\n6\n7\n8\n9\nten\n", "new/file": "+x hi\n", "no newline": "a\nc", "d/é\t\"q\".txt": "new\n",
		"link": "-> changed", "filled": "y\n", "emptied": "", "swap": "-> same", "created empty": "", "dirfile/f": "z\n", "with space": "2\n",
	})
	require.NoError(t, os.Chmod(filepath.Join(p, "tool"), 0o755))
	var out bytes.Buffer
	require.NoError(t, w.Diff(&out))
	text := out.String()
	require.Contains(t, text, "diff --git a/changed b/changed\n--- a/changed\n+++ b/changed\n@@ -1,6 +1,6 @@\n 1\n 2\n-3\n+three\n")
	require.Contains(t, text, "old mode 100644\nnew mode 100755\n")
	require.Contains(t, text, `"a/d/\303\251\t\"q\".txt"`)
	require.NotContains(t, text, "same b/same")

	apply := t.TempDir()
	put(t, apply, from)
	cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
	cmd.Dir, cmd.Stdin = apply, strings.NewReader(text)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", said, text)
	require.Equal(t, tree(t, p), tree(t, apply))
}

func TestDiffNamesWhatItCannotShow(t *testing.T) {
	w := newWorkspace(t, map[string]string{"bin": "a\x00b", "sameTime": "12345", ".git/index": "1", ".git/hooks/x": "1", "run": "\x00"})
	var out bytes.Buffer
	require.NoError(t, w.Diff(&out))
	require.Empty(t, out.String())

	path := filepath.Join(w.Path(), "sameTime")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("54321"), 0o644))
	require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	require.NoError(t, os.Chmod(filepath.Join(w.Path(), "run"), 0o755))
	put(t, w.Path(), map[string]string{"bin": "a\x00c", ".git/index": "2", ".git/hooks/x": "+x 2", "big": strings.Repeat("line\n", maxDiffFile/5+1)})
	require.NoError(t, w.Diff(&out))
	require.Equal(t, `diff --git a/big b/big
new file mode 100644
Binary files /dev/null and b/big differ
diff --git a/bin b/bin
Binary files a/bin and b/bin differ
diff --git a/run b/run
old mode 100644
new mode 100755
diff --git a/sameTime b/sameTime
--- a/sameTime
+++ b/sameTime
@@ -1,1 +1,1 @@
-12345
\ No newline at end of file
+54321
\ No newline at end of file
Files in .git differ: 2, not shown
`, out.String())
}

func FuzzWriteFiles(f *testing.F) {
	for _, path := range []string{"a", "~/a", "../a", "a/../../b", "/a", "~/../x", "a//b", "./x", "~", "a/./..", "\xff"} {
		f.Add(path)
	}
	base := f.TempDir()
	f.Fuzz(func(t *testing.T, path string) {
		dir, err := os.MkdirTemp(base, "")
		require.NoError(t, err)
		w, err := New(Options{Dir: filepath.Join(dir, "ws")})
		require.NoError(t, err)
		home, err := w.NewHome("h")
		require.NoError(t, err)
		_ = w.WriteFiles(home, []invoker.File{{Path: path, Data: "x"}})
		require.NoError(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && !strings.HasPrefix(p, w.Path()+"/") && !strings.HasPrefix(p, home+"/") {
				t.Errorf("%q wrote %s", path, p)
			}
			return err
		}))
		require.NoError(t, os.RemoveAll(dir))
	})
}
