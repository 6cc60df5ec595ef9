package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	coreformat "github.com/penstock-dev/penstock/core/format"
	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

// modelTemplates are templates of core/jinja/testdata/models, and the formats
// of these models.
var modelTemplates = map[string]string{
	"qwen3-0.6b": "hermes", "qwen3-coder-30b": "qwen3_coder", "granite4-latest": "granite4", "deepseek-v3.1-latest": "deepseek_v31",
	"qwen2.5-0.5b": "qwen2p5", "granite3.3-2b": "granite3p3", "phi4-mini-3.8b": "phi4mini", "rnj-1-latest": "hermes",
}

func modelTemplate(t *testing.T, name string) *coreformat.Template {
	t.Helper()
	file, err := coreformat.ReadTemplate(filepath.Join("core", "jinja", "testdata", "models", name+".jinja"))
	require.NoError(t, err)
	eos := map[string]string{"granite4-latest": "<|end_of_text|>", "deepseek-v3.1-latest": "<｜end▁of▁sentence｜>", "rnj-1-latest": "<|eot_id|>"}[name]
	file.Special = map[string]string{"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": eos}
	return file
}

func shippedFormat(t *testing.T, name string) format.Format {
	t.Helper()
	for _, c := range component.Registered() {
		if c.Kind == component.Format && c.Name == name {
			f, err := c.Open(t.Context(), nil)
			require.NoError(t, err)
			return f.(format.Format)
		}
	}
	require.Fail(t, "no format "+name)
	return nil
}

// TestTemplatesNameTheirFormat: auto picks the right format by real templates.
func TestTemplatesNameTheirFormat(t *testing.T) {
	for name, want := range modelTemplates {
		got, err := coreformat.Detect(modelTemplate(t, name).Tools)
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
}

// TestTemplatesOfOneFamilyAreToldApart: auto tells formats that share markers by
// those that only one of their models' templates has.
func TestTemplatesOfOneFamilyAreToldApart(t *testing.T) {
	for template, want := range map[string]string{
		"[TOOL_CALLS] [TOOL_RESULTS] {\"content\": ":                                                       "mistral_v3",
		"[TOOL_CALLS] [TOOL_RESULTS]{\"content\": ":                                                        "mistral_nemo",
		"[TOOL_CALLS] [CALL_ID] [ARGS] [TOOL_CONTENT]":                                                     "mistral_v11",
		"[TOOL_CALLS] [ARGS] [TOOL_RESULTS]":                                                               "mistral_v13",
		"[TOOL_CALLS] [ARGS] [MODEL_SETTINGS]":                                                             "mistral_v15",
		"｜DSML｜ function_calls> message['tool_calls']":                                                     "deepseek_v32",
		"｜DSML｜ tool_calls> message['tool_calls']":                                                         "deepseek_v4",
		"]<]minimax[>[ <tool_call> <response>":                                                             "minimax_m3",
		"<beginning_of_sentence> <tool_calls>":                                                             "minimax_m1",
		"<arg_key> </think> <assistant>":                                                                   "laguna",
		"<arg_key> </think> <|assistant|>":                                                                 "glm47",
		"<function= <parameter= <think> <|im_start|>tool_response\\n <tool_response> in JSONSchema format": "step3p5",
		"<function= <parameter= <think> <tool_response>":                                                   "qwen3p5",
		"<tool_call>\\n{ You are a function calling AI model":                                              "hermes3",
		"<|im_start|> List of tools: [":                                                                    "lfm2p5",
		"<|im_start|> List of tools: <|tool_list_start|>[":                                                 "lfm2",
		"<|tool_call|> <|start_of_role|>tools <|start_of_role|>":                                           "granite",
		"<|tool_call|> <|start_of_role|>available_tools<|end_of_role|> <response></response>":              "granite3p3",
	} {
		got, err := coreformat.Detect(template)
		require.NoError(t, err, template)
		assert.Equal(t, want, got, template)
	}
}

// TestFormatsRenderAsTemplates: a format's prompts, and its tails, are those of
// a model's own template, run by our Jinja.
func TestFormatsRenderAsTemplates(t *testing.T) {
	files, err := filepath.Glob("plugins/formats/testdata/golden/chats/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range []string{"qwen3-0.6b", "granite4-latest"} {
		ours := shippedFormat(t, modelTemplates[name])
		theirs, err := coreformat.OpenTemplate(t.Context(), ours, modelTemplates[name], modelTemplate(t, name))
		require.NoError(t, err, name)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var c chat.Conversation
			require.NoError(t, json.Unmarshal(data, &c))
			what := name + " " + strings.TrimSuffix(filepath.Base(file), ".json")
			r := &format.RenderRequest{Chat: &c}
			want, err := theirs.Render(t.Context(), r)
			require.NoError(t, err, what)
			got, err := ours.Render(t.Context(), r)
			require.NoError(t, err, what)
			assert.Equal(t, format.Text(want.Segments), format.Text(got.Segments), what)
			assert.Equal(t, want.State, got.State, what)
			for k, m := range c.Messages {
				if m.Role != chat.Assistant {
					continue
				}
				want, err := theirs.Tail(t.Context(), r, k, format.EndedStop)
				require.NoError(t, err, what)
				got, err := ours.Tail(t.Context(), r, k, format.EndedStop)
				require.NoError(t, err, what)
				if want.Unstable == "" && got.Unstable == "" {
					assert.Equal(t, format.Text(want.Segments), format.Text(got.Segments), "%s, message %d", what, k)
				}
			}
		}
	}
}

// TestFormatCasesThroughTransports: all formats parse in a process and in a
// WASM module as they do here, whole and split. Of our own cases those are
// taken whose format would have none; the long form of the tests takes all.
func TestFormatCasesThroughTransports(t *testing.T) {
	var all []cases.Case
	for _, name := range []string{"toolcalls.jsonl", "own.jsonl"} {
		data, err := os.ReadFile(filepath.Join("plugins", "formats", "testdata", name))
		require.NoError(t, err)
		read, err := cases.Read(name, bytes.NewReader(data))
		require.NoError(t, err)
		seen := map[string]bool{}
		for _, c := range all {
			seen[c.Format] = true
		}
		for _, c := range read {
			if !seen[c.Format] || name == "toolcalls.jsonl" || os.Getenv("PENSTOCK_SOAK") != "" {
				all = append(all, c)
			}
			seen[c.Format] = true
		}
	}
	cache := os.Getenv("PENSTOCK_CACHE") // builds are kept between runs
	if cache == "" {
		cache = t.TempDir()
	}
	dir, err := filepath.Abs("plugins/formats/serve")
	require.NoError(t, err)
	for transport, source := range map[string]plugin.Source{plugin.Process: {ProcessGo: dir}, plugin.Wasm: {WasmGo: dir}} {
		t.Run(transport, func(t *testing.T) {
			far := plugin.New(plugin.Options{CacheDir: cache})
			t.Cleanup(func() { require.NoError(t, far.Close(context.Background())) })
			opened := map[string]format.Format{}
			for _, c := range all {
				f := opened[c.Format]
				if f == nil {
					source.Key = component.Format + "/" + c.Format
					require.NoError(t, far.Add(t.Context(), source))
					f, err = far.Format(t.Context(), c.Format, nil)
					require.NoError(t, err)
					opened[c.Format] = f
				}
				assert.NoError(t, cases.Run(t.Context(), f, c, 1), c.ID)
			}
			for _, s := range format.Shipped() {
				assert.Contains(t, opened, s.Name, "it has no case")
			}
		})
	}
}
