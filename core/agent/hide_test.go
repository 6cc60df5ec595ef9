package agent

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/penstock-dev/penstock/core/agent/sandbox"
)

const operatorToken = "the-operators-token"

// hiding is a run folder of two rollouts, and a spec of an agent in the first
// from which it is hidden.
func hiding(t testing.TB, dir string) (run string, s Spec) {
	t.Helper()
	run = filepath.Join(dir, "run")
	for _, name := range []string{"work/a/work", "work/a/homes/1", "work/a/start", "work/b/work", "work/.bin", "trace"} {
		require.NoError(t, os.MkdirAll(filepath.Join(run, name), 0o755))
	}
	for _, name := range []string{"gateway.json", "trace/penstock.db", "work/b/work/secret"} {
		require.NoError(t, os.WriteFile(filepath.Join(run, name), []byte(operatorToken), 0o644))
	}
	require.NoError(t, os.Symlink("/bin/echo", filepath.Join(run, "work/.bin/say")))
	s = Spec{
		Dir: filepath.Join(run, "work/a/work"), Hide: []string{run}, View: []string{filepath.Join(run, "work/.bin")},
		Keep: []string{filepath.Join(run, "work/a/work"), filepath.Join(run, "work/a/homes/1")},
		Env:  []string{"PATH=" + filepath.Join(run, "work/.bin") + ":/usr/bin:/bin:/usr/sbin", "RUN=" + run, "HOME=" + filepath.Join(run, "work/a/homes/1")},
	}
	return run, s
}

// canHide are the isolations that can hide folders: those with namespaces.
var canHide = []string{IsolationPIDNS}

// hidingHost makes the run folder for a host, in namespaces alone.
func hidingHost(t *testing.T, h *host) (run string, s Spec) {
	t.Helper()
	run, s = hiding(t, h.dir)
	if h.cred != nil {
		require.NoError(t, filepath.WalkDir(run, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, nobody, nobody))
		}))
	}
	return run, s
}

func inShell(s Spec, line string) Spec {
	s.Argv = []string{"/bin/sh", "-c", line}
	return s
}

func TestHiddenFoldersAreNotFound(t *testing.T) {
	eachHostIn(t, canHide, func(t *testing.T, h *host, isolation string) {
		run, s := hidingHost(t, h)
		e := h.run(t, isolation, inShell(s, `ls -A ../../..; ls -A "$RUN"; ls -A ..; ls -A ../..; cd ..; ls -A ..; say said`))
		require.True(t, e.Hidden)
		require.Equal(t, "work\nwork\nhomes\nwork\n.bin\na\n.bin\na\nsaid\n", string(e.Stdout), "%s", e.Stderr)

		for _, line := range []string{
			"cat ../../../gateway.json ../../../trace/penstock.db ../../b/work/secret",
			"cat $RUN/gateway.json /proc/self/root$RUN/gateway.json /proc/1/root$RUN/gateway.json /proc/1/cwd$RUN/gateway.json",
			"cat /proc/self/cwd/../../../gateway.json /proc/*/cwd/../../../gateway.json /proc/*/fd/*/gateway.json",
			"ln -s $RUN/gateway.json l; ln -s ../../.. up; ln -s /proc/1/root r; cat l up/gateway.json r$RUN/gateway.json",
			"ln $RUN/gateway.json h; cat h; cp -r $RUN c; cat c/gateway.json; grep -rs " + operatorToken[:5] + " $RUN",
			"umount $RUN; umount -l $RUN; cat $RUN/gateway.json",
			"cd /; umount -l $RUN/work/a/work; umount -R $RUN; cat $RUN/gateway.json",
			"mkdir m; mount --bind / m; mount --bind $(dirname $RUN) m; cat m/gateway.json m/run/gateway.json m$RUN/gateway.json",
			"mv $RUN $RUN.old; mv $RUN/work ../x; cat $RUN.old/gateway.json $RUN/gateway.json",
			"unshare -Urm sh -c 'umount -l $RUN; cat $RUN/gateway.json; mkdir -p n; mount --bind / n; cat n$RUN/gateway.json; mount --rbind / n; umount -l n$RUN; cat n$RUN/gateway.json'",
			"mkdir -p p; unshare -Urmpf sh -c 'mount -t proc p p; cat p/1/root$RUN/gateway.json; umount -l /proc; cat /proc/*/root$RUN/gateway.json'",
			"mkdir -p o; unshare -Urm mount -t overlay -o lowerdir=$(dirname $RUN) x o && cat o/run/gateway.json",
			"umount -l /proc; cat /proc/*/root$RUN/gateway.json; nsenter -t 1 -m cat $RUN/gateway.json; chroot /proc/1/root cat $RUN/gateway.json",
			"for d in $(find /dev -type b); do test -b $d && echo $d; done; mknod disk b 254 0; head -c 4096 disk",
		} {
			e := h.run(t, isolation, inShell(s, line+"; exit 0"))
			require.True(t, e.Hidden)
			require.Empty(t, string(e.Stdout), "%s", line)
		}
		require.FileExists(t, filepath.Join(run, "gateway.json"))
	})
}

