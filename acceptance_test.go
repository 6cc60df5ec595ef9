package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/trace"
)

// asker is a client of a server in one dialect.
type asker struct {
	name, path, body string // body has places for the text and for the tools
	tool             string // has places for name and schema
	names, args      string // gjson paths of the calls in a reply
}

var askers = []asker{
	{
		"anthropic", "/v1/messages", `{"model":"policy","max_tokens":500,"messages":[{"role":"user","content":%q}],"tools":[%s]}`,
		`{"name":%q,"input_schema":%s}`, `content.#(type=="tool_use")#.name`, `content.#(type=="tool_use")#.input`,
	}, {
		"openaichat", "/v1/chat/completions", `{"model":"policy","messages":[{"role":"user","content":%q}],"tools":[%s]}`,
		`{"type":"function","function":{"name":%q,"parameters":%s}}`, `choices.0.message.tool_calls.#.function.name`, `choices.0.message.tool_calls.#.function.arguments`,
	}, {
		"responses", "/v1/responses", `{"model":"policy","input":%q,"tools":[%s]}`,
		`{"type":"function","name":%q,"parameters":%s}`, `output.#(type=="function_call")#.name`, `output.#(type=="function_call")#.arguments`,
	},
}

func (a *asker) ask(t *testing.T, s *server, o opened, text string) gjson.Result {
	t.Helper()
	tools := []string{
		fmt.Sprintf(a.tool, "add", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a","b"],"additionalProperties":false}`),
		fmt.Sprintf(a.tool, "now", `{"type":"object","properties":{}}`),
	}
	r, err := http.NewRequest(http.MethodPost, s.url+a.path, strings.NewReader(fmt.Sprintf(a.body, text, strings.Join(tools, ","))))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+o.Token)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode, "%s", got)
	return gjson.ParseBytes(got)
}

// TestSeed10aCases18To20BadCalls: what a model gets wrong about tools is
// repaired or passed on by the same rules in each dialect, and the record has
// what was sampled, what was parsed, what was served, and what was found wrong.
func TestSeed10aCases18To20BadCalls(t *testing.T) {
	s := serve(t, filepath.Join("testdata", "acceptance", "pipeline.yaml"))
	sessions := s.open(t, "policy", len(askers))
	texts := []string{"wrong arguments", "no arguments", "unknown tool", "whole and cut", "prose"}
	for i, a := range askers {
		for _, text := range texts {
			got := a.ask(t, s, sessions[i], text)
			names, args := got.Get(a.names).Array(), got.Get(a.args).Array()
			switch text {
			case "wrong arguments":
				require.Len(t, names, 1, got.Raw)
				assert.Equal(t, "add", names[0].String(), a.name)
				assert.JSONEq(t, `{"a":"1"}`, args[0].String(), a.name)
			case "no arguments":
				require.Len(t, args, 1, got.Raw)
				assert.JSONEq(t, `{}`, args[0].String(), a.name)
			case "unknown tool":
				require.Len(t, names, 1, got.Raw)
				assert.Equal(t, "launch", names[0].String(), a.name)
			case "whole and cut":
				require.NotEmpty(t, args, got.Raw)
				assert.JSONEq(t, `{"a":"1"}`, args[0].String(), a.name)
			case "prose":
				assert.Empty(t, names, got.Raw)
				assert.Contains(t, got.Raw, "to begin a call, and then its function.")
			}
		}
	}
	s.stop(t)
	st := s.store(t)
	for i, a := range askers {
		calls, err := st.Calls(t.Context(), sessions[i].ID)
		require.NoError(t, err)
		require.Len(t, calls, len(texts))
		for k, c := range calls {
			assert.Equal(t, trace.CallOK, c.Status, "%s: %s", a.name, texts[k])
			assert.NotEmpty(t, c.Raw)
			assert.Len(t, c.Logprobs, len(c.SampledIDs))
		}
		badCallsAreRecorded(t, calls)
	}
}

func badCallsAreRecorded(t *testing.T, calls []*trace.Call) {
	t.Helper()
	kinds := func(c *trace.Call) (out []string) {
		for _, w := range c.Warnings {
			out = append(out, w.Kind)
		}
		return out
	}
	wrong := calls[0]
	require.Len(t, wrong.Edits, 1)
	assert.JSONEq(t, `{"a":"1","mood":"good"}`, string(wrong.Parsed.Parts[0].Arguments), "what was parsed stands beside what was served")
	assert.Equal(t, "Add", wrong.Parsed.Parts[0].Name)
	assert.JSONEq(t, `{"a":"1"}`, string(wrong.Served.Parts[0].Arguments))
	rules := gjson.GetBytes(wrong.Edits[0].Report, "#.rule").String()
	for _, rule := range []string{"unknown_keys", "missing_required", "name_case"} {
		assert.Contains(t, rules, rule)
	}
	assert.Empty(t, calls[1].Edits, "an empty schema takes nothing away")
	assert.Contains(t, kinds(calls[2]), "unknown_tool")
	assert.Contains(t, kinds(calls[3]), "incomplete_call")
	assert.Equal(t, "length", calls[3].Finish)
	assert.Contains(t, calls[4].Raw, "<tool_call>")
}

// hasNoToken looks for secrets in the files of a run folder.
func hasNoToken(t *testing.T, dir string, secrets ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, secret := range secrets {
			assert.False(t, bytes.Contains(b, []byte(secret)), "%s holds a token", path)
		}
		return err
	})
	require.NoError(t, err)
}

// TestTokensAreNotStored: neither the session's token nor the operator's is in
// a run folder whose gateway has ended, and the operator's opens no model.
func TestTokensAreNotStored(t *testing.T) {
	s := serve(t, filepath.Join("testdata", "acceptance", "pipeline.yaml"))
	o := s.open(t, "policy", 1)[0]
	askers[0].ask(t, s, o, "prose")
	r, err := http.NewRequest(http.MethodPost, s.url+"/v1/messages", strings.NewReader(`{}`))
	require.NoError(t, err)
	r.Header.Set("X-Api-Key", s.token)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	res.Body.Close()
	assert.Equal(t, 401, res.StatusCode)
	s.stop(t)
	hasNoToken(t, s.out, o.Token, s.token)
}
