// Package cost says what calls of models cost, and how that is known: because
// who generates has billed it, or from prices and counts of tokens.
//
// What never enters: budgets, and where prices come from.
package cost

import (
	"math"
	"strconv"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// Basis says how a cost is known. It is "" where nothing was to be paid for.
type Basis string

// The bases of a cost, from the best known to the least.
const (
	Billed    Basis = "billed"    // the upstream says what it charges
	Estimated Basis = "estimated" // tokens by their prices, or an agent's own count
	Unknown   Basis = "unknown"   // neither is known, of a part at least
)

var rank = map[Basis]int{"": 0, Billed: 1, Estimated: 2, Unknown: 3}

// Prices are in US dollars for a million tokens. Tokens of a prompt that were
// read from a cache, or written into one, cost as much as any other of the
// prompt where no price of their own is given.
type Prices struct {
	Input      float64  `json:"input"`
	Output     float64  `json:"output"`
	CacheRead  *float64 `json:"cache_read,omitempty"`
	CacheWrite *float64 `json:"cache_write,omitempty"`
}

const million = 1e6

// Of is what tokens cost, in US dollars.
func (p *Prices) Of(u chat.Usage) float64 {
	plain := max(u.Input-u.Cached-u.CacheWrite, 0)
	return (float64(plain)*p.Input + float64(u.Cached)*or(p.CacheRead, p.Input) +
		float64(u.CacheWrite)*or(p.CacheWrite, p.Input) + float64(u.Output)*p.Output) / million
}

// Most is the most that a prompt and its reply can cost, in US dollars.
func (p *Prices) Most(input, output int) float64 {
	dearest := max(p.Input, or(p.CacheRead, 0), or(p.CacheWrite, 0))
	return (float64(input)*dearest + float64(output)*p.Output) / million
}

// Dearest is, of each price, the higher one; nil only if both are.
func Dearest(p, q *Prices) *Prices {
	if p == nil || q == nil {
		return first(p, q)
	}
	read, write := max(or(p.CacheRead, p.Input), or(q.CacheRead, q.Input)), max(or(p.CacheWrite, p.Input), or(q.CacheWrite, q.Input))
	return &Prices{Input: max(p.Input, q.Input), Output: max(p.Output, q.Output), CacheRead: &read, CacheWrite: &write}
}

func first(p, q *Prices) *Prices {
	if p != nil {
		return p
	}
	return q
}

func or(v *float64, otherwise float64) float64 {
	if v != nil {
		return *v
	}
	return otherwise
}

// Cost is what something cost. Its zero value is nothing.
type Cost struct {
	USD   float64 // of the part that is known
	Basis Basis
}

// Read is the cost of a record, in which an amount that isn't known is nil.
func Read(usd *float64, basis string) Cost { return Cost{or(usd, 0), Basis(basis)} }

// Add is the sum, which is known as badly as the worse of both.
func (c Cost) Add(d Cost) Cost {
	c.USD += d.USD
	if rank[d.Basis] > rank[c.Basis] {
		c.Basis = d.Basis
	}
	return c
}

// Amount is in US dollars, nil where it isn't known or where there is none.
func (c Cost) Amount() *float64 {
	if c.Basis == "" || c.Basis == Unknown {
		return nil
	}
	return &c.USD
}

// Text writes an amount of dollars with four digits behind the point, or with as
// many as a small one needs to show two that are not 0.
func Text(usd float64) string {
	digits := 4
	if small := math.Abs(usd); small > 0 && small < 0.001 {
		digits = min(1-int(math.Floor(math.Log10(small))), 20)
	}
	return strconv.FormatFloat(usd, 'f', digits, 64)
}
