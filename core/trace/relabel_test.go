package trace

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
)

func TestCallsNamesWhatCanBeToldOnlyLater(t *testing.T) {
	type call struct {
		parent  int // seq
		kind    Kind
		lineage int
		says    string // the conversation
		status  string
	}
	tests := []struct {
		name  string
		calls []call
		want  []string
	}{
		{"a title call beside the main one",
			[]call{{0, Side, 0, "title", ""}, {0, Main, 0, "task", ""}, {2, Main, 0, "task more", ""}},
			[]string{"side0", "main0", "main0"}},
		{"an agent without tools",
			[]call{{0, Probe, 0, "quota", ""}, {0, Side, 0, "task", ""}, {0, Side, 1, "other", ""}},
			[]string{"probe0", "main0", "side1"}},
		{"an agent without tools that goes on",
			[]call{{0, Side, 0, "title", ""}, {0, Side, 1, "task", ""}, {2, Main, 0, "task more", ""}},
			[]string{"side0", "main0", "main0"}},
		{"a reply thrown away",
			[]call{{0, Main, 0, "task", ""}, {0, Main, 0, "task", ""}, {2, Main, 0, "task more", ""}},
			[]string{"retry0", "main0", "main0"}},
		{"the first of two votes goes on",
			[]call{{0, Main, 0, "task", ""}, {0, Main, 0, "task", ""}, {1, Main, 0, "task more", ""}},
			[]string{"main0", "retry0", "main0"}},
		{"nothing goes on: the last one stays",
			[]call{{0, Main, 0, "task", ""}, {0, Main, 0, "task", ""}, {0, Main, 0, "task", ""}},
			[]string{"retry0", "retry1", "main0"}},
		{"a failed call is no retry",
			[]call{{0, Main, 0, "task", CallError}, {0, Main, 0, "task", ""}},
			[]string{"main0", "main0"}},
		{"a second opinion has a lineage of its own",
			[]call{{0, Main, 0, "task", ""}, {0, Continuation, 0, "task", ""}},
			[]string{"main0", "continuation0"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, _ := openStore(t, StoreOptions{})
			ctx := context.Background()
			for i, c := range test.calls {
				x := &Call{ID: fmt.Sprintf("s.%d", i+1), Session: "s", Seq: i + 1, Kind: c.kind, Status: c.status,
					Lineage: fmt.Sprintf("s/%s%d", c.kind, c.lineage), Chat: talkOf(msg(chat.User, txt(c.says)))}
				if x.Status == "" {
					x.Status = CallOK
				}
				if c.parent > 0 {
					x.Parent = fmt.Sprintf("s.%d", c.parent)
				}
				require.NoError(t, s.PutCall(ctx, x))
			}
			calls, err := s.Calls(ctx, "s")
			require.NoError(t, err)
			var got []string
			for _, c := range calls {
				got = append(got, c.Lineage[len("s/"):])
				assert.Contains(t, c.Lineage, "/"+string(c.Kind))
			}
			assert.Equal(t, test.want, got)
		})
	}
}
