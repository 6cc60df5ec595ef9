package plugin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/sdktest"
	"github.com/penstock-dev/penstock/sdk/trial"
)

// noCache keeps Python from writing beside its sources.
var noCache = []string{"PYTHONDONTWRITEBYTECODE=1"}

func python(t testing.TB) []string {
	path, err := filepath.Abs("testdata/exec/zoo.py")
	require.NoError(t, err)
	return []string{"python3", path}
}

func TestPythonJudgersAndHooks(t *testing.T) {
	r, logged := load(t, Source{Key: "judger/tame", Exec: python(t), Env: noCache})
	for _, key := range []string{"judger/vote", "hook/shout"} {
		require.NoError(t, r.Add(t.Context(), Source{Key: key, Exec: python(t), Env: noCache}))
	}
	assert.Equal(t, Exec, r.Transport("judger", "tame"))
	sdktest.Judger(t, func(ctx context.Context, config json.RawMessage) (judger.Judger, error) {
		return r.Judger(ctx, "tame", config)
	}, []sdktest.Case{
		{Name: "equal", Request: `{"task":{"answer":"é"},"rollout":{"final_text":"é","tool_calls":[{},{}]}}`,
			Want: `{"reward":1,"components":{"calls":2},"explanation":"got é","status":"scored"}`},
		{Name: "other, over lines", Request: "{\n\"task\": {\"answer\": \"4\"},\n\"rollout\":{\"final_text\":\"5\"}}",
			Want: `{"reward":0,"components":{"calls":0},"explanation":"got 5","status":"scored"}`},
		{Name: "config", Config: `{"ignore_case":true}`, Request: `{"task":{"answer":"A"},"rollout":{"final_text":"a"}}`,
			Want: `{"reward":1,"components":{"calls":0},"explanation":"got a","status":"scored"}`},
		{Name: "skip", Request: `{"rollout":{"final_text":"skip"}}`, Want: `{"reward":null,"explanation":"nothing to see","status":"skipped"}`},
		{Name: "exception", Request: `{"rollout":{"final_text":"error"}}`, Error: "plugin judger/tame: judge: ValueError: can't tell"},
		{Name: "wrong config", Config: `{"ignore_case":1}`, Request: `{}`, Error: "/ignore_case: is number, want boolean"},
		{Name: "refused config", Config: `{"weight":-1}`, Request: `{}`, Error: "/weight: is negative"},
		{Name: "large, by file", Request: `{"task":{"answer":"` + strings.Repeat("x", maxInline) + `"},"rollout":{"final_text":"a"}}`,
			Want: `{"reward":0,"components":{"calls":0},"explanation":"got a","status":"scored"}`},
	})
	_, err := open(t, r, "tame").Judge(t.Context(), judgeRequest(`{"rollout":{"final_text":"again"}}`))
	var e *component.Error
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Retryable)
	assert.Eventually(t, func() bool { return strings.Contains(logged.String(), `msg="judging é" plugin=judger/tame`) }, time.Minute, 5*time.Millisecond)

	sdktest.Judger(t, func(ctx context.Context, config json.RawMessage) (judger.Judger, error) {
		return r.Judger(ctx, "vote", config)
	}, []sdktest.Case{{Name: "group", Request: `{"rollouts":[{"final_text":"a"},{"final_text":"b"},{"final_text":"a"}]}`,
		Want: `[{"reward":1,"status":"scored"},{"reward":0,"status":"scored"},{"reward":1,"status":"scored"}]`}})
	sdktest.Hook(t, func(ctx context.Context, config json.RawMessage) (hook.Hook, error) {
		return r.Hook(ctx, "shout", config)
	}, []sdktest.Case{{Name: "hook", Request: `{"point":"request","request":{"messages":[{"role":"user","parts":[{"type":"text","text":"hi"}]}]}}`,
		Want: `{"action":"replace","value":{"messages":[{"role":"user","parts":[{"type":"text","text":"HI"}]}]}}`}})
}

func TestAnExecProgramThatDiesOrHangsComesBack(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/wild", Exec: python(t), Env: noCache})
	j := open(t, r, "wild")
	_, err := ask(j, "crash")
	e := fails(t, err, Unavailable)
	assert.True(t, e.Retryable)
	assert.Contains(t, e.Error(), "the plugin process died during the call (exit status 3); it wrote: panic: the lion is loose")
	_, err = ask(j, "")
	require.NoError(t, err)
	limits := &j.(remoteJudger).instance.(*execInstance).program.limits
	limits.Timeout = time.Second // for this call alone, as the others may wait for Python to start
	_, err = ask(j, "loop")
	fails(t, err, Timeout)
	limits.Timeout = 0
	_, err = ask(j, "nan")
	assert.Contains(t, fails(t, err, Failed).Error(), "reward is nan, want a finite number")
	v, err := ask(j, "")
	require.NoError(t, err)
	assert.InDelta(t, 1, *v.Reward, 0)
}

func TestCallersOfAnExecProgramTakeTurns(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/tame", Exec: python(t), Env: noCache})
	j := open(t, r, "tame")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			v, err := j.Judge(context.Background(), judgeRequest(`{"task":{"answer":"a"},"rollout":{"final_text":"a"}}`))
			if assert.NoError(t, err) {
				assert.InDelta(t, 1, *v.Reward, 0)
			}
		})
	}
	wg.Wait()
}

