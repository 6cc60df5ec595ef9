package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/penstock-dev/penstock/core/agent/shim"
)

// runner makes a Runner whose shim is the test binary.
func runner(isolation string) *Runner {
	return NewRunner(RunnerOptions{Shim: []string{os.Args[0], "__shim"}, Isolation: isolation})
}

// each runs a test under both isolations.
func each(t *testing.T, f func(t *testing.T, r *Runner)) {
	t.Helper()
	for _, isolation := range []string{IsolationPIDNS, IsolationWalk} {
		t.Run(isolation, func(t *testing.T) {
			r := runner(isolation)
			if r.Isolation() != isolation {
				t.Skip("this machine allows no namespaces")
			}
			f(t, r)
		})
	}
}

// job is a spec for a shell line.
func job(t testing.TB, line string) Spec {
	t.Helper()
	return Spec{Argv: []string{"/bin/sh", "-c", line}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: t.TempDir()}
}

// tool is a spec for one of the tools of toolMain.
func tool(t testing.TB, args ...string) Spec {
	t.Helper()
	s := job(t, "")
	s.Argv = append([]string{os.Args[0], "__tool"}, args...)
	return s
}

func run1(t testing.TB, r *Runner, s Spec) *Exit {
	t.Helper()
	e, err := r.Run(t.Context(), s)
	require.NoError(t, err)
	require.False(t, e.Lost)
	return e
}

// wall runs a spec with longer and longer timeouts, until the program had
// time to come up before it was ended: how long that takes is the machine's
// affair.
func wall(t *testing.T, r *Runner, s Spec, up func(e *Exit) bool) *Exit {
	t.Helper()
	for s.Timeout = 700 * time.Millisecond; ; s.Timeout *= 2 {
		require.Less(t, s.Timeout, time.Minute, "the program comes up")
		if e := run1(t, r, s); up(e) {
			require.True(t, e.TimedOut)
			return e
		}
	}
}

func printed(text string) func(*Exit) bool {
	return func(e *Exit) bool { return strings.Contains(string(e.Stdout), text) }
}

// alive lists the processes whose command line holds the token.
func alive(token string) []string {
	var found []string
	for _, p := range shim.Processes() {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline")
		if p.PID != os.Getpid() && bytes.Contains(line, []byte(token)) {
			found = append(found, fmt.Sprint(p.PID, " ", string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))))
		}
	}
	return found
}

// files names the two files of a stubborn tool. The first doubles as the
// token by which its process is found.
func files(t testing.TB) (ready, late string) {
	t.Helper()
	dir := t.TempDir()
	return filepath.Join(dir, "ready"), filepath.Join(dir, "late")
}

func neverLate(t *testing.T, late string) {
	t.Helper()
	time.Sleep(3300 * time.Millisecond)
	require.NoFileExists(t, late)
}

func TestExitIsExact(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		for _, code := range []int{0, 1, 3, 77, 143, 255} {
			e := run1(t, r, job(t, fmt.Sprintf("exit %d", code)))
			require.Equal(t, code, e.Code)
			require.Empty(t, e.Signal)
			require.Equal(t, r.Isolation(), e.Isolation)
			require.False(t, e.TimedOut || e.Cancelled)
			require.False(t, e.Started.IsZero() || e.Ended.Before(e.Started))
		}
		for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGSEGV, unix.SIGINT, unix.SIGHUP} {
			e := run1(t, r, job(t, fmt.Sprintf("kill -%d $$; sleep 1", int(sig))))
			require.Equal(t, -1, e.Code)
			require.Equal(t, unix.SignalName(sig), e.Signal)
		}
	})
}

// Case 34 of the first system: the prompt comes by stdin, however long it is.
func TestSeed34PromptOfOneMegabyteByStdin(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		s := tool(t, "count")
		s.Stdin = bytes.Repeat([]byte("p"), 1<<20)
		require.Equal(t, "1048576\n", string(run1(t, r, s).Stdout))

		s.Stdin = nil // closed at once
		require.Equal(t, "0\n", string(run1(t, r, s).Stdout))

		s = job(t, "exit 4") // one that never reads it holds nothing up
		s.Stdin = bytes.Repeat([]byte("p"), 1<<20)
		begin := time.Now()
		require.Equal(t, 4, run1(t, r, s).Code)
		require.Less(t, time.Since(begin), 30*time.Second)
	})
}

