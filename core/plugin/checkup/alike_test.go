package checkup

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/plugin/testdata/precompile"
	_ "github.com/penstock-dev/penstock/hooks/all"
	_ "github.com/penstock-dev/penstock/plugins/converters/all"
	_ "github.com/penstock-dev/penstock/plugins/formats"
	_ "github.com/penstock-dev/penstock/plugins/invokers/all"
	_ "github.com/penstock-dev/penstock/plugins/judgers/all"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/schema"
	"github.com/penstock-dev/penstock/sdk/trial"
)

// programs hold all built-ins of a kind.
var programs = map[string]string{
	component.Judger: "plugins/judgers", component.Hook: "hooks", component.Invoker: "plugins/invokers",
	component.Format: "plugins/formats/serve", component.Converter: "plugins/converters",
}

// inModules are the formats that are tried as modules in any case; all are in
// the long form of the tests, as under the race detector each takes seconds.
// Without it every format parses its cases as a module too, in the tests of the
// program itself.
var inModules = []string{"hermes", "qwen3_coder"}

// configs are what some built-ins need to do anything.
var configs = map[string][]string{
	"hook/redact":         {`{"words":["Hi","kiwi"],"kinds":["email"]}`, `{}`},
	"hook/tool-guard":     {`{"rules":[{"action":"deny","tool":"bash","reason":"no"}]}`, `{}`},
	"hook/sanitize-tools": {`{}`, `{"unknown_keys":"reject"}`},
	"judger/answer":       {`{}`, `{"mode":"includes","normalize":["trim","number"]}`, `{"mode":"no such"}`},
	"judger/command":      {`{}`, `{"result":"tap","timeout":"5s"}`, `{"partial":true}`},
	"invoker/command":     {`{}`, `{"output":"jsonl","text_at":"/result"}`},
}

// more are requests to some kinds beside the samples.
var more = map[string][]trial.Case{
	component.Judger: {
		sample("expects", `{"input":{"expect":"4"},"task":{"id":"t1"},"rollout":{"id":"t1~0","final_text":" 4.0\n","exit_status":"ok","tool_calls":[],"messages":[]}}`),
	},
	component.Invoker: {
		sample("plan", `{"input":{"prompt":"hello","command":["echo","$PENSTOCK_TOKEN"]},"task":{"id":"t1"},"session":{"id":"s-1","base_url":"http://127.0.0.1:1","token":"tok","model":"policy","workspace":"/w","home":"/h","max_turns":3,"deadline":"2030-01-01T00:00:00Z"}}`),
		sample("call", `{"input":{"prompt":"hello"},"task":{"id":"t1"},"session":{"id":"s-1","base_url":"http://127.0.0.1:1","token":"tok","model":"policy","workspace":"/w","home":"/h","deadline":"2030-01-01T00:00:00Z","output_schema":{"type":"object"}}}`),
		sample("reply", `{"exit":0,"exit_status":"ok","stdout":"{\"choices\":[{\"message\":{\"content\":\"42\"},\"finish_reason\":\"stop\"}]}"}`),
		sample("json lines", `{"exit":0,"exit_status":"ok","stdout":"{\"type\":\"result\",\"subtype\":\"success\",\"result\":\"42\",\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}\n"}`),
	},
	component.Converter: {
		sample("rows", `{"rows":[{"schema":"penstock.row/1","row":"a/main0/0","task":"t","group":"t","input_ids":[1,2],"loss_mask":[0,1],"logprobs":[null,-0.5],"prompt_len":1,"reward":1,"status":"completed","exit_status":"ok"}]}`),
	},
	component.Format: {
		sample("hermes", `{"text":"Well.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>","tools":[{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}]}`),
		sample("xml", `{"text":"<think>\nhm\n</think>\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>","tools":[{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}]}`),
	},
}

// TestEveryBuiltInIsAlikeOnEveryTransport runs each one compiled in, in a
// process and in a module on the same requests: the replies, and the errors,
// are the same.
func TestEveryBuiltInIsAlikeOnEveryTransport(t *testing.T) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	cache := os.Getenv("PENSTOCK_CACHE") // builds are kept between runs
	if cache == "" {
		cache = t.TempDir()
	}
	for _, kind := range component.Kinds {
		t.Run(kind, func(t *testing.T) {
			own := plugin.New(plugin.Options{CacheDir: cache, Builtin: component.Registered()})
			t.Cleanup(func() { require.NoError(t, own.Close(context.Background())) })
			sources := map[string]plugin.Source{plugin.Process: {ProcessGo: filepath.Join(root, programs[kind])}}
			if kind != component.Converter {
				dir := filepath.Join(root, programs[kind])
				sources[plugin.Wasm] = plugin.Source{WasmGo: dir}
				require.NoError(t, precompile.Modules(t.Context(), cache, precompile.Module{Key: kind + "/" + own.Names(kind)[0], WasmGo: dir}))
			}
			for transport, s := range sources {
				far := plugin.New(plugin.Options{CacheDir: cache})
				t.Cleanup(func() { require.NoError(t, far.Close(context.Background())) })
				for _, name := range own.Names(kind) {
					if transport == plugin.Wasm && kind == component.Format && !slices.Contains(inModules, name) && os.Getenv("PENSTOCK_SOAK") == "" {
						continue
					}
					s.Key = kind + "/" + name
					require.NoError(t, far.Add(t.Context(), s))
					compare(t, transport, kind, name, own, far)
				}
			}
		})
	}
}

func compare(t *testing.T, transport, kind, name string, own, far *plugin.Registry) {
	want, err := own.Describe(kind, name)
	require.NoError(t, err)
	got, err := far.Describe(kind, name)
	require.NoError(t, err)
	assert.Equal(t, want, got, "%s describes itself otherwise in %s", name, transport)
	all := configs[want.ID()]
	if all == nil {
		all = []string{`{}`}
	}
	for _, config := range all {
		for _, c := range append(samples(kind), more[kind]...) {
			c.Config = json.RawMessage(config)
			a, aErr := outcome(t.Context(), own, kind, name, c)
			b, bErr := outcome(t.Context(), far, kind, name, c)
			assert.Equal(t, aErr, bErr, "%s %s: %s", transport, want.ID(), c.Name)
			assert.Equal(t, string(a), string(b), "%s %s: %s", transport, want.ID(), c.Name)
		}
	}
}

// outcome is a reply, or what the component itself said is wrong.
func outcome(ctx context.Context, r *plugin.Registry, kind, name string, c trial.Case) (json.RawMessage, string) {
	instance, err := r.Open(ctx, kind, name, c.Config)
	var reply json.RawMessage
	if err == nil {
		reply, err = trial.Answer(ctx, instance, c.Request)
	}
	var field *schema.Error
	var e *component.Error
	switch {
	case err == nil:
		return reply, ""
	case errors.As(err, &field):
		return nil, field.Error()
	case errors.As(err, &e):
		return nil, e.Message
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return nil, err.Error()
}
