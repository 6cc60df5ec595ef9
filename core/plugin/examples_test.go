package plugin

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/sdktest"
)

// calculator is a folder of the demo.
func calculator(folder string) string {
	dir, err := filepath.Abs("../../examples/calculator/" + folder)
	if err != nil {
		panic(err) // there is no working directory
	}
	return dir
}

// example is a source that builds a folder of the demo either way.
func example(t testing.TB, key, folder, transport string) *Registry {
	s := Source{Key: key}
	if transport == Process {
		s.ProcessGo = calculator(folder)
	} else {
		s.WasmGo = calculator(folder)
	}
	r, _ := load(t, s)
	return r
}

func TestTheDemosJudgerRunsAsBoth(t *testing.T) {
	for _, transport := range []string{Process, Wasm} {
		r := example(t, "judger/exact42", "exact42", transport)
		sdktest.Judger(t, func(ctx context.Context, config json.RawMessage) (judger.Judger, error) {
			return r.Judger(ctx, "exact42", config)
		}, []sdktest.Case{
			{Name: transport + " equal", Request: `{"task":{"answer":"42"},"rollout":{"final_text":" 42\n"}}`, Want: `{"reward":1,"status":"scored"}`},
			{Name: transport + " number", Request: `{"task":{"answer":42},"rollout":{"final_text":"42"}}`, Want: `{"reward":1,"status":"scored"}`},
			{Name: transport + " other", Request: `{"task":{"answer":"42"},"rollout":{"final_text":"it is 42"}}`, Want: `{"reward":0,"status":"scored"}`},
		})
	}
}

func TestTheDemosHookRunsAsBoth(t *testing.T) {
	const before = `{"point":"request","request":{"messages":[` +
		`{"role":"user","parts":[{"type":"text","text":"a kumquat, a Kumquat"}]},` +
		`{"role":"assistant","parts":[{"type":"text","text":"kumquat"}]},` +
		`{"role":"tool","parts":[{"type":"tool_result","id":"1","content":[{"type":"text","text":"kumquat pie"}]}]}],` +
		`"tools":[{"name":"kumquat"}],"sampling":{}}}`
	const after = `{"action":"replace","value":{"messages":[` +
		`{"role":"user","parts":[{"type":"text","text":"a [masked], a Kumquat"}]},` +
		`{"role":"assistant","parts":[{"type":"text","text":"kumquat"}]},` +
		`{"role":"tool","parts":[{"type":"tool_result","id":"1","content":[{"type":"text","text":"[masked]"}]}]}],` +
		`"tools":[{"name":"kumquat"}],"sampling":{}}}`
	for _, transport := range []string{Process, Wasm} {
		r := example(t, "hook/mask", "mask", transport)
		d, err := r.Describe("hook", "mask")
		require.NoError(t, err)
		assert.Equal(t, []string{"request"}, d.Changes)
		sdktest.Hook(t, func(ctx context.Context, config json.RawMessage) (hook.Hook, error) {
			return r.Hook(ctx, "mask", config)
		}, []sdktest.Case{
			{Name: transport + " words", Config: `{"words":["kumquat pie","kumquat"]}`, Request: before, Want: after},
			{Name: transport + " no such word", Config: `{"words":["quince"]}`, Request: before, Want: `{"action":"continue"}`},
			{Name: transport + " no words", Config: `{"words":[]}`, Request: before, Want: `{"action":"continue"}`},
			{Name: transport + " words are needed", Request: before, Error: "missing words"},
		})
	}
}
