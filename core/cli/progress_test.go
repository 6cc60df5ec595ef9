package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-dev/penstock/core/run"
)

// TestTasksForgeNoLines: an id of a task stays on the line of its rollout,
// whatever is in it, and what is said of it moves no cursor.
func TestTasksForgeNoLines(t *testing.T) {
	var out strings.Builder
	p := &progress{out: &out, running: map[string]string{}}
	id := "t1\nt2~0  completed \x1b[2K~0"
	p.event(run.Event{Type: run.Warned, Rollout: id, Stage: "solve", Message: "odd\a"})
	p.event(run.Event{Type: run.RolloutEnded, Rollout: id, Status: "failed", Error: "it said \x1b[2J"})
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	assert.Len(t, lines, 3, out.String())
	assert.Equal(t, `t1\nt2~0  completed \x1b[2K~0 solve: warning: odd\a`, lines[0])
	assert.True(t, strings.HasPrefix(lines[1], `t1\nt2~0  completed \x1b[2K~0 failed`), lines[1])
	assert.Equal(t, `    it said \x1b[2J`, lines[2])
}
