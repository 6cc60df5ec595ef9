package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/proto"
)

func wildProcess(t testing.TB) (*Registry, *records, judger.Judger) {
	r, logged := load(t, Source{Key: "judger/wild", Process: []string{zooBuilt.process}})
	return r, logged, open(t, r, "wild")
}

// pids starts a grandchild in a plugin and returns both process ids.
func pids(t testing.TB, j judger.Judger) (plugin, grandchild int) {
	t.Helper()
	v, err := ask(j, "fork")
	require.NoError(t, err)
	_, err = fmt.Sscan(v.Explanation, &plugin, &grandchild)
	require.NoError(t, err)
	require.True(t, alive(plugin))
	require.True(t, alive(grandchild))
	return plugin, grandchild
}

// alive reports whether a process runs; one that is only left to be reaped
// doesn't.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// promised is a time that is promised where nothing else runs, as the long
// form of the tests does; beside them all it may take fifteen times as long.
func promised(d time.Duration) time.Duration {
	if os.Getenv("PENSTOCK_SOAK") != "" {
		return d
	}
	return 15 * d
}

// underRace says that the race detector is built in.
func underRace() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func gone(t testing.TB, within time.Duration, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !alive(pid) }, within, 5*time.Millisecond, "process %d lives on", pid)
	}
}

// script writes an executable shell script.
func script(t testing.TB, text string) string {
	path := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
	return path
}

func TestAProgramThatIsNoPluginIsExplained(t *testing.T) {
	wrongCPU := filepath.Join(t.TempDir(), "plugin")
	text, err := os.ReadFile(zooBuilt.process)
	require.NoError(t, err)
	text[18], text[19] = 0xf3, 0 // e_machine: RISC-V
	require.NoError(t, os.WriteFile(wrongCPU, text, 0o700))
	noProgram := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(noProgram, []byte("just text"), 0o700))
	for name, c := range map[string]struct{ path, want string }{
		"text before the handshake": {script(t, "echo hello there\nsleep 60"), `it printed "hello there" before the handshake`},
		"text and then end":         {script(t, "echo hello there"), `it printed "hello there" before the handshake`},
		"crash at start":            {script(t, "echo no config >&2\nexit 7"), "it ended before the handshake (exit status 7): its main must be serve.Main(); it wrote: no config"},
		"another protocol":          {script(t, "echo '1|1|unix|/nowhere|netrpc'\nsleep 60"), "it speaks netrpc, and penstock speaks gRPC alone: its main must be serve.Main()"},
		"wrong version":             {script(t, "echo '1|9|unix|/nowhere|grpc'\nsleep 60"), "it speaks plugin protocol 9, this penstock speaks 1"},
		"wrong processor":           {wrongCPU, "can't run on linux/"},
		"no program":                {noProgram, "it is no program of this system"},
		"missing interpreter":       {"", "is missing, or the interpreter that it names"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path == "" {
				c.path = filepath.Join(t.TempDir(), "plugin")
				require.NoError(t, os.WriteFile(c.path, []byte("#!/no/such/shell\n"), 0o700))
			}
			r, _ := newRegistry(t)
			begin := time.Now()
			err := r.Add(t.Context(), Source{Key: "judger/a", Process: []string{c.path}})
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "plugin judger/a")
			assert.Less(t, time.Since(begin), startTimeout)
		})
	}
}

