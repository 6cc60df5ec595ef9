package engine

import (
	"math"
	"time"
)

// clock brings the rollout's time up to date, before its state is stored.
func (r *rollout) clock() {
	seconds := r.ranBefore
	if !r.begun.IsZero() {
		seconds += time.Since(r.begun).Seconds()
	}
	r.state.Seconds = math.Round(seconds*1000) / 1000
}

// pause stops the clock while the rollout waits for others. Already stopped, it
// stays so.
func (r *rollout) pause() {
	if !r.begun.IsZero() {
		r.ranBefore += time.Since(r.begun).Seconds()
		r.begun = time.Time{}
	}
}

// proceed sets the clock going again.
func (r *rollout) proceed() { r.begun = time.Now() }
