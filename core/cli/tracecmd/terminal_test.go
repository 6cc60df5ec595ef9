package tracecmd

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// hostile is what a model writes that would take over a terminal.
const hostile = "\x1b]0;owned\a\x1b[2J\u009b31m"

// hostileRun has a session without a rollout, as the gateway's own have, and a
// rollout of a task whose id has a newline.
func hostileRun(t *testing.T) string {
	dir := t.TempDir()
	s, err := trace.Open(filepath.Join(dir, "trace", "penstock.db"), trace.StoreOptions{})
	require.NoError(t, err)
	ctx := context.Background()
	require.NoError(t, s.PutSession(ctx, &trace.Session{ID: "s-1", ModelEntry: "policy"}))
	r := &trace.Rollout{ID: "t\n" + hostile + "~0", Task: "t", Status: trace.Failed, Error: "it said\n" + hostile}
	require.NoError(t, s.PutStage(ctx, &trace.StageResult{Rollout: r.ID, Stage: "solve", Round: 1, Try: 1, Status: "failed", Error: hostile,
		Output: json.RawMessage(`{"text":"\u007f"}`)}, r))
	reply := &chat.Reply{Finish: chat.FinishToolCalls, Parts: []chat.Part{
		{Type: chat.Text, Text: "line one\n" + hostile},
		{Type: chat.ToolCall, ID: "c1", Name: "add\nforged" + hostile, Arguments: json.RawMessage("{\"a\":\n1}")},
	}}
	require.NoError(t, s.PutCall(ctx, &trace.Call{ID: "s-1.1", Session: "s-1", Seq: 1, Status: trace.CallOK, Method: "POST", Path: "/v1/messages" + hostile,
		Headers: map[string]string{"user-agent": "x" + hostile}, ModelAsked: hostile, Prompt: "a prompt\n\t" + hostile, Raw: "line one\n" + hostile,
		Received: time.Unix(1e9, 0).UTC(), Parsed: reply, Served: reply, Edits: []trace.Edit{{Hook: "h", Reason: hostile, Report: json.RawMessage(`"\u0007"`)}}}))
	require.NoError(t, s.Close())
	return dir
}

func TestNothingTakesOverTheTerminal(t *testing.T) {
	dir := hostileRun(t)
	rollout := "t\n" + hostile + "~0"
	for _, args := range [][]string{{"ls", dir}, {"ls", dir, "s-1"}, {"show", dir, rollout}, {"show", dir, "s-1"}, {"show", dir, "s-1.1"}, {"diff", dir, "s-1.1", "s-1.1"}, {"doctor", dir}} {
		out, err := run(t, args...)
		require.NoError(t, err)
		for _, r := range out {
			assert.True(t, r == '\n' || r == '\t' || unicode.IsGraphic(r), "%q in %q", r, out)
		}
	}
	out, err := run(t, "ls", dir)
	require.NoError(t, err)
	assert.Contains(t, out, "\n"+`t\n\x1b]0;owned\a\x1b[2J\u009b31m~0`, "the task's id stays on its line")
	out, err = run(t, "show", dir, "s-1.1")
	require.NoError(t, err)
	assert.Contains(t, out, "line one\n"+`\x1b]0;owned\a`, "text keeps its lines")
	assert.Contains(t, out, "a prompt\n\t"+`\x1b]0;owned`)
	assert.Contains(t, out, `add\nforged\x1b`, "a tool's name can't forge a line")
	out, err = run(t, "show", dir, "s-1.1", "--json")
	require.NoError(t, err)
	assert.Equal(t, "line one\n"+hostile, gjson.Get(out, "raw").String(), "JSON is exact")
}

// TestShowSession: sessions of agents that others started have no rollout.
func TestShowSession(t *testing.T) {
	dir := hostileRun(t)
	out, err := run(t, "show", dir, "s-1")
	require.NoError(t, err)
	assert.Contains(t, out, "s-1  no rollout, model policy, 1 calls\n  .1")
	assert.True(t, strings.HasSuffix(out, "penstock trace show DIR s-1.N shows call N\n"), out)
	out, err = run(t, "show", dir, "s-1", "--json")
	require.NoError(t, err)
	assert.Equal(t, "s-1", gjson.Get(out, "id").String(), out)
	assert.Equal(t, "s-1.1", gjson.Get(out, "calls.0").String(), out)
	_, err = run(t, "show", dir, "s-2")
	assert.ErrorContains(t, err, `penstock trace ls DIR lists rollouts and sessions`)
}