// Root is not let at a file by its number on the disk either.
func TestHiddenFileByItsNumber(t *testing.T) {
	eachHostIn(t, canHide, func(t *testing.T, h *host, isolation string) {
		run, s := hidingHost(t, h)
		handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, filepath.Join(run, "gateway.json"), 0)
		if err != nil {
			t.Skip(err)
		}
		s.Argv = []string{os.Args[0], "__tool", "handle", fmt.Sprint(handle.Type()), hex.EncodeToString(handle.Bytes())}
		e := h.run(t, isolation, s)
		require.Equal(t, 1, e.Code)
		require.NotContains(t, string(e.Stdout), operatorToken)
		s.Argv = append([]string{"/usr/bin/unshare", "-Urm", h.self}, s.Argv[1:]...)
		require.NotContains(t, string(h.run(t, isolation, s).Stdout), operatorToken)
	})
}

// What is kept is the real thing; all else takes nothing.
func TestKeptPathsAreReal(t *testing.T) {
	eachHostIn(t, canHide, func(t *testing.T, h *host, isolation string) {
		run, s := hidingHost(t, h)
		e := h.run(t, isolation, inShell(s, `echo made > mine; mkdir -p ~/d; echo at home > ~/d/f; echo temp > $TMPDIR/t; cat $TMPDIR/t
			for f in $RUN/new $RUN/work/new ../new $RUN/work/.bin/new; do touch $f && echo $f; done
			rm $RUN/work/.bin/say && echo removed; rmdir $RUN/work/a/work && echo removed; stat -c '%a %u' $RUN/work`))
		require.Equal(t, fmt.Sprintf("temp\n755 %d\n", h.uid()), string(e.Stdout), "%s", e.Stderr)
		for name, want := range map[string]string{"work/a/work/mine": "made\n", "work/a/homes/1/d/f": "at home\n"} {
			got, err := os.ReadFile(filepath.Join(run, name))
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
		require.NoFileExists(t, filepath.Join(run, "new"))
		entries, err := os.ReadDir(filepath.Join(run, "work"))
		require.NoError(t, err)
		require.Len(t, entries, 3)
	})
}

func (h *host) uid() int {
	if h.cred != nil {
		return int(h.cred.Uid)
	}
	return os.Geteuid()
}

// Neither during a run nor after the host was killed is a mount on the machine.
func TestHidingLeavesNoMount(t *testing.T) {
	eachHostIn(t, canHide, func(t *testing.T, h *host, isolation string) {
		run, s := hidingHost(t, h)
		ready := filepath.Join(s.Dir, "ready")
		unchanged := func() {
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			require.NoError(t, err)
			require.NotContains(t, string(mounts), run)
			require.FileExists(t, filepath.Join(run, "gateway.json"))
		}
		cmd := h.command(t, isolation, inShell(s, "echo ready > ready; sleep 60"))
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		require.Eventually(t, func() bool { return exists(ready) }, 10*time.Second, 10*time.Millisecond)
		unchanged()
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.Eventually(t, func() bool { return len(alive(h.self)) == 0 }, promised(2*time.Second), 5*time.Millisecond)
		unchanged()
		require.NoError(t, os.RemoveAll(run), "nothing holds it")
	})
}

func TestHiddenThroughLinksAndFiles(t *testing.T) {
	r := runner("")
	if !r.Hides() {
		t.Skip("this machine allows no namespaces")
	}
	dir := t.TempDir()
	run, s := hiding(t, dir)
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(run, link))
	rows := filepath.Join(run, "rows.jsonl")
	require.NoError(t, os.WriteFile(rows, []byte("rows\n"), 0o644))
	s.Hide, s.Dir, s.View = []string{link}, filepath.Join(link, "work/a/work"), append(s.View, rows)
	t.Setenv("TMPDIR", filepath.Join(run, "trace")) // where the agent's own will be
	e := run1(t, r, inShell(s, `ls -A ../../.. `+link+`; cat $RUN/rows.jsonl; echo x >> $RUN/rows.jsonl; echo y > $TMPDIR/y; cat $TMPDIR/y`))
	require.True(t, e.Hidden)
	require.NotContains(t, string(e.Stdout), "gateway.json")
	require.True(t, strings.HasSuffix(string(e.Stdout), "rows\ny\n"), "%s", e.Stdout)
	got, err := os.ReadFile(rows)
	require.NoError(t, err)
	require.Equal(t, "rows\n", string(got))
}

