package plugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/judger"
)

func wildModule(t testing.TB, limits Limits) (*records, judger.Judger) {
	r, logged := load(t, Source{Key: "judger/wild", Wasm: zooBuilt.wasm, Limits: limits})
	return logged, open(t, r, "wild")
}

func TestAModuleWithoutDescribeIsWhatItsKeySays(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/smallest", Wasm: wat(t, "exact")})
	d, err := r.Describe("judger", "smallest")
	require.NoError(t, err)
	assert.Equal(t, "judger/smallest", d.ID())
	assert.Equal(t, []string{"judge"}, d.Methods)
	j := open(t, r, "smallest")
	for got, want := range map[string]float64{`"a"`: 1, `"b"`: 0, `null`: 0} {
		v, err := j.Judge(t.Context(), judgeRequest(`{"task":{"answer":"a"},"rollout":{"final_text":`+got+`}}`))
		require.NoError(t, err)
		assert.InDelta(t, want, *v.Reward, 0, got)
		assert.Equal(t, judger.Scored, v.Status)
	}
	_, err = r.Judger(t.Context(), "smallest", []byte(`{"a":1}`))
	require.ErrorContains(t, err, "/a: unknown field")
}

func TestWildModulesAreContainedAndTheNextCallWorks(t *testing.T) {
	limits := Limits{Timeout: time.Minute, Out: 1 << 20, Memory: 32 << 20}
	short := Limits{Timeout: time.Second}
	byHand := func(l Limits) judger.Judger {
		r, _ := load(t, Source{Key: "judger/wild", Wasm: wat(t, "wild"), Limits: l})
		return open(t, r, "wild")
	}
	hand, handLoop := byHand(limits), byHand(short)
	_, guest := wildModule(t, limits)
	_, guestFlood := wildModule(t, Limits{Timeout: time.Minute, Out: 1 << 20})
	_, guestLoop := wildModule(t, short)
	for name, c := range map[string]struct {
		judger judger.Judger
		act    string
		reason Reason
		want   string
	}{
		"trap":       {hand, "trap", Trapped, "the module trapped: unreachable"},
		"loop":       {handLoop, "loop", Timeout, "the module took longer than 1s and was ended"},
		"memory":     {hand, "grow", Trapped, "the module trapped"},
		"flood":      {hand, "flood", TooLarge, "its reply is over the limit of 1048576 bytes"},
		"pointer":    {hand, "range", Trapped, "output_write reads outside of the module's memory"},
		"stack":      {hand, "stack", Trapped, "the module trapped: stack overflow"},
		"error":      {hand, "error", Failed, "not today"},
		"go panic":   {guest, "panic", Trapped, "panic: the lion is loose"},
		"go exit":    {guest, "exit", Exited, "the module ended itself with exit code 3"},
		"go loop":    {guestLoop, "loop", Timeout, "the module took longer than 1s"},
		"go memory":  {guest, "hog", Trapped, "out of memory"},
		"go flood":   {guestFlood, "flood", TooLarge, "its reply is over the limit"},
		"go nan":     {guest, "nan", Failed, "reward is NaN, want a finite number"},
		"go sleeper": {guest, "crash", Trapped, "panic: the lion is loose"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ask(c.judger, c.act)
			e := fails(t, err, c.reason)
			assert.Contains(t, e.Error(), c.want)
			assert.Contains(t, e.Error(), "plugin judger/wild: judge: ")
			v, err := ask(c.judger, "")
			require.NoError(t, err)
			assert.InDelta(t, 1, *v.Reward, 0)
		})
	}
}

func TestAGoPanicTellsWhere(t *testing.T) {
	_, j := wildModule(t, Limits{})
	_, err := ask(j, "panic")
	assert.Contains(t, err.Error(), "zoo.go:")
}

// A module that fails is one line of the log, however deep its stack was.
func TestAFailedModuleIsOneError(t *testing.T) {
	for act, cause := range map[string]string{
		"panic": "the module trapped: unreachable: panic: the lion is loose",
		"exit":  "the module ended itself with exit code 3",
	} {
		t.Run(act, func(t *testing.T) {
			r, logged := load(t, Source{Key: "judger/wild", Wasm: zooBuilt.wasm})
			_, err := ask(open(t, r, "wild"), act)
			require.Error(t, err)
			lines := logged.at("ERROR")
			require.Len(t, lines, 1, logged.String())
			assert.Contains(t, lines[0], "plugin=judger/wild")
			assert.Contains(t, lines[0], cause)
			if act == "panic" {
				assert.Contains(t, strings.Join(logged.at("DEBUG"), "\n"), "zoo.go:", "the stack is there for who asks for it")
			}
			assert.Empty(t, logged.at("INFO"))
		})
	}
}

