// Package units reads durations and sizes as people write them in files: with
// a unit, always.
package units

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrNoUnit is what a number without a unit is.
var ErrNoUnit = errors.New("no unit")

// Duration reads 500ms, 30s, 10m or 1h30m. It must be greater than zero.
func Duration(s string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("the duration %s has %w", s, ErrNoUnit)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("'%s' is no duration", s)
	}
	if d <= 0 {
		return 0, fmt.Errorf("the duration %s is not greater than zero", s)
	}
	return d, nil
}

var sizes = []struct {
	name string
	n    float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
}

// Sizes lists the units of sizes, for messages.
const Sizes = "B, KiB, MiB, GiB, KB, MB, GB"

// Size reads 64MiB and gives bytes, at least 1.
func Size(s string) (int64, error) {
	for _, u := range sizes {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || !(v*u.n >= 1) || v*u.n >= 1<<62 {
			return 0, fmt.Errorf("'%s' is no size", s)
		}
		return int64(v * u.n), nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("the size %s has %w", s, ErrNoUnit)
	}
	return 0, fmt.Errorf("'%s' is no size", s)
}
