package plugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

func TestDefaultLimitsOfAModule(t *testing.T) {
	assert.Equal(t, Limits{Memory: 64 << 20, Timeout: 2 * time.Second, In: 16 << 20, Out: 16 << 20}, Limits{}.forWasm())
	given := Limits{Memory: 1, Timeout: 2, In: 3, Out: 4}
	assert.Equal(t, given, given.forWasm())
	assert.Equal(t, 100, logsPerSecond)
	assert.Equal(t, 32<<20, maxModule)
}

func TestFieldRead(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/fields", Wasm: wat(t, "fields")})
	j := open(t, r, "fields")
	const rest = `"task":{"a":"plain","é":"x\ny","n":1.50,"o":{"b":[1,"two",{"c":"last"}]},"null":null,"e":"","a/b":"slash","m~n":"tilde","deep":[[1,2],[3]]}}`
	for _, c := range []struct {
		path  string
		limit int
		want  string
	}{
		{"/task/a", 100, "5 plain"},
		{"/task/a", 5, "5 plain"},
		{"/task/a", 4, "5 #"}, // nothing is written; the guest is told how much it needs
		{"/task/a", 0, "5 #"},
		{"/task/é", 100, "3 x\ny"}, // a string without quotes and escapes
		{"/task/n", 100, "4 1.50"}, // as it is written
		{"/task/o", 100, `28 {"b":[1,"two",{"c":"last"}]}`},
		{"/task/o/b/1", 100, "3 two"},
		{"/task/o/b/-1/c", 100, "4 last"},
		{"/task/deep/-1/-1", 100, "1 3"},
		{"/task/e", 100, "0"},
		{"/task/a~1b", 100, "5 slash"},
		{"/task/m~0n", 100, "5 tilde"},
		{"/task/null", 100, "-1 #"},
		{"/task/none", 100, "-1 #"},
		{"/task/o/b/7", 100, "-1 #"},
		{"/task/a/b", 100, "-1 #"},
		{"task", 100, "-1 #"},
		{"/input/limit", 100, "3 100"},
	} {
		t.Run(fmt.Sprint(c.path, " ", c.limit), func(t *testing.T) {
			_, err := j.Judge(t.Context(), judgeRequest(fmt.Sprintf(`{"input":{"path":%q,"limit":"%d"},%s`, c.path, c.limit, rest)))
			assert.Equal(t, c.want, fails(t, err, Failed).Message)
		})
	}
	whole := fmt.Sprintf(`{"input":{"path":"","limit":"9"},%s`, rest)
	_, err := j.Judge(t.Context(), judgeRequest(whole))
	assert.Equal(t, fmt.Sprintf("%d #", len(whole)), fails(t, err, Failed).Message, "the empty path is the whole request")
}

// TestInputRead: the request can be read in pieces, none beyond its end.
func TestInputRead(t *testing.T) {
	r, _ := load(t, Source{Key: "hook/fields", Wasm: wat(t, "fields")})
	h, err := r.Hook(t.Context(), "fields", nil)
	require.NoError(t, err)
	const request = `{"point":"row","row":{}}`
	_, err = h.Apply(t.Context(), hook.NewEvent(doc.Bytes(request)))
	assert.Equal(t, fmt.Sprintf(`%d 10 0 %s`, len(request), request[2:12]), fails(t, err, Failed).Message)
}

// TestConfigureComesOnceBeforeTheFirstCall of each instance.
func TestConfigureComesOnceBeforeTheFirstCall(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/configured", Wasm: wat(t, "configured")})
	j := open(t, r, "configured")
	for _, want := range []float64{1, 11, 21} { // one instance, as the calls follow each other
		v, err := ask(j, "")
		require.NoError(t, err)
		assert.InDelta(t, want, *v.Reward, 0)
	}
}