// Fault A5: a timeout that kills only the wrapper leaves a tool that goes on.
func TestA5TimeoutLeavesNoDescendant(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		ready, late := files(t)
		s := tool(t, "agent", ready, late)
		s.Grace = 100 * time.Millisecond
		e := wall(t, r, s, func(*Exit) bool { return exists(ready) })
		require.Empty(t, alive(ready))
		require.Equal(t, "SIGKILL", e.Signal)

		again, lateAgain := files(t) // the retry starts clean
		s = tool(t, "leave", again, lateAgain)
		s.Timeout, s.Grace = time.Minute, 100*time.Millisecond
		e = run1(t, r, s)
		require.False(t, e.TimedOut)
		require.Equal(t, 0, e.Code)
		require.Empty(t, alive(again))
		neverLate(t, late)
		require.NoFileExists(t, lateAgain)
	})
}

// Fault A14 (a): a pipe masks the exit code of what was killed at the wall.
func TestA14KilledUnderAPipeIsTimedOut(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		s := job(t, "trap '' TERM; (echo partial; sleep 60) | tee log; exit 0")
		s.Grace = 200 * time.Millisecond
		wall(t, r, s, printed("partial\n"))

		s = job(t, "trap 'exit 0' TERM; echo up; sleep 60 | tee log; exit 0")
		e := wall(t, r, s, printed("up\n"))
		require.Equal(t, 0, e.Code, "exit 0 after the wall is a timeout all the same")
	})
}

// Case 33: partial output within a bound, and statuses that can be told apart.
func TestSeed33TimeoutKeepsPartialOutput(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		ready, late := files(t)
		s := job(t, `echo one; echo two >&2; "$0" __tool daemon "$1" "$2"; sleep 60`)
		s.Argv = append(s.Argv, os.Args[0], ready, late)
		dir := t.TempDir()
		s.Stdout, s.Stderr = filepath.Join(dir, "a", "stdout"), filepath.Join(dir, "a", "stderr")
		s.Grace = 100 * time.Millisecond
		e := wall(t, r, s, func(*Exit) bool { return exists(ready) })
		require.Less(t, time.Since(e.Ended), 30*time.Second)
		require.Equal(t, "SIGTERM", e.Signal)
		require.Empty(t, alive(ready))
		require.Equal(t, "one\n", string(e.Stdout))
		require.Equal(t, "two\n", string(e.Stderr))
		for name, want := range map[string]string{s.Stdout: "one\n", s.Stderr: "two\n"} {
			got, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
			info, err := os.Stat(name)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode())
		}
	})
}

// TestR23_CancelEndsAll: a tool that has a session of its own and ignores SIGTERM
// ends too, as it does at the wall (TestA5TimeoutLeavesNoDescendant).
func TestR23_CancelEndsAll(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		ready, late := files(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for !exists(ready) {
				time.Sleep(5 * time.Millisecond)
			}
			cancel()
		}()
		s := tool(t, "agent", ready, late)
		s.Timeout, s.Grace = time.Minute, 100*time.Millisecond
		e, err := r.Run(ctx, s)
		require.NoError(t, err)
		require.True(t, e.Cancelled)
		require.False(t, e.TimedOut)
		require.Empty(t, alive(ready))

		e, err = r.Run(ctx, s)
		require.NoError(t, err)
		require.True(t, e.Cancelled, "cancelled before it was started")
	})
}

func TestGraceLetsAnAgentFinish(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		s := job(t, "trap 'echo saved; exit 7' TERM; echo up; while :; do sleep 0.05; done")
		s.Grace = time.Minute
		e := wall(t, r, s, printed("up\n"))
		require.Equal(t, 7, e.Code)
		require.Equal(t, "up\nsaved\n", string(e.Stdout))
	})
}

