package pipeline

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func loadHooks(t *testing.T) *Pipeline {
	t.Helper()
	src, err := os.ReadFile("testdata/hooks.yaml")
	require.NoError(t, err)
	p, err := load("testdata/hooks.yaml", options(string(src)))
	require.NoError(t, err)
	return p
}

// TestGraphShowsHooksWhereTheyAct: one hook acts at other points under a
// model, under a stage and under a converter.
func TestGraphShowsHooksWhereTheyAct(t *testing.T) {
	p := loadHooks(t)
	golden(t, "testdata/hooksgraph.golden", Graph(p))
	assert.Equal(t, []string{"request"}, p.Models["policy"].Hooks[0].Changes)
	assert.Equal(t, []string{"stage.before"}, p.Stages[0].Hooks[0].Changes)
	assert.Equal(t, []string{"stage.after"}, p.Stages[0].Hooks[0].Observes)
	assert.True(t, p.Stages[1].Hooks[0].FailOpen)
	assert.Equal(t, []string{"row"}, p.Stages[3].Hooks[1].Observes)
	assert.Empty(t, p.Stages[3].Hooks[1].Changes)
}

// TestReplacedInputsAndOutputsFit: what hooks put in place of an input or an
// output has to fit the same schemas.
func TestReplacedInputsAndOutputsFit(t *testing.T) {
	p := loadHooks(t)
	plan, check, exact := p.Stages[0], p.Stages[1], p.Stages[2]
	for _, c := range []struct {
		name  string
		check func(json.RawMessage) error
		value string
		want  string // of the error; "" for none
	}{
		{"input", plan.CheckInput, `{"prompt":"other","effort":"low"}`, ""},
		{"input of another kind", plan.CheckInput, `{"prompt":7}`, "the input doesn't fit the schema of invoker/agent: /prompt"},
		{"unknown input", plan.CheckInput, `{"prompt":"x","promt":"y"}`, "promt"},
		{"no object", plan.CheckInput, `"x"`, "doesn't fit"},
		{"command line", check.CheckInput, `{"run":["true"]}`, ""},
		{"empty command line", check.CheckInput, `{"run":[]}`, "doesn't fit the schema of run"},
		{"no input is taken", exact.CheckInput, `{"expect":1}`, "judger/exact42 takes no input"},
		{"nothing for no input", exact.CheckInput, `{}`, ""},
		{"output of an agent", plan.CheckResult, `{"text":"x","usage":{"input":1,"output":2},"cost":null,"exit_status":"ok"}`, ""},
		{"output without text", plan.CheckResult, `{"usage":{"input":1,"output":2},"exit_status":"ok"}`, "the output doesn't fit the schema of invoker/agent"},
		{"output of a program", check.CheckResult, `{"exit_code":0,"text":""}`, ""},
		{"verdict", exact.CheckResult, `{"reward":0.5,"status":"scored"}`, ""},
		{"verdict with a reward of another kind", exact.CheckResult, `{"reward":"1","status":"scored"}`, "/reward"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.check(json.RawMessage(c.value))
			if c.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.want)
		})
	}
}