func TestAStartThatHangsCanBeGivenUp(t *testing.T) {
	r, _ := newRegistry(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err := r.Add(ctx, Source{Key: "judger/a", Process: []string{script(t, "sleep 60")}})
	fails(t, err, Cancelled)
	assert.Less(t, time.Since(begin), startTimeout)
}

func TestAStartThatHangsIsEnded(t *testing.T) {
	given := startTimeout
	startTimeout = time.Second
	defer func() { startTimeout = given }()
	r, _ := newRegistry(t)
	err := r.Add(t.Context(), Source{Key: "judger/a", Process: []string{script(t, "echo waiting >&2; sleep 60")}})
	require.ErrorContains(t, err, "it did not finish the handshake within 1s: its main must be serve.Main(); it wrote: waiting")
}

func TestAPluginKilledInACallGivesARetryableErrorAndComesBack(t *testing.T) {
	temp := shortTemp(t)
	_, _, j := wildProcess(t)
	first, grandchild := pids(t, j)
	done := make(chan error, 1)
	go func() { _, err := ask(j, "loop"); done <- err }()
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	e := fails(t, <-done, Unavailable)
	assert.True(t, e.Retryable)
	assert.Contains(t, e.Error(), "the plugin process died during the call (signal: killed)")
	var c *component.Error
	require.ErrorAs(t, e, &c)
	assert.True(t, c.Retryable)
	gone(t, promised(time.Second), grandchild)
	sockets, err := filepath.Glob(filepath.Join(temp, "*", "*", "*"))
	require.NoError(t, err)
	assert.Empty(t, sockets, "it left no socket behind")
	second, _ := pids(t, j)
	assert.NotEqual(t, first, second)
}

func TestACrashTellsItsPanic(t *testing.T) {
	_, logged, j := wildProcess(t)
	_, err := ask(j, "crash")
	e := fails(t, err, Unavailable)
	assert.Contains(t, e.Error(), "panic: the lion is loose")
	assert.Contains(t, e.Error(), "zoo.go:")
	assert.Contains(t, logged.String(), `level=ERROR msg="panic: the lion is loose" plugin=judger/wild`)
	assert.Len(t, logged.at("ERROR"), 1, "the stack is no error of its own")
	_, err = ask(j, "")
	require.NoError(t, err)
}

func TestAPanicInOneCallLeavesTheProcessAlone(t *testing.T) {
	_, logged, j := wildProcess(t)
	before, _ := pids(t, j)
	_, err := ask(j, "panic")
	e := fails(t, err, Failed)
	assert.Contains(t, e.Error(), "the plugin panicked: the lion is loose")
	require.Eventually(t, func() bool { return strings.Contains(logged.String(), "zoo.go:") }, time.Minute, 5*time.Millisecond)
	require.Len(t, logged.at("ERROR"), 1)
	assert.Contains(t, logged.at("ERROR")[0], `msg="plugin panicked" plugin=judger/wild panic="the lion is loose"`)
	assert.NotContains(t, logged.at("ERROR")[0], "zoo.go:", "the stack is for debugging")
	after, _ := pids(t, j)
	assert.Equal(t, before, after)
}

func TestAPluginThatDiesAgainAndAgainIsLeftAlone(t *testing.T) {
	_, _, j := wildProcess(t)
	for range maxDeaths {
		_, err := ask(j, "crash")
		fails(t, err, Unavailable)
	}
	begin := time.Now()
	_, err := ask(j, "")
	e := fails(t, err, Unavailable)
	assert.False(t, e.Retryable)
	assert.Contains(t, e.Error(), "it died 5 times within a minute")
	assert.Contains(t, e.Error(), "; it wrote: panic: the lion is loose")
	assert.Less(t, time.Since(begin), startTimeout)
}

func TestCloseKillsTheGroupAtOnce(t *testing.T) {
	r, _, j := wildProcess(t)
	plugin, grandchild := pids(t, j) // it holds standard error open
	begin := time.Now()
	require.NoError(t, r.Close(context.Background()))
	took := time.Since(begin)
	assert.Less(t, took, promised(100*time.Millisecond))
	gone(t, promised(500*time.Millisecond), plugin, grandchild)
	_, err := ask(j, "")
	fails(t, err, Unavailable)
}

// shortTemp makes a folder for sockets, whose paths are short, and makes it
// the system's temp folder.
func shortTemp(t testing.TB) string {
	dir, err := os.MkdirTemp("/tmp", "p")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	t.Setenv("TMPDIR", dir)
	return dir
}

func TestNoSocketIsLeftBehind(t *testing.T) {
	shortTemp(t)
	r, _, j := wildProcess(t)
	_, err := ask(j, "")
	require.NoError(t, err)
	sockets, err := filepath.Glob(filepath.Join(os.TempDir(), "penstock-*"))
	require.NoError(t, err)
	require.Len(t, sockets, 1)
	info, err := os.Stat(sockets[0])
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, r.Close(context.Background()))
	assert.NoDirExists(t, sockets[0])
}