// TestARewardThatIsNoFiniteNumberIsRefusedOnEveryTransport, also where the
// reply is spelled by hand.
func TestARewardThatIsNoFiniteNumberIsRefusedOnEveryTransport(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/infinite", Wasm: wat(t, "infinite")})
	_, err := ask(open(t, r, "infinite"), "")
	fails(t, err, BadReply)
	for name, reply := range map[string]string{"nan": "NaN", "infinity": "Infinity", "1e999": "1e999"} {
		r, _ := load(t, Source{Key: "judger/a", Exec: []string{script(t, speaks(`{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"reward\":`+reply+`}}`))}})
		_, err := ask(open(t, r, "a"), "")
		fails(t, err, BadReply)
		assert.Contains(t, err.Error(), "judge: ", name)
	}
	for _, name := range []string{Process, Wasm} {
		s := Source{Key: "judger/wild", Process: []string{zooBuilt.process}}
		if name == Wasm {
			s = Source{Key: "judger/wild", Wasm: zooBuilt.wasm}
		}
		r, _ := load(t, s)
		_, err := ask(open(t, r, "wild"), "nan")
		assert.Contains(t, fails(t, err, Failed).Error(), "reward is NaN, want a finite number", name)
	}
}

// TestWASIIsEmpty: a module that asks finds no arguments, no environment, no
// input and no files.
func TestWASIIsEmpty(t *testing.T) {
	t.Setenv("SECRET_KEY", "s3cret")
	_, j := wildModule(t, Limits{})
	v, err := ask(j, "world")
	require.NoError(t, err)
	assert.Equal(t, "0 args, 0 variables, 0 bytes of input <nil>, root false, file false, write false", v.Explanation)
}

// TestAModuleIsDeterministic: each instance throws the same dice.
func TestAModuleIsDeterministic(t *testing.T) {
	_, a := wildModule(t, Limits{})
	_, b := wildModule(t, Limits{})
	first, err := ask(a, "dice")
	require.NoError(t, err)
	second, err := ask(b, "dice")
	require.NoError(t, err)
	assert.Equal(t, first.Explanation, second.Explanation)
}

// TestWhatAModulePrintsIsBounded: by lines, and by a megabyte in a second.
func TestWhatAModulePrintsIsBounded(t *testing.T) {
	logged, j := wildModule(t, Limits{Timeout: time.Minute})
	begin := time.Now()
	_, err := ask(j, "spill")
	require.NoError(t, err)
	seconds := int(time.Since(begin).Seconds()) + 2
	assert.LessOrEqual(t, len(logged.String()), seconds*(maxLogged+maxLine))
}

// TestAModulesLogNamesInstanceAndCall, beside the plugin.
func TestAModulesLogNamesInstanceAndCall(t *testing.T) {
	logged, j := wildModule(t, Limits{})
	for range 2 {
		_, err := ask(j, "log")
		require.NoError(t, err)
	}
	for _, want := range []string{
		`level=WARN msg=seen plugin=judger/wild rollout=t1~0 instance=\d call=2\n`, // configure was the first
		`level=WARN msg=seen plugin=judger/wild rollout=t1~0 instance=\d call=3\n`,
		`level=INFO msg="plain line" plugin=judger/wild instance=\d\n`,
	} {
		assert.Regexp(t, want, logged.String())
	}
}

// TestAnInstanceThatGotBigIsGivenUp: memory is never given back.
func TestAnInstanceThatGotBigIsGivenUp(t *testing.T) {
	_, j := wildModule(t, Limits{Timeout: time.Minute})
	p := j.(remoteJudger).instance.(*pool)
	require.Len(t, p.made, 1)
	_, err := ask(j, "bulk")
	require.NoError(t, err)
	assert.Empty(t, p.made)
	_, err = ask(j, "")
	require.NoError(t, err)
	assert.Len(t, p.made, 1)
}

// TestATimeOutGivesTheInstanceUp, as does an exit; see also
// TestInstancesAreMadeAsTheyAreNeeded.
func TestATimeOutGivesTheInstanceUp(t *testing.T) {
	_, j := wildModule(t, Limits{Timeout: time.Second})
	p := j.(remoteJudger).instance.(*pool)
	for act, reason := range map[string]Reason{"loop": Timeout, "exit": Exited} {
		_, err := ask(j, act)
		fails(t, err, reason)
		assert.Empty(t, p.made, act)
	}
}