func TestARequestOverTheLimitIsRefused(t *testing.T) {
	_, j := wildModule(t, Limits{In: 1000})
	_, err := j.Judge(t.Context(), judgeRequest(`{"task":"`+strings.Repeat("x", 1000)+`"}`))
	fails(t, err, TooLarge)
	_, err = ask(j, "")
	require.NoError(t, err)
}

func TestCallersShareAtMostAnInstanceForEachProcessor(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/tame", Wasm: zooBuilt.wasm})
	j := open(t, r, "tame")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for k := range 20 {
				text := fmt.Sprint(i, k)
				v, err := j.Judge(context.Background(), judgeRequest(`{"task":{"answer":"`+text+`"},"rollout":{"final_text":"`+text+`"}}`))
				if assert.NoError(t, err) {
					assert.Equal(t, fmt.Sprintf("got %q, want %q <&>", text, text), v.Explanation)
				}
			}
		})
	}
	wg.Wait()
	p := j.(remoteGroupJudger).instance.(*pool)
	assert.LessOrEqual(t, len(p.made), runtime.GOMAXPROCS(0))
	assert.Len(t, p.idle, len(p.made))
}

func TestACallerMayStopWaitingForAnInstance(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/wild", Wasm: zooBuilt.wasm, Limits: Limits{Timeout: time.Hour}})
	j := open(t, r, "wild")
	p := j.(remoteJudger).instance.(*pool)
	var wg sync.WaitGroup
	for range cap(p.made) {
		wg.Go(func() { _, _ = ask(j, "loop") })
	}
	require.Eventually(t, func() bool { return len(p.made) == cap(p.made) && len(p.idle) == 0 }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := j.Judge(ctx, judgeRequest(`{}`))
	require.ErrorIs(t, fails(t, err, Cancelled), context.DeadlineExceeded)
	require.NoError(t, r.Close(context.Background())) // ends the loops
	wg.Wait()
}

func TestALoopingGuestDoesNotStallTheHost(t *testing.T) {
	_, j := wildModule(t, Limits{Timeout: 4 * time.Second})
	stop := make(chan struct{})
	var gaps []time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		last := time.Now()
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				now := time.Now()
				gaps = append(gaps, now.Sub(last))
				last = now
			}
		}
	})
	wg.Go(func() {
		for range 5 { // a collection stops the world, which waits for the guest
			time.Sleep(100 * time.Millisecond)
			runtime.GC()
		}
	})
	_, err := ask(j, "loop")
	close(stop)
	wg.Wait()
	fails(t, err, Timeout)
	slices.Sort(gaps)
	assert.Less(t, gaps[len(gaps)-1], 3*time.Second, "a host that waits for the guest stalls for the four seconds that it loops")
}

func TestWhatAModuleWritesIsLogged(t *testing.T) {
	logged, j := wildModule(t, Limits{})
	_, err := ask(j, "log")
	require.NoError(t, err)
	for _, want := range []string{
		`level=WARN msg=seen plugin=judger/wild rollout=t1~0`,
		`level=INFO msg="plain line" plugin=judger/wild`,
		`level=INFO msg="on stdout" plugin=judger/wild`,
	} {
		assert.Contains(t, logged.String(), want)
	}
}

func TestAModuleThatChattersIsCutShort(t *testing.T) {
	logged, j := wildModule(t, Limits{Timeout: time.Minute})
	begin := time.Now()
	_, err := ask(j, "chatter")
	require.NoError(t, err)
	seconds := int(time.Since(begin).Seconds()) + 2
	assert.LessOrEqual(t, strings.Count(logged.String(), "msg=chatter"), logsPerSecond*seconds)
	time.Sleep(time.Second)
	_, err = ask(j, "log")
	require.NoError(t, err)
	assert.Contains(t, logged.String(), "plugin logged too much, lines were left out")
}

func TestCompiledModulesAreKeptOnDiskForThisUserAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	for range 2 {
		r := New(Options{CacheDir: dir})
		require.NoError(t, r.Add(t.Context(), Source{Key: "judger/a", Wasm: wat(t, "exact")}))
		require.NoError(t, r.Close(t.Context()))
	}
	var folders []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if d.IsDir() {
			folders = append(folders, path)
		}
		return err
	}))
	for _, f := range folders[:2] {
		info, err := os.Stat(f)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm(), f)
	}
	compiled, err := filepath.Glob(filepath.Join(dir, "wazero", "*", "*"))
	require.NoError(t, err)
	assert.Len(t, compiled, 1)
}

func TestInstancesAreMadeAsTheyAreNeeded(t *testing.T) {
	_, j := wildModule(t, Limits{})
	p := j.(remoteJudger).instance.(*pool)
	assert.Len(t, p.made, 1)
	_, err := ask(j, "panic")
	require.Error(t, err)
	assert.Empty(t, p.made)
}