func TestStoppedToolIsEnded(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		begin := time.Now()
		e := run1(t, r, job(t, "sleep 60 & kill -STOP $!; exit 0"))
		require.Equal(t, 0, e.Code)
		require.Less(t, time.Since(begin), 30*time.Second, "SIGTERM is heard, no need to wait for the grace")
	})
}

// A tool that starts others without end can't outrun the end.
func TestForkingWithoutEnd(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		s := job(t, "trap '' TERM; echo up; f() { while :; do sleep 0.0$1 & sleep 0.01; done; }; f 31 & f 47 & f 53 & wait")
		s.Argv = append(s.Argv, t.TempDir())
		s.Grace = 100 * time.Millisecond
		wall(t, r, s, printed("up\n"))
		require.Empty(t, alive(s.Argv[3]))
	})
}

func TestProcess1IsNotHurt(t *testing.T) {
	r := runner("")
	if r.Isolation() != IsolationPIDNS {
		t.Skip("this machine allows no namespaces")
	}
	e := run1(t, r, job(t, "for s in TERM INT HUP QUIT USR1 KILL STOP; do kill -$s 1; done 2>/dev/null; echo here; exit 5"))
	require.Equal(t, 5, e.Code)
	require.Equal(t, "here\n", string(e.Stdout))
}

// What is orphaned and ends is collected, under both isolations.
func TestZombiesAreCollected(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		e := run1(t, r, job(t, `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (sleep 0.01 & exit); done
			sleep 0.5; cat /proc/[0-9]*/stat 2>/dev/null | grep -c '(sleep) Z'; exit 0`))
		require.Equal(t, "0\n", string(e.Stdout))
	})
}

func TestTheMachinesProcStays(t *testing.T) {
	before, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	e := run1(t, runner(""), job(t, "grep -c ' /proc ' /proc/self/mountinfo; echo $$"))
	after, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	require.DirExists(t, fmt.Sprint("/proc/", os.Getpid()))
	require.NotEmpty(t, e.Stdout)
}

func TestEnvironmentFilesAndSignalsAreTheAgentsAlone(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "upstream-key")
	leak, err := os.Open(os.DevNull) // a file that the host was started with
	require.NoError(t, err)
	defer leak.Close()
	fd, err := unix.FcntlInt(leak.Fd(), unix.F_DUPFD, 50)
	require.NoError(t, err)
	defer unix.Close(fd)
	each(t, func(t *testing.T, r *Runner) {
		s := tool(t, "env")
		s.Env = []string{"A=1", "TMPDIR=/tmp", "B=\xff\n=2"}
		require.Equal(t, "A=1\nTMPDIR=/tmp\nB=\xff\n=2\n", string(run1(t, r, s).Stdout))

		// What ls opens itself, to read the folder, is number 3.
		require.Equal(t, "0\n1\n2\n3\n", string(run1(t, r, job(t, "ls /proc/self/fd")).Stdout))
		require.Equal(t, "", string(run1(t, r, tool(t, "nonblocking")).Stdout))

		out := string(run1(t, r, job(t, "grep -E '^Sig(Ign|Blk)' /proc/self/status")).Stdout)
		// Signal 32 is the C library's own, ignored in a binary that links it.
		out = strings.ReplaceAll(out, "SigIgn:\t0000000080000000", "SigIgn:\t0000000000000000")
		require.Equal(t, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n", out)

		// Nor does the shim hold anything of the host that could be read.
		out = string(run1(t, r, job(t, "cat /proc/1/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'; exit 0")).Stdout)
		require.NotContains(t, out, "upstream-key")
	})
}

func TestTempFolderIsPrivateAndShort(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		e := run1(t, r, job(t, `echo "$TMPDIR"; stat -c %a "$TMPDIR"; mkdir -p "$TMPDIR/x/y"; echo z > "$TMPDIR/x/y/z"`))
		f := strings.Fields(string(e.Stdout))
		require.Len(t, f, 2)
		require.Equal(t, "700", f[1])
		require.Less(t, len(f[0]), 60)
		require.NoDirExists(t, f[0])
	})
}

