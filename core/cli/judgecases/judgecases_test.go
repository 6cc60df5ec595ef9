package judgecases

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
)

// TestErrorsNamePlaces: each mistake in a file of cases is told with its file,
// line, column and field.
func TestErrorsNamePlaces(t *testing.T) {
	for text, want := range map[string]string{
		"cases: 1":                             "c.yaml:1:1: want a list 'cases:'",
		"case: []":                             "c.yaml:1:1: the file has no field 'case'; it takes: cases",
		"cases:\n  - 1":                        "c.yaml:2:5: a case is an object",
		"cases:\n  - {}":                       "c.yaml:2:5: a case has one of 'rollout' and 'rollouts'",
		"cases:\n  - { rollout: {}, wnt: {} }": "c.yaml:2:20: a case has no field 'wnt'",
		"cases:\n  - { rollout: {} }":          "c.yaml:2:5: a case has one of 'want'",
		"cases:\n  - { rollout: { final_text: [1] }, want: { reward: 1 } }":          "c.yaml:2:30: 'final_text' is of kind array, and can't be used as string",
		"cases:\n  - { rollout: { tool_calls: [{ nme: x }] }, want: { reward: 1 } }": `c.yaml:2:30: 'tool_calls': unknown field "nme"`,
		"cases:\n  - { rollout: { workspace: nowhere }, error: x }":                  "there is no folder nowhere",
		"cases:\n  - { rollouts: [{}, {}], want: [{ reward: 1 }] }":                  "c.yaml:2:33: 'want' is a list with a verdict for each of the 2 rollouts",
		"cases:\n  - { rollout: {}, task: 4, want: { reward: 1 } }":                  "c.yaml:2:20: 'task' is an object",
		"cases:\n  - { rollout: {}, want: { reward: 1 }, rollout: {} }":              "c.yaml:2:41: 'rollout' is given twice",
		"cases:\n  - { rollout: {}, want: { reward: 1 }, error: x }":                 "c.yaml:2:41: a case has one of 'want'",
	} {
		_, err := Parse("c.yaml", []byte(text))
		require.Error(t, err, text)
		assert.Contains(t, err.Error(), want, text)
	}
	_, err := Parse("c.jsonl", []byte("\n"+`{"rollout":{},"want":{"reward":1}}`+"\n"+`{"rollot":{}}`))
	assert.ErrorContains(t, err, "c.jsonl:3:2: a case has no field 'rollot'")
}

// TestCompare: only what is wanted counts.
func TestCompare(t *testing.T) {
	done := &trace.StageResult{Status: "completed", Output: []byte(`{"reward":0.30000000000000004,"label":"ok","components":{"a":1,"b":2},"explanation":"as it should be","status":"scored"}`)}
	for want, wrong := range map[string]string{
		"{ reward: 0.3 }":            "",
		"{ components: { a: 1 } }":   "",
		"{ explanation: should }":    "",
		"{ reward: null }":           "reward is 0.30000000000000004, want null",
		"{ label: no, reward: 0.3 }": `label is "ok", want "no"`,
		"{ rewrd: 1 }":               "the verdict has no 'rewrd', want 1; did you mean 'reward'?",
		"{ components: { c: 1 } }":   `components is {"a":1,"b":2}, want {"c":1}`,
	} {
		cases, err := Parse("c.yaml", []byte("cases: [{ rollout: {}, want: "+want+" }]"))
		require.NoError(t, err)
		assert.Equal(t, wrong, cases[0].Compare([]*trace.StageResult{done}), want)
	}
	cases, err := Parse("c.yaml", []byte("cases: [{ rollout: {}, error: lost }]"))
	require.NoError(t, err)
	assert.Empty(t, cases[0].Compare([]*trace.StageResult{{Status: "failed", Error: "judge_error: it is lost"}}))
	assert.Contains(t, cases[0].Compare([]*trace.StageResult{done}), "want an error")
}

func FuzzParse(f *testing.F) {
	f.Add("cases: [{ rollout: { final_text: x }, want: { reward: 1 } }]", false)
	f.Add(`{"rollouts":[{}],"want":[{"reward":1}]}`, true)
	f.Add("cases: [&a { rollout: *a, error: x }]", false)
	f.Fuzz(func(t *testing.T, text string, lines bool) {
		name := "c.yaml"
		if lines {
			name = "c.jsonl"
		}
		_, _ = Parse(name, []byte(text))
	})
}
