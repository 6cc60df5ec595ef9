package doctorcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
)

const goodRows = `{"calls":["s-1.1","s-1.2"],"loss_mask":[0,1,0,1]}` + "\n" + `{"calls":["s-1.3"],"loss_mask":[0,1]}` + "\n"

// record stores calls of the sessions that they name as a run does.
func record(t *testing.T, dir string, calls []*trace.Call) {
	t.Helper()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "trace"), 0o700))
	store, err := trace.Open(filepath.Join(dir, "trace", "penstock.db"), trace.StoreOptions{})
	require.NoError(t, err)
	for _, c := range calls {
		require.NoError(t, store.PutSession(t.Context(), &trace.Session{ID: c.Session}))
		c.ID = fmt.Sprintf("%s.%d", c.Session, c.Seq)
		require.NoError(t, store.PutCall(t.Context(), c))
	}
	require.NoError(t, store.Close())
}

// TestRowsHold holds that a token that was sampled and is in no row, or in two,
// is found, and that a try that was given up needs no rows.
func TestRowsHold(t *testing.T) {
	given := &trace.Call{Session: "s-0", Seq: 1, Status: trace.CallOK, SampledIDs: []int32{1}}
	failed := &trace.Call{Session: "s-1", Seq: 4, Status: trace.CallError, SampledIDs: []int32{1}}
	calls := []*trace.Call{given}
	for seq := range 3 {
		calls = append(calls, &trace.Call{Session: "s-1", Seq: seq + 1, Status: trace.CallOK, SampledIDs: []int32{1}})
	}
	calls = append(calls, failed)
	for name, c := range map[string]struct{ rows, want string }{
		"good":     {goodRows, ""},
		"none":     {"", "call s-1.1 is in 0 rows"},
		"twice":    {goodRows + `{"calls":["s-1.3"],"loss_mask":[0,1]}`, "call s-1.3 is in 2 rows"},
		"untaught": {`{"calls":["s-1.1","s-1.2","s-1.3"],"loss_mask":[0,1,0,1,0,0]}`, "the rows train 2 tokens, where 3 were sampled"},
		"cut":      {goodRows + `{"calls":["s-1.4"],"loss_mask":[0,0]}`, "the rows train 3 tokens, where 4 were sampled"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(c.rows), 0o600))
			record(t, dir, calls)
			err := held(t.Context(), dir)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			assert.EqualError(t, err, c.want)
		})
	}
}

// TestTrouble holds that the rough runs' model differs in the line that they
// are about: a rule by another name would leave them smooth.
func TestTrouble(t *testing.T) {
	text, err := task.ReadFile("model.yaml")
	require.NoError(t, err)
	assert.Equal(t, string(text), trouble("").add(string(text)))
	assert.Contains(t, breaks.add(string(text)), "  - name: ask\n    fail: { after: 2, times: 1 }\n    when:")
	assert.Contains(t, stalls.add(string(text)), "  - name: answer\n    think_time: 5m\n    when:")
}