func TestALongTempFolderHasRoomForASocket(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 20))
	require.NoError(t, os.Mkdir(long, 0o700))
	t.Setenv("TMPDIR", long)
	_, _, j := wildProcess(t)
	_, err := ask(j, "")
	require.NoError(t, err)
}

func TestAHostThatIsKilledLeavesNoPlugin(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	temp := shortTemp(t)
	host := exec.Command(self)
	host.Env = append(os.Environ(), hostVariable+"="+zooBuilt.process, "PENSTOCK_TEST_CACHE="+zooBuilt.cache)
	out, err := host.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, host.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var plugin, grandchild int
	_, err = fmt.Sscan(line, &plugin, &grandchild)
	require.NoError(t, err, line)
	require.True(t, alive(plugin))
	require.True(t, alive(grandchild))
	require.NoError(t, host.Process.Kill())
	gone(t, promised(time.Second), plugin, grandchild)
	_ = host.Wait()
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	assert.Empty(t, left, "a socket is left behind")
}

// beHost is the host that is killed: it starts a plugin with a grandchild,
// prints their process ids and waits.
func beHost(path string) int {
	r := New(Options{CacheDir: os.Getenv("PENSTOCK_TEST_CACHE"), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	ctx := context.Background()
	err := r.Add(ctx, Source{Key: "judger/wild", Process: []string{path}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	j, err := r.Judger(ctx, "wild", nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	v, err := ask(j, "fork")
	fmt.Println(v.Explanation, err)
	time.Sleep(time.Minute)
	return 0
}

func TestAPluginSeesAnAllowedEnvironment(t *testing.T) {
	t.Setenv("SECRET_KEY", "s3cret")
	t.Setenv("NAMED", "passed on")
	r, _ := load(t, Source{Key: "judger/wild", Process: []string{zooBuilt.process}, Env: []string{"NAMED", "GIVEN=value"}})
	v, err := ask(open(t, r, "wild"), "env")
	require.NoError(t, err)
	lines := strings.Split(v.Explanation, "\n")
	assert.NotContains(t, v.Explanation, "s3cret")
	assert.Contains(t, lines, "NAMED=passed on")
	assert.Contains(t, lines, "GIVEN=value")
	assert.Contains(t, lines, "PATH="+os.Getenv("PATH"))
	assert.NotContains(t, v.Explanation, "PLUGIN_CLIENT_CERT", "the socket is this user's alone, so that TLS would only cost time")
}

func TestWhatAPluginWritesIsLogged(t *testing.T) {
	_, logged, j := wildProcess(t)
	_, err := ask(j, "log")
	require.NoError(t, err)
	for _, want := range []string{
		`level=WARN msg=seen plugin=judger/wild rollout=t1~0`,
		`level=INFO msg="plain line" plugin=judger/wild`,
		`level=INFO msg="on stdout" plugin=judger/wild`,
	} {
		assert.Eventually(t, func() bool { return strings.Contains(logged.String(), want) }, time.Minute, 5*time.Millisecond, want)
	}
}

func TestReplayedOpenKeepsTheConfig(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/tame", Process: []string{zooBuilt.process}})
	require.NoError(t, r.Add(t.Context(), Source{Key: "judger/wild", Process: []string{zooBuilt.process}}))
	j, err := r.Judger(t.Context(), "tame", json.RawMessage(`{"ignore_case":true}`))
	require.NoError(t, err)
	_, err = ask(open(t, r, "wild"), "exit") // the two share a process
	fails(t, err, Unavailable)
	v, err := j.Judge(t.Context(), judgeRequest(`{"task":{"answer":"A"},"rollout":{"final_text":"a"}}`))
	require.NoError(t, err)
	assert.InDelta(t, 1, *v.Reward, 0)
}

func TestCallsInFlightAreBounded(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/wild", Process: []string{zooBuilt.process}, MaxInFlight: 1})
	j := open(t, r, "wild")
	working, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := j.Judge(working, judgeRequest(`{"input":{"act":"loop"}}`)); done <- err }()
	slots := j.(remoteJudger).instance.(*processInstance).process.slots
	require.Eventually(t, func() bool { return len(slots) == 1 }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := j.Judge(ctx, judgeRequest(`{}`))
	fails(t, err, Cancelled)
	end()
	fails(t, <-done, Cancelled)
}

func TestACancelledCallIsCancelledInThePlugin(t *testing.T) {
	_, _, j := wildProcess(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := j.Judge(ctx, judgeRequest(`{"input":{"act":"loop"}}`))
	require.ErrorIs(t, fails(t, err, Cancelled), context.Canceled)
}

func TestMessagesOfManyMegabytesPass(t *testing.T) {
	_, _, j := wildProcess(t)
	big := strings.Repeat("x", 6<<20)
	v, err := j.Judge(t.Context(), judgeRequest(`{"input":{"act":"flood"},"task":{"text":"`+big+`"}}`))
	require.NoError(t, err)
	assert.Len(t, v.Explanation, 6<<20)
}

// TestALargeRolloutGoesByFile: over 8 MiB, whatever the size of a message is.
// The file is nobody else's, lasts for the call, and goes with the program.
func TestALargeRolloutGoesByFile(t *testing.T) {
	temp := shortTemp(t)
	r, _, j := wildProcess(t)
	sent := func() []string {
		found, err := filepath.Glob(filepath.Join(temp, "penstock-*", "*", "penstock-document-*"))
		require.NoError(t, err)
		return found
	}
	large := strings.Repeat("x", proto.MaxMessage) // the document is over the size of a message
	v, err := j.Judge(t.Context(), judgeRequest(`{"input":{"act":"flood"},"task":{"text":"`+large+`"}}`))
	require.NoError(t, err)
	assert.Len(t, v.Explanation, 6<<20)
	assert.Empty(t, sent())

	done := make(chan error, 1)
	go func() {
		_, err := j.Judge(context.Background(), judgeRequest(`{"input":{"act":"loop"},"task":{"text":"`+large[:proto.MaxInline]+`"}}`))
		done <- err
	}()
	require.Eventually(t, func() bool { return len(sent()) == 1 }, 30*time.Second, 10*time.Millisecond)
	info, err := os.Stat(sent()[0])
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, r.Close(context.Background()))
	fails(t, <-done, Unavailable)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestAPluginWithoutFilesIsSentMessages: one that was built before documents
// could be files is told of the size instead.
func TestAPluginWithoutFilesIsSentMessages(t *testing.T) {
	_, _, j := wildProcess(t)
	in := j.(remoteJudger).instance.(*processInstance)
	run, err := in.ready(t.Context())
	require.NoError(t, err)
	run.files = false
	_, err = in.call(t.Context(), judger.MethodJudge, []byte(`{"task":"`+strings.Repeat("x", proto.MaxInline)+`"}`))
	require.NoError(t, err)
	_, err = in.call(t.Context(), judger.MethodJudge, make([]byte, proto.MaxMessage))
	fails(t, err, TooLarge)
}

func TestManyCallersShareAProcess(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/tame", Process: []string{zooBuilt.process}})
	j := open(t, r, "tame")
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			text := strconv.Itoa(i)
			v, err := j.Judge(context.Background(), judgeRequest(`{"task":{"answer":"`+text+`"},"rollout":{"final_text":"`+text+`"}}`))
			if assert.NoError(t, err) {
				assert.Equal(t, fmt.Sprintf("got %q, want %q <&>", text, text), v.Explanation)
			}
		})
	}
	wg.Wait()
}

func TestAPluginByHandExplainsItself(t *testing.T) {
	out, err := exec.Command(zooBuilt.process).CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "This program is a penstock plugin")
	assert.Contains(t, string(out), "judger/tame")
	out, err = exec.Command(zooBuilt.process, "--describe").Output()
	require.NoError(t, err)
	all, err := parseDescription(out)
	require.NoError(t, err)
	assert.Len(t, all, 6)
}
