package command

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/invoker"
)

var session = invoker.Session{ID: "s-1", BaseURL: "http://127.0.0.1:1", Token: "tok", Model: "policy", Workspace: "/w", Home: "/h"}

func plan(t *testing.T, s invoker.Session, input string) (*invoker.Plan, error) {
	t.Helper()
	c, err := New(Config{})
	require.NoError(t, err)
	return c.Plan(t.Context(), &invoker.PlanRequest{Input: []byte(input), Session: s})
}

func TestPlan(t *testing.T) {
	p, err := plan(t, session, `{"command":["codex","exec","-m","$PENSTOCK_MODEL","what is ${1}?"],
		"env":{"OPENAI_BASE_URL":"${PENSTOCK_BASE_URL}/v1","KEY":"$PENSTOCK_TOKEN"},
		"stdin":"in $PENSTOCK_WORKSPACE","files":{"~/.codex/config.toml":"home = \"$PENSTOCK_HOME\"","a.txt":"x"}}`)
	require.NoError(t, err)
	assert.Equal(t, []string{"codex", "exec", "-m", "policy", "what is ${1}?"}, p.Argv)
	assert.Equal(t, map[string]string{
		"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "KEY": "tok",
		"PENSTOCK_BASE_URL": "http://127.0.0.1:1", "PENSTOCK_TOKEN": "tok", "PENSTOCK_MODEL": "policy",
		"PENSTOCK_SESSION": "s-1", "PENSTOCK_WORKSPACE": "/w", "PENSTOCK_HOME": "/h",
	}, p.Env)
	assert.Equal(t, "in /w", p.Stdin)
	assert.Equal(t, []invoker.File{{Path: "a.txt", Data: "x"}, {Path: "~/.codex/config.toml", Data: `home = "/h"`}}, p.Files)
	assert.Equal(t, invoker.Text, p.Output)
	assert.False(t, p.HoldFirstCall)
}

func TestWithoutModel(t *testing.T) {
	s := invoker.Session{ID: "s-1", Workspace: "/w", Home: "/h"}
	p, err := plan(t, s, `{"command":["make","test"]}`)
	require.NoError(t, err)
	assert.NotContains(t, p.Env, "PENSTOCK_TOKEN")
	_, err = plan(t, s, `{"command":["x"],"env":{"A":"$PENSTOCK_BASE_URL"}}`)
	assert.ErrorContains(t, err, "$PENSTOCK_BASE_URL is used, but the stage names no model")
}

func TestPlanRefuses(t *testing.T) {
	_, err := plan(t, session, `{"command":[]}`)
	assert.ErrorContains(t, err, "command is empty")
	_, err = plan(t, session, `{"argv":["x"]}`)
	assert.ErrorContains(t, err, "/argv: unknown field")
}

func TestConfig(t *testing.T) {
	for want, c := range map[string]Config{
		`output is "xml"`:           {Output: "xml"},
		"text_at is a JSON Pointer": {TextAt: "/a"},
		"such as /result":           {Output: "json", TextAt: "result"},
		`"x" is no exit code`:       {ExitCodes: map[string]string{"x": "ok"}},
		`"fine" is none of ok`:      {ExitCodes: map[string]string{"3": "fine"}},
	} {
		_, err := New(c)
		assert.ErrorContains(t, err, want)
	}
}

func TestResult(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		in     invoker.ResultRequest
		want   invoker.Result
	}{
		"text":              {Config{}, invoker.ResultRequest{Stdout: "a\nb\r\n\n"}, invoker.Result{Text: "a\nb", ExitStatus: "ok"}},
		"failure":           {Config{}, invoker.ResultRequest{Exit: 3, Stdout: "a", Stderr: "why\n"}, invoker.Result{Text: "a", ExitStatus: "agent_error", Error: "the program ended with exit code 3; its stderr ends: why"}},
		"signal":            {Config{}, invoker.ResultRequest{Exit: -1, Signal: "SIGKILL"}, invoker.Result{ExitStatus: "agent_error", Error: "the program ended with signal SIGKILL"}},
		"a code that is ok": {Config{ExitCodes: map[string]string{"3": "ok"}}, invoker.ResultRequest{Exit: 3, Stdout: "a"}, invoker.Result{Text: "a", ExitStatus: "ok"}},
		"a code of its own": {Config{ExitCodes: map[string]string{"53": "max_turns"}}, invoker.ResultRequest{Exit: 53}, invoker.Result{ExitStatus: "max_turns", Error: "the program ended with exit code 53"}},
		"json":              {Config{Output: "json", TextAt: "/out/-1/a~1b"}, invoker.ResultRequest{Stdout: ` {"out":[1,{"a/b":"é"}]} `}, invoker.Result{Text: "é", ExitStatus: "ok"}},
		"json, no string":   {Config{Output: "json", TextAt: "/n"}, invoker.ResultRequest{Stdout: `{"n":{"a":1}}`}, invoker.Result{Text: `{"a":1}`, ExitStatus: "ok"}},
		"json, absent":      {Config{Output: "json", TextAt: "/x"}, invoker.ResultRequest{Stdout: `{"n":null}`}, invoker.Result{ExitStatus: "agent_error", Error: `the output is no JSON with a value at "/x"`}},
		"no json":           {Config{Output: "json"}, invoker.ResultRequest{Stdout: `oops`}, invoker.Result{ExitStatus: "agent_error", Error: `the output is no JSON with a value at ""`}},
		"jsonl":             {Config{Output: "jsonl", TextAt: "/text"}, invoker.ResultRequest{Stdout: "{\"text\":\"1\"}\n{\"text\":\"2\"}\nwarn\n{\"done\":true}\n"}, invoker.Result{Text: "2", ExitStatus: "ok"}},
		"jsonl, none":       {Config{Output: "jsonl", TextAt: "/text"}, invoker.ResultRequest{Stdout: "\n\nwarn\n"}, invoker.Result{ExitStatus: "agent_error", Error: `no line of the output is JSON with a value at "/text"`}},
	} {
		t.Run(name, func(t *testing.T) {
			i, err := New(c.config)
			require.NoError(t, err)
			got, err := i.Result(t.Context(), &c.in)
			require.NoError(t, err)
			assert.Equal(t, &c.want, got)
		})
	}
}

func FuzzAt(f *testing.F) {
	f.Add(`{"a":[{"b":"c"}]}`, "/a/-1/b")
	f.Fuzz(func(_ *testing.T, data, pointer string) {
		if pointer == "" || pointer[0] == '/' {
			at([]byte(data), pointer)
		}
	})
}