func TestTheShortestExecProgramNeedsNoDescribe(t *testing.T) {
	path := script(t, `echo starting
while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
  *'"method":"judge"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"reward":0.5}}' ;;
  *) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}' ;;
  esac
done
`)
	r, logged := load(t, Source{Key: "judger/short", Exec: []string{path}})
	v, err := ask(open(t, r, "short"), "")
	require.NoError(t, err)
	assert.InDelta(t, 0.5, *v.Reward, 0)
	assert.Equal(t, judger.Scored, v.Status)
	assert.Contains(t, logged.String(), "msg=starting", "what is no answer is logged")
	d, err := r.Describe("judger", "short")
	require.NoError(t, err)
	require.NoError(t, ValidateInput(d, json.RawMessage(`{"a":1}`)), "what it takes isn't known")
}

func TestAnExecHookThatDescribesNothingIsGivenItsSettings(t *testing.T) {
	path := script(t, `while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
  *'"method":"open"'*) config=${line#*\"config\":}; config=${config%%\}*}; echo '{"jsonrpc":"2.0","id":'$id',"result":{}}' ;;
  *'"method":"hook_apply"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"action":"deny","reason":"'${config##*:}'"}}' ;;
  *) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}' ;;
  esac
done
`)
	r, _ := load(t, Source{Key: "hook/short", Exec: []string{path}})
	h, err := r.Hook(t.Context(), "short", json.RawMessage(`{"limit":17}`))
	require.NoError(t, err)
	got, err := trial.Answer(t.Context(), h, []byte(`{"point":"request","request":{"messages":[]}}`))
	require.NoError(t, err)
	assert.JSONEq(t, `{"action":"deny","reason":"17"}`, string(got))
}

// What is wrong with an answer is said in the words of JSON.
func TestAnswersOfAWrongKind(t *testing.T) {
	for answer, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"7","result":{}}`:              "its answer can't be read (/id is string, want integer)",
		`{"jsonrpc":"2.0","id":$id}`:                          "its answer can't be read (it has neither result nor error)",
		`{"jsonrpc":"2.0","id":$id,"result":{"reward":"1"}}`:  "the reply is not what judge gives: /reward is string, want number",
		`{"jsonrpc":"2.0","id":$id,"result":{"reward":true}}`: "/reward is bool, want number",
		`{"jsonrpc":"2.0","id":$id,"result":[1]}`:             "it is array, want object",
		`{"jsonrpc":"2.0","id":$id,"error":"it went wrong"}`:  "/error is string, want object",
		`["jsonrpc", 1]`: "it is no JSON object",
		`{"jsonrpc":"2.0","id":$id,"result":{"components":4}}`: "/components is number, want object",
	} {
		path := script(t, `while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
  *'"method":"judge"'*) echo "`+strings.NewReplacer(`"`, `\"`).Replace(answer)+`" ;;
  *) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}' ;;
  esac
done
`)
		r, _ := load(t, Source{Key: "judger/odd", Exec: []string{path}})
		_, err := ask(open(t, r, "odd"), "")
		require.ErrorContains(t, err, want, answer)
		assert.NotContains(t, err.Error(), "Go ", answer)
	}
}

// The exception of a Python program is in the first line of the error, which is
// all that a summary shows.
func TestAPythonProgramThatDiesSaysItsException(t *testing.T) {
	dir := t.TempDir()
	for body, want := range map[string]string{
		"import json\njson.loads('nope')\n":                                             "; it wrote: json.decoder.JSONDecodeError: Expecting value",
		"def f():\n    raise ValueError('first line\\nsecond line')\nf()\n":             "; it wrote: ValueError: first line",
		"try:\n    1 / 0\nexcept Exception:\n    raise KeyError('k')\n":                 "; it wrote: KeyError: 'k'",
		"import sys\nprint('warming up', file=sys.stderr)\nsys.exit('no model here')\n": "; it wrote: no model here",
		"def f(:\n": "; it wrote: SyntaxError:",
	} {
		path := filepath.Join(dir, "dies.py")
		require.NoError(t, os.WriteFile(path, []byte(body), 0o600))
		r := New(Options{CacheDir: t.TempDir()})
		t.Cleanup(func() { require.NoError(t, r.Close(context.Background())) })
		err := r.Add(t.Context(), Source{Key: "judger/dies", Exec: []string{"python3", path}, Env: noCache})
		require.Error(t, err)
		first, _, _ := strings.Cut(err.Error(), "\n")
		assert.Contains(t, first, want)
	}
}

func TestFilesAreInTheDigest(t *testing.T) {
	c := cache{t.TempDir()}
	plain, err := c.program(python(t), nil)
	require.NoError(t, err)
	with, err := c.program(python(t), []string{"../../sdk/python/penstock.py"})
	require.NoError(t, err)
	again, err := c.program(python(t), nil)
	require.NoError(t, err)
	assert.NotEqual(t, plain.sum, with.sum)
	assert.Equal(t, plain.sum, again.sum)
	_, err = c.program(python(t), []string{"no such file"})
	require.ErrorContains(t, err, "files: ")
}

// The judger of the page that explains the messages does what the page says.
func TestTheProgramOfTheProtocolsPageRuns(t *testing.T) {
	page, err := os.ReadFile("../../examples/judger-python/README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "```python\n")
	require.True(t, ok)
	program, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	path := filepath.Join(t.TempDir(), "short.py")
	require.NoError(t, os.WriteFile(path, []byte(program), 0o600))
	r, _ := load(t, Source{Key: "judger/short", Exec: []string{"python3", path}, Env: noCache})
	j := open(t, r, "short")
	for text, want := range map[string]float64{"brief": 1, "by far too long": 0, strings.Repeat("x", maxInline): 0} {
		v, err := j.Judge(t.Context(), judgeRequest(`{"input":{"most":10},"task":{},"rollout":{"final_text":"`+text+`"}}`))
		require.NoError(t, err)
		assert.InDelta(t, want, *v.Reward, 0)
	}
}
