package tracecmd

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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

// TestAnOlderRunIsShown: a store of the program before the last change of the
// schema is shown as it is.
func TestAnOlderRunIsShown(t *testing.T) {
	dir := recorded(t)
	want, err := run(t, "show", dir, "t1~0")
	require.NoError(t, err)
	path := filepath.Join(dir, "trace", "penstock.db")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.Exec("DROP TABLE replays; DROP TABLE parks; DROP TABLE row_edits; PRAGMA user_version = 1")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	got, err := run(t, "show", dir, "t1~0")
	require.NoError(t, err)
	assert.Equal(t, want, got)
	got, err = run(t, "ls", dir)
	require.NoError(t, err)
	assert.Contains(t, got, "t1~0")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before, after, "it only reads")
}

// TestFaultA11DoctorShowsWhereForksPart: for each fork the class, how many ids it
// shares with the turn before, and the text around that place.
func TestFaultA11DoctorShowsWhereForksPart(t *testing.T) {
	b := token.NewBytes(markers)
	ids := func(text string) []int32 { return b.Encode(nil, text, true) }
	const asked, thought, said = "<user>What is é?<end><assistant>", "<think>It is a letter.</think>", "A letter.<end>"
	for _, test := range []struct {
		name          string
		prompt        string // of the second turn
		class         string
		tokenizer     string
		extends       bool // the first turn; a call between edits nothing
		position, ids int
		same, a, b    string
		against       string
	}{
		{"what was thought is dropped", asked + said + "<user>Why?<end><assistant>", "reasoning_dropped", b.Hash(), false,
			len(ids(asked)), len(ids(asked + thought + said)), asked, thought + said, "A letter.<end><user>Why?<end><assistant>", "s-1.1"},
		{"within a character", "<user>What is è?<end><assistant>" + thought + said, "system_changed", b.Hash(), false,
			len(ids("<user>What is ")) + 1, len(ids(asked + thought + said)), "<user>What is ", "?<end><assistant>" + thought + said, "?<end><assistant>" + thought + said, "s-1.1"},
		{"a tokenizer that isn't known", asked + said + "<user>Why?<end><assistant>", "reasoning_dropped", "sha256:other", false,
			len(ids(asked)), len(ids(asked + thought + said)), fmt.Sprint(ids(asked)[len(ids(asked))-8:]), fmt.Sprint(ids(thought)[:8]), fmt.Sprint(ids(said)[:8]), "s-1.1"},
		{"a turn that was taken back", asked + thought + said + "<user>No.<end><assistant>", "edited_history", b.Hash(), true,
			len(ids(asked + thought + said + "<user>")), len(ids(asked + thought + said + "<user>Why?<end><assistant>Because.<end>")),
			asked + thought + said + "<user>", "Why?<end><assistant>Because.<end>", "No.<end><assistant>", "s-1.2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := trace.Open(filepath.Join(dir, "trace", "penstock.db"), trace.StoreOptions{})
			require.NoError(t, err)
			ctx := context.Background()
			require.NoError(t, s.PutSession(ctx, &trace.Session{ID: "s-1"}))
			put := func(seq int, prompt, raw string, change func(*trace.Call)) {
				c := &trace.Call{ID: fmt.Sprint("s-1.", seq), Session: "s-1", Seq: seq, Status: trace.CallOK, Format: "turns", Tokenizer: test.tokenizer,
					Lineage: "s-1/main0", Kind: trace.Main, PromptIDs: ids(prompt), SampledIDs: ids(raw), Raw: raw}
				change(c)
				require.NoError(t, s.PutCall(ctx, c))
			}
			put(1, asked, thought+said, func(*trace.Call) {})
			last := 2
			if test.extends {
				put(2, asked+thought+said+"<user>Why?<end><assistant>", "Because.<end>", func(c *trace.Call) { c.Parent, c.Extends = "s-1.1", true })
				last = 3
			}
			put(last, test.prompt, "x", func(c *trace.Call) { c.Parent, c.Fork, c.Extends = "s-1.1", test.class, test.extends })
			require.NoError(t, s.Close())

			out, err := run(t, "doctor", dir, "--json")
			require.NoError(t, err)
			var d diagnosis
			require.NoError(t, json.Unmarshal([]byte(out), &d))
			require.Len(t, d.Forks, 1)
			f := d.Forks[0]
			assert.Equal(t, test.class, f.Class)
			assert.Equal(t, test.against, f.Against)
			assert.Equal(t, test.position, f.Position)
			assert.Equal(t, test.ids, f.IDs)
			require.NotNil(t, f.Where)
			clipped := func(s string) string { return s[:min(len(s), around)] }
			assert.Equal(t, test.same[max(0, len(test.same)-around):], f.Where.Same)
			assert.Equal(t, clipped(test.a), f.Where.A)
			assert.Equal(t, clipped(test.b), f.Where.B)
			assert.Equal(t, map[string]int{test.class: 1}, d.Groups[0].Forks)
			assert.Equal(t, last-1, d.Groups[0].Continuing)

			shown, err := run(t, "doctor", dir)
			require.NoError(t, err)
			assert.Contains(t, shown, fmt.Sprintf("%s: call s-1.%d after s-1.1", test.class, last))
			assert.Contains(t, shown, fmt.Sprintf("begins with %d of the %d ids of call %s", test.position, test.ids, test.against))
			assert.Contains(t, shown, fmt.Sprintf("%q", f.Where.Same))
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
		{[]string{"ls", dir, "t9~0"}, `no rollout or session "t9~0"; penstock trace ls DIR lists them`},
		{[]string{"show", dir, "s-1.9"}, `no call "s-1.9"; penstock trace ls DIR lists rollouts and sessions`},
		{[]string{"diff", dir, "s-1.1", "x"}, `no call "x"`},
	} {
		_, err := run(t, test.args...)
		assert.ErrorContains(t, err, test.want)
	}
}
