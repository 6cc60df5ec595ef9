package judger

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
)

func TestExtraFieldsGoAlongWithAVerdict(t *testing.T) {
	v := Reward(1)
	v.Extra = map[string]json.RawMessage{"verdict": json.RawMessage(`"approve"`), "findings": json.RawMessage(`[]`), "reward": json.RawMessage(`0`)}
	b, err := json.Marshal(v)
	require.NoError(t, err)
	assert.Equal(t, `{"reward":1,"status":"scored","findings":[],"verdict":"approve"}`, string(b), "a verdict's own fields win")
	var back Verdict
	require.NoError(t, json.Unmarshal(b, &back))
	delete(v.Extra, "reward")
	assert.Equal(t, v, back)

	require.NoError(t, json.Unmarshal([]byte(`{"reward":null,"status":"skipped"}`), &back))
	assert.Equal(t, Verdict{Status: Skipped}, back)
}

func TestWritesAddsToTheSchema(t *testing.T) {
	type review struct {
		Verdict  string   `json:"verdict" enum:"approve,reject"`
		Findings []string `json:"findings,omitempty"`
	}
	d := component.Descriptor{Output: Output}
	Writes[review]()(&d)
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
		Closed     *bool                      `json:"additionalProperties"`
	}
	require.NoError(t, json.Unmarshal(d.Output, &s))
	assert.Contains(t, s.Properties, "findings")
	assert.Contains(t, s.Properties, "reward")
	assert.ElementsMatch(t, []string{"reward", "status", "verdict"}, s.Required)
	assert.False(t, *s.Closed)
}