// A pipe that somebody outside of the run holds open can't hang it.
func TestPipeHeldFromOutside(t *testing.T) {
	r := runner(IsolationWalk)
	s := job(t, "echo $$; echo done; sleep 0.5; exit 0")
	var held *os.File
	s.Line = func(line []byte) {
		if pid, err := strconv.Atoi(string(line)); err == nil {
			held, _ = os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", pid), os.O_WRONLY, 0)
		}
	}
	begin := time.Now()
	e := run1(t, r, s)
	require.NotNil(t, held)
	defer held.Close()
	require.Less(t, time.Since(begin), 30*time.Second)
	require.Contains(t, string(e.Stdout), "done\n")
}

func TestLostShim(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		ready, late := files(t)
		s := tool(t, "stubborn", ready, late)
		go func() {
			for !exists(ready) {
				time.Sleep(5 * time.Millisecond)
			}
			for _, p := range shim.Processes() { // the shim, which is this process's child
				if p.Parent == os.Getpid() {
					p.Signal(unix.SIGKILL)
				}
			}
		}()
		e, err := r.Run(t.Context(), s)
		require.NoError(t, err)
		require.True(t, e.Lost)
		require.Equal(t, -1, e.Code)
		require.Eventually(t, func() bool { return len(alive(ready)) == 0 }, 10*time.Second, 10*time.Millisecond)
	})
}

// A shim that hangs can't hang the host.
func TestStoppedShimIsGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("takes twenty seconds")
	}
	t.Parallel()
	ready, late := files(t)
	s := tool(t, "stubborn", ready, late)
	s.Grace = -1
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for !exists(ready) {
			time.Sleep(5 * time.Millisecond)
		}
		tree := map[int]shim.Process{}
		for _, p := range shim.Processes() {
			tree[p.PID] = p
		}
		for _, p := range tree {
			line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline")
			if bytes.Contains(line, []byte(ready)) && p.Parent != os.Getpid() {
				tree[p.Parent].Signal(unix.SIGSTOP)
			}
		}
	}()
	begin := time.Now()
	e, err := runner(IsolationWalk).Run(ctx, s)
	require.NoError(t, err)
	require.True(t, e.Lost)
	require.True(t, e.Cancelled)
	require.Less(t, time.Since(begin), 40*time.Second)
	require.Eventually(t, func() bool { return len(alive(ready)) == 0 }, 10*time.Second, 10*time.Millisecond)
}

// Case 34: runs at the same time see nothing of each other, and leave neither
// a goroutine nor a file behind.
func TestSeed34ManyAtOnceAndNothingLeft(t *testing.T) {
	each(t, func(t *testing.T, r *Runner) {
		run1(t, r, job(t, "true"))
		goroutines, open := runtime.NumGoroutine(), openFiles(t)
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				s := job(t, `echo "$WHO $HOME"; pwd; cat; touch mine; ls -A | wc -l`)
				home := t.TempDir()
				s.Env = BaseEnv(EnvOptions{Home: home, Extra: map[string]string{"WHO": strconv.Itoa(i)}})
				s.Stdin = fmt.Appendf(nil, "prompt %d\n", i)
				e, err := r.Run(t.Context(), s)
				if assert.NoError(t, err) {
					assert.Equal(t, fmt.Sprintf("%d %s\n%s\nprompt %d\n1\n", i, home, s.Dir, i), string(e.Stdout))
				}
			})
		}
		wg.Wait()
		for end := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
		require.Equal(t, open, openFiles(t))
		require.Empty(t, children(), "no child is left, not even a zombie")
	})
}

// children lists the children of this process with their state.
func children() []string {
	var found []string
	for _, p := range shim.Processes() {
		if p.Parent == os.Getpid() {
			stat, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
			found = append(found, string(stat))
		}
	}
	return found
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func BenchmarkStartToExit(b *testing.B) {
	for _, isolation := range []string{IsolationPIDNS, IsolationWalk} {
		b.Run(isolation, func(b *testing.B) {
			r := runner(isolation)
			if r.Isolation() != isolation {
				b.Skip("this machine allows no namespaces")
			}
			s := job(b, "")
			s.Argv = []string{"/bin/true"}
			for b.Loop() {
				e, err := r.Run(b.Context(), s)
				if err != nil || e.Code != 0 {
					b.Fatal(e, err)
				}
			}
		})
	}
}
