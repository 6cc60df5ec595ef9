package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTasksAreToldInTheirTurn: whichever is done first.
func TestTasksAreToldInTheirTurn(t *testing.T) {
	var told []string
	turns := inTurn{tell: func(j *Judgement) error { told = append(told, j.Rollout); return nil }}
	for i := range 4 {
		assert.Equal(t, i, turns.next())
	}
	of := func(turn int, rollouts ...string) {
		var all []*Judgement
		for _, id := range rollouts {
			all = append(all, &Judgement{Rollout: id})
		}
		require.NoError(t, turns.of(turn, all))
	}
	of(2, "c~0")
	of(1)
	assert.Empty(t, told)
	of(0, "a~0", "a~1")
	of(3, "d~0")
	assert.Equal(t, []string{"a~0", "a~1", "c~0", "d~0"}, told)
}