// TestAModuleIsCompiledOnceForManyRegistrations, at once and one after the
// other. A small one is compiled under the race detector in no time; the long
// form takes one of megabytes.
func TestAModuleIsCompiledOnceForManyRegistrations(t *testing.T) {
	module, err := filepath.Abs("testdata/guests/exact.ts.wasm")
	require.NoError(t, err)
	if os.Getenv("PENSTOCK_SOAK") != "" {
		module = zooBuilt.wasm
	}
	dir := filepath.Join(t.TempDir(), "cache")
	r := New(Options{CacheDir: dir})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			assert.NoError(t, r.Add(context.Background(), Source{Key: fmt.Sprintf("judger/j%d", i), Name: "tame", Wasm: module}))
		})
	}
	wg.Wait()
	assert.Len(t, r.programs, 1)
	require.NoError(t, r.Add(t.Context(), Source{Key: "judger/other", Name: "tame", Wasm: module, Limits: Limits{Timeout: time.Minute}}))
	compiled, err := filepath.Glob(filepath.Join(dir, "wazero", "*", "*"))
	require.NoError(t, err)
	assert.Len(t, compiled, 1)
	require.NoError(t, r.Close(t.Context()))
}

func TestACompilationCanBeGivenUp(t *testing.T) {
	r := New(Options{CacheDir: filepath.Join(t.TempDir(), "cache")})
	t.Cleanup(func() { require.NoError(t, r.Close(context.Background())) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := r.Add(ctx, Source{Key: "judger/tame", Wasm: zooBuilt.wasm})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "load plugin judger/tame: compile: ")
}

func TestAModuleOfMoreThan32MiBIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.wasm")
	code, err := os.ReadFile(wat(t, "exact"))
	require.NoError(t, err)
	// A custom section, which is allowed and does nothing, makes it big.
	section := append([]byte{0}, leb(34<<20)...)
	require.NoError(t, os.WriteFile(path, append(append(code, section...), make([]byte, 34<<20)...), 0o600))
	r, _ := newRegistry(t)
	err = r.Add(t.Context(), Source{Key: "judger/a", Wasm: path})
	require.ErrorContains(t, err, "big.wasm is 34 MiB, a module may have 32 MiB")
}

// leb is a number as modules spell it.
func leb(n uint32) []byte {
	var out []byte
	for ; n >= 0x80; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(out, byte(n))
}

// TestAProcessIsBoundedInAndOut by the limits of its entry.
func TestAProcessIsBoundedInAndOut(t *testing.T) {
	for name, s := range map[string]Source{
		Process: {Process: []string{zooBuilt.process}},
		Exec:    {Exec: []string{script(t, speaks(`{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"reward\":1,\"explanation\":\"$long\"}}`))}},
	} {
		s.Key, s.Limits = "judger/wild", Limits{In: 10_000, Out: 10_000}
		r, _ := load(t, s)
		j := open(t, r, "wild")
		_, err := j.Judge(t.Context(), judgeRequest(`{"task":"`+strings.Repeat("x", 10_000)+`"}`))
		assert.Contains(t, fails(t, err, TooLarge).Error(), "is over the limit of 10000; raise limits: {in: ...} of the plugin", name)
		_, err = ask(j, "flood")
		assert.Contains(t, fails(t, err, TooLarge).Error(), "is over the limit of 10000; raise limits: {out: ...} of the plugin", name)
	}
}

func TestCallsInFlightByDefault(t *testing.T) {
	process, err := newTestProcess(t, Source{Key: "judger/a", Process: []string{zooBuilt.process}})
	require.NoError(t, err)
	assert.Equal(t, 2*runtime.GOMAXPROCS(0), cap(process.slots))
}

func newTestProcess(t *testing.T, s Source) (*process, error) {
	r, _ := newRegistry(t)
	p, err := r.loadProcess(t.Context(), s)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = p.close(context.Background()) })
	return p.(*process), nil
}

// speaks is a shell script that answers every request with a text, in which
// $id is the request's and $long are 20,000 letters.
func speaks(answer string) string {
	return `long=$(printf '%020000d' 0)
while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *'"method":"describe"'*|*'"method":"open"'*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no\"}}" ;;
    *) echo "` + answer + `" ;;
  esac
done
`
}
