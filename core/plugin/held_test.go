package plugin

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/agent/shim"
)

// execHost makes the test binary a host of an exec plugin, which is to be
// killed; the test binary is its shim, too, by the argument that names it.
const execHost = "PENSTOCK_TEST_EXEC_HOST"

// looper answers open, then never looks at its input again; it starts a
// process in a session of its own first.
const looper = `setsid sleep 300 &
echo "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"no\"}}"
echo "$$ $!" > "$PIDS"
while :; do :; done
`

func beExecHost(path string) int {
	self, err := os.Executable()
	if err != nil {
		return 1
	}
	r := New(Options{CacheDir: os.Getenv("PENSTOCK_TEST_CACHE"), Shim: []string{self, shim.Arg}})
	ctx := context.Background()
	if err := r.Add(ctx, Source{Key: "judger/loop", Exec: []string{path}, Env: []string{"PIDS"}}); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("added")
	j, err := r.Judger(ctx, "loop", nil)
	if err == nil {
		_, err = ask(j, "")
	}
	fmt.Println(err)
	return 0
}

func TestALoopingExecProgramEndsWithAKilledHost(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	pids := t.TempDir() + "/pids"
	mark := fmt.Sprintf("PENSTOCK_TEST_MARK=%d", os.Getpid())
	host := exec.Command(self)
	host.Env = append(os.Environ(), execHost+"="+script(t, looper), "PENSTOCK_TEST_CACHE="+zooBuilt.cache, "PIDS="+pids, mark)
	out, err := host.StdoutPipe()
	require.NoError(t, err)
	host.Stderr = os.Stderr
	require.NoError(t, host.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "added\n", line)
	assert.Eventually(t, func() bool { return len(holding(t, pids)) >= 2 }, time.Minute, 10*time.Millisecond, "the program and what it started")
	require.NoError(t, host.Process.Kill())
	_ = host.Wait()
	assert.Eventually(t, func() bool { return len(holding(t, pids)) == 0 }, time.Minute, 10*time.Millisecond, "it lives on")
}

// holding lists the processes, but for the host, whose environment names a
// file: those that this test started, in whatever session they are.
func holding(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	var found []string
	for _, e := range entries {
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && contains(env, "PIDS="+path) && !contains(env, execHost+"=") {
			found = append(found, e.Name())
		}
	}
	return found
}

func contains(env []byte, text string) bool {
	return slices.ContainsFunc(strings.Split(string(env), "\x00"), func(v string) bool { return strings.HasPrefix(v, text) })
}

func TestUnderAShimExecProgramsDieAndComeBack(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	r := New(Options{CacheDir: zooBuilt.cache, Shim: []string{self, shim.Arg}})
	t.Cleanup(func() { require.NoError(t, r.Close(context.Background())) })
	require.NoError(t, r.Add(t.Context(), Source{Key: "judger/wild", Exec: python(t), Env: noCache}))
	j := open(t, r, "wild")
	_, err = ask(j, "crash")
	e := fails(t, err, Unavailable)
	assert.Contains(t, e.Error(), "the plugin process died during the call (exit status 3); it wrote: panic: the lion is loose")
	v, err := ask(j, "")
	require.NoError(t, err)
	assert.InDelta(t, 1, *v.Reward, 0)
	none := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(none, []byte("#!/no/such/shell\n"), 0o700))
	err = r.Add(t.Context(), Source{Key: "judger/none", Exec: []string{none}})
	require.ErrorContains(t, err, "is missing, or the interpreter that it names")
	begin := time.Now()
	require.True(t, r.Crash("judger", "wild"))
	assert.Less(t, time.Since(begin), 9*time.Second, "the race detector alone sleeps for one at exit")
}
