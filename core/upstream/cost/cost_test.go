package cost

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
)

func usd(v float64) *float64 { return &v }

func TestOf(t *testing.T) {
	all := &Prices{Input: 3, Output: 15, CacheRead: usd(0.3), CacheWrite: usd(3.75)}
	plain := &Prices{Input: 3, Output: 15}
	for _, c := range []struct {
		name string
		p    *Prices
		u    chat.Usage
		want float64
		most float64 // of the same tokens
	}{
		{"nothing", all, chat.Usage{}, 0, 0},
		{"a million each", plain, chat.Usage{Input: 1e6, Output: 1e6}, 18, 18},
		{"from the cache", all, chat.Usage{Input: 1000, Cached: 900, Output: 10}, (100*3 + 900*0.3 + 10*15) / 1e6, (1000*3.75 + 10*15) / 1e6},
		{"into the cache", all, chat.Usage{Input: 1000, Cached: 500, CacheWrite: 400, Output: 0}, (100*3 + 500*0.3 + 400*3.75) / 1e6, 1000 * 3.75 / 1e6},
		{"a cache without a price", plain, chat.Usage{Input: 1000, Cached: 500, CacheWrite: 400}, 1000 * 3 / 1e6, 1000 * 3 / 1e6},
		{"free", &Prices{}, chat.Usage{Input: 1e6, Output: 1e6}, 0, 0},
		{"counts that don't add up", plain, chat.Usage{Input: 10, Cached: 20}, 20 * 3 / 1e6, 10 * 3 / 1e6},
	} {
		assert.InDelta(t, c.want, c.p.Of(c.u), 1e-12, c.name)
		assert.InDelta(t, c.most, c.p.Most(c.u.Input, c.u.Output), 1e-12, c.name)
	}
}

func TestDearest(t *testing.T) {
	a, b := &Prices{Input: 3, Output: 15, CacheRead: usd(0.3)}, &Prices{Input: 5, Output: 2}
	got := Dearest(a, b)
	assert.Equal(t, &Prices{Input: 5, Output: 15, CacheRead: usd(5), CacheWrite: usd(5)}, got)
	assert.Same(t, a, Dearest(a, nil))
	assert.Same(t, a, Dearest(nil, a))
	assert.Nil(t, Dearest(nil, nil))
}

// TestSums: a sum is known as badly as its worst part, and an amount that
// isn't known is none, never 0.
func TestSums(t *testing.T) {
	none, billed, estimated, unknown := Cost{}, Cost{1, Billed}, Cost{2, Estimated}, Cost{0, Unknown}
	for _, c := range []struct {
		of    []Cost
		basis Basis
		usd   *float64
	}{
		{nil, "", nil},
		{[]Cost{none, none}, "", nil},
		{[]Cost{none, billed}, Billed, usd(1)},
		{[]Cost{billed, estimated, none}, Estimated, usd(3)},
		{[]Cost{estimated, unknown, billed}, Unknown, nil},
		{[]Cost{{0, Estimated}}, Estimated, usd(0)},
	} {
		sum := Cost{}
		for _, d := range c.of {
			sum = sum.Add(d)
		}
		assert.Equal(t, c.basis, sum.Basis, "%v", c.of)
		assert.Equal(t, c.usd, sum.Amount(), "%v", c.of)
		again := Read(sum.Amount(), string(sum.Basis))
		require.Equal(t, sum.Basis, again.Basis)
		require.Equal(t, sum.Amount(), again.Amount())
	}
}

func TestText(t *testing.T) {
	for usd, want := range map[float64]string{0: "0.0000", 2.06: "2.0600", 0.0123: "0.0123", 0.000016: "0.000016", 0.00000123: "0.0000012", 15: "15.0000"} {
		assert.Equal(t, want, Text(usd))
	}
}
