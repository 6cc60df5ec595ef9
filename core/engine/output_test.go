package engine

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

// shouting writes a line of 17 MiB and a short one.
type shouting struct{}

func (shouting) Plan(context.Context, *invoker.PlanRequest) (*invoker.Plan, error) {
	return &invoker.Plan{Argv: []string{"sh", "-c", "head -c 17825792 /dev/zero | tr '\\0' x; echo; echo short"}, Output: invoker.JSONL}, nil
}

func (shouting) Line(_ context.Context, r *invoker.LineRequest) (invoker.LineResult, error) {
	state, err := json.Marshal(string(r.State) + r.Line + ";")
	return invoker.LineResult{State: state}, err
}

func (shouting) Result(_ context.Context, r *invoker.ResultRequest) (*invoker.Result, error) {
	return &invoker.Result{ExitStatus: invoker.OK, Text: r.Stdout + string(r.State)}, nil
}

// A line that no invoker can be given is passed over, and said; the artifact
// has it.
func TestLinesThatAreTooLongAreSaid(t *testing.T) {
	b := start(t, `
penstock: v1
tasks: { inline: [{ id: a }] }
stages:
  - { id: solve, uses: invoker/shouting }
`, component.Component{
		Descriptor: component.Descriptor{Kind: component.Invoker, Name: "shouting", Protocol: component.Protocol, Output: invoker.OutputSchema},
		Open:       func(context.Context, json.RawMessage) (any, error) { return shouting{}, nil },
	})
	b.run()
	assert.Equal(t, []string{"lines of output over 16 MiB are not read, but are in the artifact stdout: 1"}, b.warnings())
	assert.Equal(t, "short\n\"short;\"", field(t, b.stage("a~0", "solve").Output, "text"))
	stdout, err := os.ReadFile(filepath.Join(b.folder.Dir, "artifacts", "a~0", "solve", "1.1", "stdout"))
	require.NoError(t, err)
	assert.Len(t, stdout, 17<<20+7)
	assert.True(t, strings.HasSuffix(string(stdout), "x\nshort\n"))
}

func TestOutputWithTextIsJSON(t *testing.T) {
	for _, text := range []string{"", "plain", "\"quoted\"\n\t\\ <&> \u2028 é 𝄞", "no UTF-8: \xff."} {
		got, err := withText(text, map[string]any{"exit_code": 3})
		require.NoError(t, err)
		var v struct {
			Text string
			Exit int `json:"exit_code"`
		}
		require.NoError(t, json.Unmarshal(got, &v), string(got))
		assert.Equal(t, strings.ToValidUTF8(text, "\uFFFD"), v.Text)
		assert.Equal(t, 3, v.Exit)
	}
}
