package engine

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// reviewer is judger/reviewer, whose verdicts promise findings and, if it
// likes, notes; it answers with what it is told to.
func reviewer(answer string) component.Component {
	d := component.Descriptor{Kind: component.Judger, Name: "reviewer", Protocol: component.Protocol, Methods: []string{judger.MethodJudge},
		Output: json.RawMessage(`{"type":"object","properties":{"reward":{"type":["number","null"]},"status":{"type":"string"},` +
			`"findings":{"type":"array","items":{"type":"string"}},"notes":{"type":"string"}},"required":["reward","status","findings"],"additionalProperties":false}`)}
	return component.Component{Descriptor: d, Open: func(context.Context, json.RawMessage) (any, error) { return answers(answer), nil }}
}

type answers string

func (a answers) Judge(context.Context, *judger.Request) (v judger.Verdict, err error) {
	return v, json.Unmarshal([]byte(a), &v)
}

// TestA7UndeclaredKeys: a key that a plugin's output doesn't declare, or one
// that it leaves out, fails the stage with the stage, the key and the nearest
// one that is declared; nothing of the output is taken, and on_error decides
// what comes of it.
func TestA7UndeclaredKeys(t *testing.T) {
	const text = `penstock: v1
tasks: { inline: [{ id: a }] }
stages:
  - { id: review, uses: judger/reviewer, on_error: ON_ERROR }
  - { id: size, uses: judger/length, with: { text: four } }
reward: "${{ review.output?.reward }}"
`
	for _, c := range []struct{ name, answer, want string }{
		{"undeclared", `{"reward":1,"status":"scored","findings":["a"],"note":"x"}`, "/: unknown field 'note', did you mean 'notes'?"},
		{"nothing like it", `{"reward":1,"status":"scored","findings":["a"],"zebra":"x"}`, "/: unknown field 'zebra', it has: findings, notes, reward, status"},
		{"left out", `{"reward":1,"status":"scored"}`, "/: 'findings' is missing"},
		{"of another kind", `{"reward":1,"status":"scored","findings":"a"}`, "/findings: this is a string, want a list"},
	} {
		for onError, status := range map[string]string{"fail": trace.Failed, "continue": trace.Completed, "park": trace.Parked} {
			t.Run(c.name+" "+onError, func(t *testing.T) {
				b := start(t, strings.Replace(text, "ON_ERROR", onError, 1), reviewer(c.answer))
				b.run()
				r, s := b.rollout("a~0"), b.stage("a~0", "review")
				assert.Equal(t, status, r.Status)
				assert.Nil(t, r.Reward, "nothing of it is taken")
				assert.Nil(t, s.Output)
				assert.Contains(t, s.Error, "contract: the output doesn't fit the schema of judger/reviewer: "+c.want)
				if onError == "fail" {
					assert.Contains(t, r.Error, "stage review: ")
				}
				require.JSONEq(t, c.answer, s.Text, "what it was is kept")
			})
		}
	}
	b := start(t, strings.Replace(text, "ON_ERROR", "fail", 1), reviewer(`{"reward":1,"status":"scored","findings":[],"note":"hunter2-hunter2"}`))
	b.run()
	assert.Contains(t, b.stage("a~0", "review").Text, "[redacted:", "as all else that is kept")
	b = start(t, strings.Replace(text, "ON_ERROR", "fail", 1), reviewer(`{"reward":0.5,"status":"scored","findings":[],"notes":"n"}`))
	b.run()
	assert.Equal(t, 0.5, *b.rollout("a~0").Reward)
	assert.Equal(t, "n", field(t, b.stage("a~0", "review").Output, "notes"))
}
