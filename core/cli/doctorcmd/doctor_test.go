package doctorcmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/component"
)

var invokers = []component.Descriptor{{Kind: "invoker", Name: "agent-cli", Programs: []component.Program{
	{Name: "codex", Program: "codex", Dialect: "responses", With: json.RawMessage(`{"recipe":"codex"}`), Version: "1.2", Install: "npm install codex"},
	{Name: "pi", Program: "pi", Dialect: "gemini", Quirks: []string{"a | b", "c"}},
	{Name: "pi", Program: "pi", Dialect: "responses", Quirks: []string{"a | b", "c"}},
}}, {Kind: "invoker", Name: "command"}}

func TestOnly(t *testing.T) {
	for only, want := range map[string][]string{
		"": {"codex/responses", "pi/gemini", "pi/responses"}, "pi": {"pi/gemini", "pi/responses"}, "pi/gemini": {"pi/gemini"},
	} {
		d := &doctor{Options: Options{Invokers: invokers}}
		if only != "" {
			d.only = []string{only}
		}
		all, err := d.programs()
		require.NoError(t, err)
		var got []string
		for _, p := range all {
			got = append(got, p.ID())
			assert.Equal(t, "invoker/agent-cli", p.Uses)
		}
		assert.Equal(t, want, got, only)
	}
	d := &doctor{Options: Options{Invokers: invokers}, flags: flags{only: []string{"emacs"}}}
	_, err := d.programs()
	assert.ErrorContains(t, err, "there is no program emacs; there are codex/responses, pi/gemini, pi/responses")
}

func TestOutputs(t *testing.T) {
	all := []*program{
		{Program: invokers[0].Programs[0], Outcome: absent},
		{Program: invokers[0].Programs[1], Installed: "pi 2.0.", Outcome: works, Streamed: true, Calls: 3, Rows: 2, Broken: again, Interrupted: resumed, Lineages: map[string]int{"side": 1, "main": 1}, Seconds: 1.25},
		{Program: invokers[0].Programs[2], Installed: "pi 2.0.", Outcome: fails, Error: "its answer is not the tool's"},
	}
	var out bytes.Buffer
	d := &doctor{stdout: &out}
	require.NoError(t, d.list(all))
	assert.Equal(t, ""+
		"PROGRAM  PROTOCOL   INSTALLED  TRIED WITH  RESULT\n"+
		"codex    responses  no         1.2         npm install codex\n"+
		"pi       gemini     pi 2.0.                works: 3 calls, 1 main, 1 side, 1.2 s\n"+
		"pi       responses  pi 2.0.                fails: its answer is not the tool's\n", out.String())
	out.Reset()
	require.NoError(t, d.table(all))
	assert.Equal(t, ""+
		"| program | version | protocol | text, tool | streamed | calls | lineages | rows hold | broken stream | interrupted | to know |\n|---|---|---|---|---|---|---|---|---|---|---|\n"+
		"| `codex` |  | responses | absent |  | 0 |  |  |  |  |  |\n"+
		"| `pi` | 2.0 | gemini | works | yes | 3 | 1 main, 1 side | yes, 2 | asks again | resumed | a \\| b; c |\n"+
		"| `pi` | 2.0 | responses | fails |  | 0 |  |  |  |  |  |\n", out.String())
	assert.Equal(t, []string{"pi/responses"}, failed(all))

	all[0].Outcome, all[0].Installed = "", "3"
	assert.Equal(t, "another version than the one that was tried", all[0].result())
}

// TestJudge holds what makes a run of a program a failure.
func TestJudge(t *testing.T) {
	call := func(seq int, kind trace.Kind) *trace.Call {
		return &trace.Call{
			Session: "s-1", Seq: seq, Status: trace.CallOK, Kind: kind, Lineage: "s-1/" + string(kind) + "0", Stream: true,
			Method: "POST", Path: "/v1/x", SampledIDs: []int32{1},
		}
	}
	refused := call(2, trace.Main)
	refused.Status, refused.Error = trace.CallInvalid, &trace.Problem{Message: "input[3]: an item can't be mapped"}
	blind := call(2, trace.Main)
	blind.SampledIDs = nil
	for name, c := range map[string]struct {
		line  string
		calls []*trace.Call
		want  string
	}{
		"good":          {`{"reward":1,"exit_status":"ok"}`, []*trace.Call{call(1, trace.Main), call(2, trace.Main), call(3, trace.Side)}, ""},
		"wrong answer":  {`{"reward":0,"exit_status":"ok"}`, []*trace.Call{call(1, trace.Main), call(2, trace.Main)}, "its answer is not the tool's"},
		"no reward":     {`{"reward":null,"exit_status":"ok"}`, []*trace.Call{call(1, trace.Main), call(2, trace.Main)}, "its answer is not the tool's"},
		"failed":        {`{"reward":null,"exit_status":"infra_error"}`, nil, "it ended with infra_error; the conversation took 0 calls, not 2"},
		"too few calls": {`{"reward":1,"exit_status":"ok"}`, []*trace.Call{call(1, trace.Main)}, "the conversation took 1 calls, not 2"},
		"a request strange": {`{"reward":0,"exit_status":"ok"}`, []*trace.Call{call(1, trace.Main), refused},
			"POST /v1/x was answered invalid: input[3]: an item can't be mapped"},
		"not captured": {`{"reward":1,"exit_status":"ok"}`, []*trace.Call{call(1, trace.Main), blind}, "a call was not captured"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "rollouts.jsonl"), []byte(c.line+"\n"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(goodRows), 0o600))
			record(t, dir, c.calls)
			p := &program{Run: dir}
			err := (&doctor{}).judge(t.Context(), p)
			if c.want == "" {
				require.NoError(t, err)
				assert.Equal(t, map[string]int{"main": 1, "side": 1}, p.Lineages)
				assert.True(t, p.Streamed)
				assert.Equal(t, 3, p.Calls)
				assert.Equal(t, 2, p.Rows)
				return
			}
			assert.EqualError(t, err, c.want)
		})
	}
}
