package doctorcmd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-dev/penstock/core/trace"
)

// rollout is how the only rollout of a run ended.
type rollout struct {
	Reward     *float64 `json:"reward"`
	ExitStatus string   `json:"exit_status"`
}

func rolloutOf(run string) (*rollout, error) {
	var r rollout
	err := lines(filepath.Join(run, "rollouts.jsonl"), func(line []byte) error {
		return json.Unmarshal(line, &r) // the last one counts
	})
	return &r, err
}

// solved says that the program came to the tool's answer by itself.
func (r *rollout) solved() bool {
	return r.ExitStatus == "ok" && r.Reward != nil && *r.Reward == 1
}

// rowsHold counts the rows of a run, whose calls are each in one of them, with
// as many trained tokens as the model sampled. What a try that was given up had
// called before may be missing.
func rowsHold(ctx context.Context, store *trace.Store, run string) (rows int, err error) {
	in := map[string]int{}
	trained := 0
	err = lines(filepath.Join(run, "rows.jsonl"), func(line []byte) error {
		var r struct {
			Calls []string `json:"calls"`
			Mask  []int    `json:"loss_mask"`
		}
		rows++
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		for _, id := range r.Calls {
			in[id]++
		}
		for _, m := range r.Mask {
			trained += m
		}
		return nil
	})
	if err != nil {
		return rows, err
	}
	sessions, err := store.Sessions(ctx, "")
	if err != nil {
		return rows, err
	}
	sampled := 0
	for i, s := range sessions {
		calls, err := store.Calls(ctx, s.ID)
		if err != nil {
			return rows, err
		}
		for _, c := range calls {
			n := in[c.ID]
			if last := i == len(sessions)-1; n > 1 || n == 0 && last && c.Status == trace.CallOK {
				return rows, fmt.Errorf("call %s is in %d rows", c.ID, n)
			}
			sampled += n * len(c.SampledIDs)
		}
	}
	if trained != sampled {
		return rows, fmt.Errorf("the rows train %d tokens, where %d were sampled", trained, sampled)
	}
	return rows, nil
}

// lines hands each line of a file to f.
func lines(path string, f func(line []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		if err := f(s.Bytes()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return s.Err()
}
