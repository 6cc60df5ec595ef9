package openai

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/dev/engine"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// engines are the stand-ins that report ids to prompts that come rendered.
var engines = map[string]engine.Options{
	"vllm":               {Kind: engine.VLLM},
	"sglang":             {Kind: engine.SGLang},
	"sglang incremental": {Kind: engine.SGLang, Incremental: true},
	"lmdeploy":           {Kind: engine.LMDeploy},
}

func TestIDsAndLogprobsAgree(t *testing.T) {
	for name, o := range engines {
		for _, capture := range []string{"exact", "reported"} {
			t.Run(name+" "+capture, func(t *testing.T) {
				e, url := stand(t, o)
				u := open(t, Options{Kind: o.Kind, BaseURL: url, Capture: capture, OwnFormat: true})
				for _, text := range []string{"What is 23+19?", "hi"} {
					r := ask(e, text)
					want := slices.Clone(r.PromptIDs)
					if capture == "reported" {
						r.PromptIDs = nil
					}
					g := generate(t, u, r)
					require.NoError(t, g.err)
					assert.Equal(t, want, g.prompt)
					agrees(t, e, r, g, g.text)
					assert.Contains(t, g.text, "<|im_end|>", "the stop of the template stays")
					assert.Equal(t, upstream.Finish{Raw: "stop", Reason: chat.FinishStop}, g.last.Finish)
					if o.Kind == engine.SGLang {
						assert.Equal(t, "w-7", g.weights)
					}
				}
			})
		}
	}
}

func TestStops(t *testing.T) {
	for name, o := range engines {
		t.Run(name, func(t *testing.T) {
			e, url := stand(t, o)
			u := open(t, Options{Kind: o.Kind, BaseURL: url, Capture: "exact", OwnFormat: true})
			r := ask(e, "Count")
			r.Sampling.Stop = []string{"STOP", "STALE", "three four"}
			g := generate(t, u, r)
			require.NoError(t, g.err)
			assert.Equal(t, "one two ", g.text, "the client's stop is no part of the text")
			assert.Equal(t, e.Tokenizer().Encode(nil, "one two STOP", true), g.ids, "its ids were sampled")
			assert.Equal(t, "STOP", g.last.StopSequence)
			assert.Equal(t, chat.FinishStopSequence, g.last.Finish.Reason)

			r = ask(e, "Talk")
			most := 5
			r.Sampling.MaxTokens, r.Sampling.Stop = &most, []string{"ry lion"}
			g = generate(t, u, r)
			require.NoError(t, g.err)
			assert.Equal(t, "a ver", g.text, "what may have become a stop comes out")
			assert.Equal(t, chat.FinishLength, g.last.Finish.Reason)
			assert.Len(t, g.ids, 5)
		})
	}
}

func TestLogprobsThatTheEngineLacksAreNaN(t *testing.T) {
	for name, o := range engines {
		t.Run(name, func(t *testing.T) {
			e, url := stand(t, o)
			u := open(t, Options{Kind: o.Kind, BaseURL: url, Capture: "exact", OwnFormat: true})
			g := generate(t, u, ask(e, "Blank"))
			require.NoError(t, g.err)
			require.NotEmpty(t, g.logprobs)
			assert.True(t, isNaN(g.logprobs[0]))
		})
	}
}

