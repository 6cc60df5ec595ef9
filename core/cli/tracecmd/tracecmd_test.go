package tracecmd

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

var update = flag.Bool("update", false, "write the golden files anew")

var markers = []string{"<user>", "<assistant>", "<end>"}

// marked is a format of which only the markers are asked.
type marked struct{ format.Format }

func (marked) Markers() []string { return markers }

func options() Options {
	return Options{Format: func(_ context.Context, name string) (format.Format, error) {
		if name != "turns" {
			return nil, errors.New("no such format")
		}
		return marked{}, nil
	}}
}

// recorded makes a run folder with one rollout of four calls.
func recorded(t *testing.T) string {
	dir := t.TempDir()
	s, err := trace.Open(filepath.Join(dir, "trace", "penstock.db"), trace.StoreOptions{})
	require.NoError(t, err)
	ctx := context.Background()
	reward := 0.5
	r := &trace.Rollout{ID: "t1~0", Task: "t1", Status: trace.Completed, ExitStatus: "ok", Reward: &reward, Calls: 4, Usage: chat.Usage{Input: 70, Output: 8}}
	require.NoError(t, s.PutStage(ctx, &trace.StageResult{Rollout: r.ID, Stage: "solve", Round: 1, Try: 1, Status: "completed", ExitStatus: "ok",
		Output: json.RawMessage(`{"text":"42"}`)}, r))
	require.NoError(t, s.PutSession(ctx, &trace.Session{ID: "s-1", Rollout: r.ID, Stage: "solve", Round: 1, Try: 1, ModelEntry: "policy"}))
	b := token.NewBytes(markers)
	hot := 1.0
	put := func(seq int, prompt, raw string, change func(*trace.Call)) *trace.Call {
		c := &trace.Call{ID: "s-1." + string(rune('0'+seq)), Session: "s-1", Seq: seq, Status: trace.CallOK, Dialect: "anthropic",
			Method: "POST", Path: "/v1/messages", Headers: map[string]string{"user-agent": "claude-cli/2.1.332 (external, sdk-cli)"},
			ModelEntry: "policy", ModelAsked: "policy", ModelServed: "qwen", Engine: "script", Format: "turns", Capture: "exact", Tokenizer: b.Hash(),
			Lineage: "s-1/main0", Kind: trace.Main, PromptIDs: b.Encode(nil, prompt, true), SampledIDs: b.Encode(nil, raw, true), Raw: raw, Finish: "stop",
			Effective: chat.Sampling{Temperature: &hot}, HTTPStatus: 200, Delivered: true,
			Received: time.Unix(1e9, 0).UTC(), FirstByte: time.Unix(1e9, 5e6).UTC(), Done: time.Unix(1e9, 9e6).UTC(),
			Chat:   &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: prompt}}}}},
			Parsed: &chat.Reply{Parts: []chat.Part{{Type: chat.Text, Text: strings.TrimSuffix(raw, "<end>")}}, Finish: chat.FinishStop},
		}
		c.Usage = chat.Usage{Input: len(c.PromptIDs), Output: len(c.SampledIDs)}
		for range c.SampledIDs {
			c.Logprobs = append(c.Logprobs, -0.5)
		}
		c.Served = c.Parsed
		if change != nil {
			change(c)
		}
		require.NoError(t, s.PutCall(ctx, c))
		return c
	}
	put(1, "<user>It is 12:01. Add 1 and 2.<end><assistant>", "sum<end>", func(c *trace.Call) {
		c.Parsed = &chat.Reply{Finish: chat.FinishToolCalls, Parts: []chat.Part{
			{Type: chat.ToolCall, ID: "c1", Name: "add", Arguments: json.RawMessage(`{"a": 1}`)}}}
		c.Spans = []format.Span{{Start: 0, End: 3}}
		c.Edits = []trace.Edit{{Hook: "hook/sanitize-tools", Point: "tool_call", Action: "replace", Reason: "missing b",
			Before: json.RawMessage(`{"a": 1}`), After: json.RawMessage(`{"a": 1, "b": 0}`)}}
		c.Warnings = []trace.Warning{{Kind: "missing_end", Span: format.Span{Start: 1, End: 2}}}
		c.Logprobs[0] = math.NaN()
	})
	put(2, "<user>It is 12:01. Add 1 and 2.<end><assistant>sum<end><user>3<end><assistant>", "3<end>", func(c *trace.Call) {
		c.Parent, c.Extends = "s-1.1", true
	})
	put(3, "<user>It is 12:02. Add 1 and 2.<end><assistant>sum<end><user>3<end><assistant>3<end><user>ok<end><assistant>", "bye<end>", func(c *trace.Call) {
		c.Parent, c.Fork, c.Format = "s-1.2", "system_changed", "gone"
	})
	put(4, "", "", func(c *trace.Call) {
		c.Status, c.Error, c.Lineage, c.Kind, c.Parsed, c.Served, c.Chat = trace.CallInvalid, &trace.Problem{Kind: "invalid", Message: "no messages"}, "", "", nil, nil, nil
		c.Body, c.HTTPStatus, c.FirstByte, c.Finish = []byte(`{"messages":7}`), 400, time.Time{}, ""
	})
	require.NoError(t, s.Close())
	return dir
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	cmd := Command(options())
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func TestCommandsShowWhatWasRecorded(t *testing.T) {
	dir := recorded(t)
	for name, args := range map[string][]string{
		"ls":             {"ls", dir},
		"ls-rollout":     {"ls", dir, "t1~0"},
		"ls-session":     {"ls", dir, "s-1", "--json"},
		"show-rollout":   {"show", dir, "t1~0"},
		"show-call":      {"show", dir, "s-1.1"},
		"show-unnamed":   {"show", dir, "s-1.3"},
		"show-invalid":   {"show", dir, "s-1.4"},
		"show-call-json": {"show", dir, "s-1.1", "--json"},
		"diff":           {"diff", dir, "s-1.1", "s-1.2"},
		"doctor":         {"doctor", dir},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := run(t, args...)
			require.NoError(t, err)
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}

func TestDoctorJSONIsWhole(t *testing.T) {
	out, err := run(t, "doctor", recorded(t), "--json")
	require.NoError(t, err)
	var d diagnosis
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Len(t, d.Forks, 1)
	assert.Equal(t, "system_changed", d.Forks[0].Class)
	require.Len(t, d.Groups, 1)
	assert.Equal(t, "claude-cli/2.1.332", d.Groups[0].Agent)
	assert.Equal(t, 1, d.Groups[0].NoLogprob)
}

func TestCommandsReadARunThatGoesOn(t *testing.T) {
	dir := t.TempDir()
	s, err := trace.Open(filepath.Join(dir, "trace", "penstock.db"), trace.StoreOptions{})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.PutRollout(context.Background(), &trace.Rollout{ID: "t1~0", Task: "t1", Status: trace.Running}))
	out, err := run(t, "ls", dir)
	require.NoError(t, err)
	assert.Contains(t, out, "t1~0     running")
}

func TestWrongIDsAndFoldersSayWhatToDo(t *testing.T) {
	dir := recorded(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"ls", t.TempDir()}, "no such file"},
		{[]string{"ls", dir, "t9~0"}, `no rollout or session "t9~0"; penstock trace ls DIR lists rollouts`},
		{[]string{"show", dir, "s-1.9"}, `no call "s-1.9"; penstock trace ls DIR ROLLOUT lists calls`},
		{[]string{"diff", dir, "s-1.1", "x"}, `no call "x"`},
	} {
		_, err := run(t, test.args...)
		assert.ErrorContains(t, err, test.want)
	}
}
