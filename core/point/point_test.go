package point

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

type hookFunc func(ctx context.Context, e *hook.Event) (hook.Result, error)

func (f hookFunc) Apply(ctx context.Context, e *hook.Event) (hook.Result, error) { return f(ctx, e) }

func adds(text string) hookFunc {
	return func(_ context.Context, e *hook.Event) (hook.Result, error) {
		value, err := json.Marshal(e.Subject().String("") + text)
		return hook.Result{Action: hook.Replace, Value: value}, err
	}
}

func answers(r hook.Result, err error) hookFunc {
	return func(context.Context, *hook.Event) (hook.Result, error) { return r, err }
}

func passage(check func(json.RawMessage) error) Passage {
	if check == nil {
		check = func(json.RawMessage) error { return nil }
	}
	return Passage{Point: hook.Row, Log: slog.New(slog.DiscardHandler), Check: check, Event: func(subject json.RawMessage) doc.Doc {
		return doc.Bytes(`{"point":"row","row":` + string(subject) + `}`)
	}}
}

func TestHooksActInOrder(t *testing.T) {
	denied := hook.Result{Action: hook.Deny, Reason: "no"}
	for _, c := range []struct {
		name  string
		hooks []Hook
		check func(json.RawMessage) error
		want  string // value, then what each edit says
		err   string
	}{
		{"one after the other", []Hook{{Name: "a", Hook: adds("1")}, {Name: "b", Hook: adds("2")}}, nil, `"x12" a replace, b replace`, ""},
		{"a denial ends it", []Hook{{Name: "a", Hook: adds("1")}, {Name: "b", Hook: answers(denied, nil)}, {Name: "c", Hook: adds("3")}}, nil, `"x1" a replace, b deny no`, ""},
		{"an error is a denial", []Hook{{Name: "a", Hook: answers(hook.Result{}, errors.New("lost"))}}, nil, `"x" a deny a failed: lost`, "lost"},
		{"unless it fails open", []Hook{{Name: "a", Hook: answers(hook.Result{}, errors.New("lost")), FailOpen: true}, {Name: "b", Hook: adds("2")}}, nil, `"x2" a continue lost, b replace`, ""},
		{"a panic is an error", []Hook{{Name: "a", Hook: hookFunc(func(context.Context, *hook.Event) (hook.Result, error) { panic("gone") })}}, nil, `"x" a deny a failed: panic: gone`, "panic: gone"},
		{"a wrong action is an error", []Hook{{Name: "a", Hook: answers(hook.Result{Action: "drop"}, nil)}}, nil, `"x" a deny a failed: hook answers action "drop", want continue, replace or deny`, "drop"},
		{"so is what doesn't fit", []Hook{{Name: "a", Hook: adds("1"), FailOpen: true}, {Name: "b", Hook: adds("2")}}, func(v json.RawMessage) error {
			if strings.Contains(string(v), "1") {
				return errors.New("too long")
			}
			return nil
		}, `"x2" a continue hook a replaces the row with something else: too long, b replace`, ""},
		{"nothing leaves no edit", []Hook{{Name: "a", Hook: answers(hook.Pass(), nil)}}, nil, `"x" `, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.hooks {
				c.hooks[i].Changes = []hook.Point{hook.Row}
			}
			out := passage(c.check).Run(t.Context(), Changing(c.hooks, hook.Row), json.RawMessage(`"x"`))
			var said []string
			for _, e := range out.Edits {
				said = append(said, strings.TrimSpace(e.Hook+" "+e.Action+" "+e.Reason+after(e.Error, e.Reason)))
			}
			assert.Equal(t, c.want, string(out.Value)+" "+strings.Join(said, ", "))
			if c.err == "" {
				assert.NoError(t, out.Err)
				return
			}
			assert.ErrorContains(t, out.Err, c.err)
			assert.Equal(t, "a", out.Failed)
		})
	}
}

// after is what to write behind a reason that doesn't hold the error.
func after(text, reason string) string {
	if reason == "" || text == "" {
		return text
	}
	return ": " + text
}

// TestWatch: each use of a hook has a queue of its own, what doesn't fit is
// counted under the hook's name and said at the end, and what fits is seen
// before Close returns.
func TestWatch(t *testing.T) {
	var log bytes.Buffer
	w := NewWatch(2, slog.New(slog.NewTextHandler(&log, nil)))
	release := make(chan struct{})
	slow, quick := 0, make(chan string, 10)
	hooks := []Hook{
		{Name: "slow", Observes: []hook.Point{hook.Row}, Hook: hookFunc(func(context.Context, *hook.Event) (hook.Result, error) {
			<-release
			slow++
			return hook.Pass(), nil
		})},
		{Name: "quick", Observes: []hook.Point{hook.Row}, Hook: hookFunc(func(_ context.Context, e *hook.Event) (hook.Result, error) {
			quick <- e.Subject().String("")
			return hook.Result{}, errors.New("is only logged")
		})},
		{Name: "elsewhere", Observes: []hook.Point{hook.Reply}, Hook: answers(hook.Pass(), errors.New("is not called"))},
	}
	require.True(t, Observed(hooks, hook.Row))
	require.False(t, Observed(hooks, hook.ToolCall))
	for range 5 {
		w.Send(hooks, hook.Row, doc.Bytes(`{"point":"row","row":"x"}`))
		assert.Equal(t, "x", <-quick, "a slow hook holds up no other")
	}
	assert.Contains(t, []int{2, 3}, w.Dropped()["slow"], "two are queued, one may be with the hook")
	close(release)
	w.Close(t.Context())
	w.Close(t.Context())
	assert.Equal(t, 5, slow+w.Dropped()["slow"])
	assert.Equal(t, 1, strings.Count(log.String(), "observing hook was too slow"))
	w.Send(hooks, hook.Row, doc.Bytes(`{}`))
	assert.Empty(t, quick, "nothing is sent after the end")
}