// TestRequests holds what is sent against what each engine needs.
func TestRequests(t *testing.T) {
	temperature, top, seed, most := 0.7, 20, int64(9), 50
	full := chat.Sampling{Temperature: &temperature, TopK: &top, Seed: &seed, MaxTokens: &most, Stop: []string{"END", "<|im_end|>"}}
	for _, c := range []struct {
		name, kind, path, want string
		ids                    bool
	}{
		{"vllm exact", engine.VLLM, "/v1/completions", `{"model":"m","max_tokens":50,"min_p":0,"repetition_penalty":1,"temperature":0.7,"top_p":1,"top_k":20,"seed":9,
			"stop":["<|im_end|>","<|endoftext|>","END"],"skip_special_tokens":false,"spaces_between_special_tokens":false,
			"include_stop_str_in_output":true,"add_special_tokens":false,"return_token_ids":true,"logprobs":0,
			"return_tokens_as_token_ids":true,"stream":true,"stream_options":{"include_usage":true}}`, true},
		{"openai text", engine.OpenAI, "/v1/completions", `{"model":"m","max_tokens":50,"temperature":0.7,"top_k":20,"seed":9,
			"stop":["<|im_end|>","<|endoftext|>","END"],"stream":true,"stream_options":{"include_usage":true}}`, false},
		{"sglang exact", engine.SGLang, "/generate", `{"sampling_params":{"max_new_tokens":50,"min_p":0,"repetition_penalty":1,"temperature":0.7,"top_p":1,"top_k":20,
			"sampling_seed":9,"stop":["<|im_end|>","<|endoftext|>","END"],"no_stop_trim":true,"skip_special_tokens":false,
			"spaces_between_special_tokens":false},"return_logprob":true,"stream":true}`, true},
		{"lmdeploy exact", engine.LMDeploy, "/generate", `{"max_tokens":50,"min_p":0,"repetition_penalty":1,"temperature":0.7,"top_p":1,"top_k":20,"seed":9,
			"stop":["<|im_end|>","<|endoftext|>","END"],"include_stop_str_in_output":true,"skip_special_tokens":false,
			"spaces_between_special_tokens":false,"return_logprob":true,"stream":true}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, url := stand(t, engine.Options{Kind: c.kind, Key: key})
			capture := "text"
			if c.ids {
				capture = "exact"
			}
			u := open(t, Options{Kind: c.kind, BaseURL: url + "/v1/", APIKey: key, Capture: capture, OwnFormat: true})
			r := ask(e, "hi")
			r.Sampling = full
			if r.WantIDs = c.ids; !c.ids {
				r.PromptIDs = nil
			}
			require.NoError(t, generate(t, u, r).err)
			seen := e.Seen()[len(e.Seen())-1]
			assert.Equal(t, c.path, seen.Path)
			assert.Equal(t, "Bearer "+key, seen.Header.Get("Authorization"))
			assert.Equal(t, "s-1", seen.Header.Get("X-Session-Id"))
			if c.kind == engine.SGLang {
				assert.Equal(t, "s-1", seen.Header.Get("X-Smg-Routing-Key"))
			}
			var body map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(seen.Body, &body))
			for _, name := range []string{"prompt", "input_ids"} {
				if raw, ok := body[name]; ok && c.ids {
					var ids []int32
					require.NoError(t, json.Unmarshal(raw, &ids))
					assert.Equal(t, r.PromptIDs, ids)
				} else if ok {
					assert.Equal(t, r.Prompt, gjson.ParseBytes(raw).Str)
				}
				delete(body, name)
			}
			rest, err := json.Marshal(body)
			require.NoError(t, err)
			assert.JSONEq(t, c.want, string(rest))
		})
	}
}

func TestRoomInTheContext(t *testing.T) {
	e, url := stand(t, engine.Options{Kind: engine.VLLM, Context: 100})
	u := open(t, Options{Kind: KindVLLM, BaseURL: url, Capture: "exact", OwnFormat: true})
	assert.Equal(t, 100, upstream.InfoOf(u).Context)
	assert.Equal(t, "0.0.0+stand-in", upstream.InfoOf(u).Version)
	r := ask(e, "hi")
	huge := 64000
	for _, most := range []*int{nil, &huge} {
		r.Sampling.MaxTokens = most
		require.NoError(t, generate(t, u, r).err)
		seen := e.Seen()
		assert.EqualValues(t, 100-len(r.PromptIDs), gjson.GetBytes(seen[len(seen)-1].Body, "max_tokens").Int())
	}
	long := make([]int32, 200)
	r.PromptIDs = long
	var refused *upstream.StatusError
	require.ErrorAs(t, generate(t, u, r).err, &refused)
	assert.Equal(t, 400, refused.Status)
	assert.Contains(t, refused.Message, "maximum context length is 100 tokens")
}

func TestTextFromACompatibleServer(t *testing.T) {
	e, url := stand(t, engine.Options{Kind: engine.OpenAI})
	u := open(t, Options{Kind: KindOpenAI, BaseURL: url, OwnFormat: true})
	r := ask(e, "What is 1+2?")
	r.PromptIDs, r.WantIDs = nil, false
	g := generate(t, u, r)
	require.NoError(t, g.err)
	assert.Contains(t, g.text, "Add tham: é\n</think>")
	assert.NotContains(t, g.text, "<|im_end|>")
	assert.Empty(t, g.ids)
	assert.NotZero(t, g.last.PromptTokens)
	assert.NotZero(t, g.last.OutputTokens)
}

func TestCount(t *testing.T) {
	for _, kind := range []string{engine.VLLM, engine.SGLang, engine.LMDeploy} {
		e, url := stand(t, engine.Options{Kind: kind})
		u := open(t, Options{Kind: kind, BaseURL: url, OwnFormat: true})
		r := ask(e, "hi")
		n, err := u.(upstream.Counter).Count(t.Context(), &upstream.Request{Prompt: r.Prompt})
		require.NoError(t, err)
		assert.Equal(t, len(r.PromptIDs), n, kind)
	}
	_, url := stand(t, engine.Options{Kind: engine.VLLM})
	u := open(t, Options{Kind: KindVLLM, BaseURL: url})
	r := talk("What is 1+2?")
	n, err := u.(upstream.Counter).Count(t.Context(), r)
	require.NoError(t, err)
	g := generate(t, u, r)
	require.NoError(t, g.err)
	assert.Equal(t, g.last.PromptTokens, n, "counted before as used later")

	_, url = stand(t, engine.Options{Kind: engine.OpenAI})
	_, err = open(t, Options{Kind: KindOpenAI, BaseURL: url}).(upstream.Counter).Count(t.Context(), r)
	require.ErrorIs(t, err, upstream.ErrNoCount)
}

// TestGuides: each engine is told of a schema in its own way, and one that
// knows none isn't told.
func TestGuides(t *testing.T) {
	schema := []byte(`{"type":"object"}`)
	r := &upstream.Request{Prompt: "x", PromptIDs: []int32{1}, Guide: schema}
	for version, want := range map[string]string{"0.12.3": "structured_outputs.json", "0.11.0": "structured_outputs.json", "0.10.2": "guided_json", "": "structured_outputs.json", "1.0": "structured_outputs.json"} {
		s := &server{o: Options{Kind: KindVLLM}, info: upstream.Info{Version: version}, engine: true}
		body := s.completion(r)
		require.True(t, gjson.ValidBytes(body))
		assert.Equal(t, string(schema), gjson.GetBytes(body, want).Raw, version)
		assert.Equal(t, want == "guided_json", gjson.GetBytes(body, "guided_json").Exists())
	}
	s := &server{o: Options{Kind: KindSGLang}}
	assert.Equal(t, string(schema), gjson.GetBytes(s.sglangBody(r), "sampling_params.json_schema").Str)
	for _, body := range [][]byte{
		(&server{o: Options{Kind: KindLMDeploy}}).lmdeployBody(r), (&server{o: Options{Kind: KindOpenAI}}).completion(r),
		(&server{o: Options{Kind: KindVLLM}}).completion(&upstream.Request{Prompt: "x"}),
	} {
		assert.NotContains(t, string(body), "json")
	}
}
