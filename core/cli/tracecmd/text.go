package tracecmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/trace"
)

// texts turns ids back into text where they are bytes and markers; the
// vocabulary of a real model is not in the store.
type texts struct {
	o     Options
	asked map[string]bool            // formats
	known map[string]token.Tokenizer // by hash
}

func newTexts(o Options) *texts {
	return &texts{o, map[string]bool{}, map[string]token.Tokenizer{}}
}

// prompt returns the text of a call's prompt, if it can be told.
func (t *texts) prompt(ctx context.Context, c *trace.Call) (string, bool) {
	if c.Prompt != "" || len(c.PromptIDs) == 0 {
		return c.Prompt, c.Prompt != ""
	}
	return t.decode(ctx, c, c.PromptIDs)
}

func (t *texts) decode(ctx context.Context, c *trace.Call, ids []int32) (string, bool) {
	if !token.IsBytes(c.Tokenizer) {
		return "", false
	}
	if tokenizer := t.tokenizer(ctx, c); tokenizer != nil {
		return string(tokenizer.Decode(nil, ids)), true
	}
	var b strings.Builder
	for _, id := range ids {
		if id >= 0 && id < 256 {
			b.WriteByte(byte(id))
		} else {
			fmt.Fprintf(&b, "[%d]", id)
		}
	}
	return b.String(), true
}

// tokenizer returns the one that a call used, if its format or that of a call
// before has its markers.
func (t *texts) tokenizer(ctx context.Context, c *trace.Call) token.Tokenizer {
	if t.known[c.Tokenizer] == nil && t.o.Format != nil && !t.asked[c.Format] {
		t.asked[c.Format] = true
		if f, err := t.o.Format(ctx, c.Format); err == nil {
			b := token.NewBytes(f.Markers())
			t.known[b.Hash()] = b
		}
	}
	return t.known[c.Tokenizer]
}

// around is how much is shown on each side of a difference.
const around = 80

// difference is where two sequences part.
type difference struct {
	At   int    `json:"at"`             // bytes or ids that both begin with
	Unit string `json:"unit"`           // "bytes" or "ids"
	Same string `json:"same,omitempty"` // what comes before
	A    string `json:"a"`
	B    string `json:"b"`
}

// differ compares two texts, nil if they are equal.
func differ(a, b string) *difference {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	if n == len(a) && n == len(b) {
		return nil
	}
	return &difference{At: n, Unit: "bytes", Same: clip(a[max(0, n-around):n]), A: clip(a[n:min(len(a), n+around)]), B: clip(b[n:min(len(b), n+around)])}
}

// clip drops the halves of runes at the ends of a piece of text.
func clip(s string) string { return strings.ToValidUTF8(s, "") }

// differIDs compares ids that can't be decoded, nil if they are equal.
func differIDs(a, b []int32) *difference {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	if n == len(a) && n == len(b) {
		return nil
	}
	const ids = 8
	show := func(s []int32) string { return fmt.Sprint(s[n:min(len(s), n+ids)]) }
	return &difference{At: n, Unit: "ids", Same: fmt.Sprint(a[max(0, n-ids):n]), A: show(a), B: show(b)}
}

func (d *difference) print(w *strings.Builder, indent, a, b string) {
	fmt.Fprintf(w, "%sequal up to %s %d: …%q\n", indent, strings.TrimSuffix(d.Unit, "s"), d.At, d.Same)
	fmt.Fprintf(w, "%s%s goes on %q\n", indent, a, d.A)
	fmt.Fprintf(w, "%s%s goes on %q\n", indent, b, d.B)
}