func TestHidingIsCheckedFirst(t *testing.T) {
	r := runner("")
	if !r.Hides() {
		t.Skip("this machine allows no namespaces")
	}
	run, base := hiding(t, t.TempDir())
	for _, test := range []struct {
		name, want string
		change     func(s *Spec)
	}{
		{"a relative folder", `"run" is no absolute path`, func(s *Spec) { s.Hide = []string{"run"} }},
		{"no folder", "no such file", func(s *Spec) { s.Hide = []string{run + "/none"} }},
		{"a file", "is no folder", func(s *Spec) { s.Hide = []string{run + "/gateway.json"} }},
		{"the root", "is the root", func(s *Spec) { s.Hide = []string{"/"} }},
		{"one in the other", "one in the other", func(s *Spec) { s.Hide = append(s.Hide, run+"/trace") }},
		{"all kept", "both hidden and kept", func(s *Spec) { s.Keep = []string{run} }},
		{"kept twice", "one in the other", func(s *Spec) { s.View = append(s.View, s.Dir) }},
		{"kept, but gone", "no such file", func(s *Spec) { s.Keep = append(s.Keep, run+"/none") }},
		{"the working folder", "is hidden from it", func(s *Spec) { s.Dir = run + "/work/b/work" }},
		{"the program", "is hidden from it", func(s *Spec) { s.Argv = []string{run + "/agent"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(run+"/agent", []byte("#!/bin/sh\n"), 0o755))
			s := inShell(base, "echo started")
			test.change(&s)
			_, err := r.Run(t.Context(), s)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// An order to hide is never left out silently where it can be done.
func TestNothingStartsUnhidden(t *testing.T) {
	r := runner("")
	if !r.Hides() {
		t.Skip("this machine allows no namespaces")
	}
	r.walk = true // as when the namespaces of the machine are used up
	_, s := hiding(t, t.TempDir())
	_, err := r.Run(t.Context(), inShell(s, "touch started"))
	require.ErrorContains(t, err, "no namespaces this time")
	require.NoFileExists(t, filepath.Join(s.Dir, "started"))

	e := run1(t, runner(IsolationWalk), inShell(s, "cat ../../../gateway.json"))
	require.False(t, e.Hidden)
	require.Equal(t, operatorToken, string(e.Stdout), "and where it can't, that is said")
}

// What a sandbox may show, and PATH, can hold the run folder: it stays hidden,
// and the agent's own folders stay its own.
func TestHiddenInASandbox(t *testing.T) {
	for _, name := range []string{sandbox.Landlock, sandbox.Bwrap} {
		t.Run(name, func(t *testing.T) {
			eachHostIn(t, canHide, func(t *testing.T, h *host, isolation string) {
				h.sandbox = name
				if !h.has(t, isolation) {
					t.Skip("this machine has no such sandbox")
				}
				run, s := hidingHost(t, h)
				project := filepath.Dir(run)
				require.NoError(t, os.WriteFile(filepath.Join(project, "readme"), []byte("of the project\n"), 0o644))
				link := filepath.Join(filepath.Dir(project), "link")
				require.NoError(t, os.Symlink(project, link))
				home := filepath.Join(run, "work/a/homes/1")
				path := s.Env[0]
				for _, test := range []struct {
					name, path, shows string
					policy            sandbox.Policy
				}{
					{"nothing else", path, "", sandbox.Policy{}},
					{"reads the project", path, "of the project\n", sandbox.Policy{Read: []string{project}}},
					{"reads it through a link", path, "of the project\n", sandbox.Policy{Read: []string{project, link}}},
					{"writes the project", path, "of the project\n", sandbox.Policy{Write: []string{project}}},
					{"PATH has it", path + ":" + project, "of the project\n", sandbox.Policy{}},
				} {
					t.Run(test.name, func(t *testing.T) {
						s := s
						s.Env, s.Policy = append([]string{test.path}, s.Env[1:]...), test.policy
						s.Policy.Read = append([]string{filepath.Join(run, "work/.bin")}, test.policy.Read...)
						s.Policy.Write = append([]string{home}, test.policy.Write...)
						e := h.run(t, isolation, inShell(s, `cd ../../..; cat ../readme; cat gateway.json trace/penstock.db work/b/work/secret
							for d in $RUN `+link+`/run /proc/[0-9]*/root$RUN; do cat $d/trace/penstock.db; echo x >> $d/gateway.json; done
							umount -l $RUN; cat $RUN/trace/penstock.db; unshare -Urm sh -c 'umount -l $RUN; cat $RUN/trace/penstock.db'
							cd $RUN/work/a/work; echo x > mine; cat mine; echo y > ~/f; cat ~/f; echo z > $TMPDIR/t; cat $TMPDIR/t`))
						require.True(t, e.Hidden)
						require.Equal(t, test.shows+"x\ny\nz\n", string(e.Stdout), "%s", e.Stderr)
						require.FileExists(t, filepath.Join(run, "work/a/work/mine"))
						kept, err := os.ReadFile(filepath.Join(run, "gateway.json"))
						require.NoError(t, err)
						require.Equal(t, operatorToken, string(kept))
					})
				}
			})
		})
	}
}

// What a program leaves in shared memory is of its run alone.
func TestSharedMemoryIsOfOneRun(t *testing.T) {
	for _, name := range []string{sandbox.Landlock, sandbox.Bwrap} {
		t.Run(name, func(t *testing.T) {
			r := runner("")
			box, err := r.Sandbox(t.Context(), name, "")
			if err != nil || !r.Hides() {
				t.Skip("this machine has no such sandbox, or allows no namespaces: ", err)
			}
			if info, err := os.Stat("/dev/shm"); err != nil || !info.IsDir() {
				t.Skip("this machine has no shared memory")
			}
			run, s := hiding(t, t.TempDir())
			left := filepath.Join("/dev/shm", "penstock-"+filepath.Base(filepath.Dir(run))+fmt.Sprint(os.Getpid()))
			s.Sandbox, s.Policy.Read = box, []string{filepath.Join(run, "work/.bin")}
			for range 2 {
				e := run1(t, r, inShell(s, "cat "+left+"; echo left > "+left+"; cat "+left))
				require.Equal(t, "left\n", string(e.Stdout), "%s", e.Stderr)
				require.NoFileExists(t, left)
			}
		})
	}
}

// bwrap may have namespaces where the shim has none. What it would show of a
// run folder is refused then.
func TestNoSandboxShowsWhatCantBeHidden(t *testing.T) {
	r := runner(IsolationWalk)
	box, err := r.Sandbox(t.Context(), sandbox.Bwrap, "")
	if err != nil {
		t.Skip(err)
	}
	run, s := hiding(t, t.TempDir())
	s.Sandbox, s.Policy.Read = box, []string{filepath.Join(run, "work/.bin")}
	e := run1(t, r, inShell(s, "cat ../../../gateway.json; echo done"))
	require.Equal(t, "done\n", string(e.Stdout), "%s", e.Stderr)
	s.Policy.Read = append(s.Policy.Read, filepath.Dir(run))
	_, err = r.Run(t.Context(), inShell(s, "touch started"))
	require.ErrorContains(t, err, "can't be hidden in it")
	require.NoFileExists(t, filepath.Join(s.Dir, "started"))
}

func BenchmarkStartHidden(b *testing.B) {
	r := runner("")
	if !r.Hides() {
		b.Skip("this machine allows no namespaces")
	}
	_, s := hiding(b, b.TempDir())
	s.Argv = []string{"/bin/true"}
	for b.Loop() {
		e, err := r.Run(b.Context(), s)
		if err != nil || e.Code != 0 {
			b.Fatal(e, err)
		}
	}
}
