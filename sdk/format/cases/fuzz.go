package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Fuzzer makes random texts of what a format is made of and checks what has to
// hold of any text.
type Fuzzer struct {
	Format format.Format
	// Seeds are texts of the format, to take pieces from; none are needed.
	Seeds  []string
	random *rand.Rand
	pieces []string
}

var fuzzTools = []chat.Tool{
	{Name: "write", Parameters: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"integer"},"list":{"type":"array"},"opt":{"type":["string","null"]}}}`)},
	{Name: "now", Parameters: json.RawMessage(`{"type":"object","properties":{}}`)},
}

var fuzzPieces = []string{
	"\n", " ", "\r\n", "x", "é", "\xff", "\xe6\x97", "{", "}", "[", "]", "(", ")", "\"", "'", "\\", ",", ":", "=", "<", ">", "</", "`",
	"null", "True", "-1.5e3", "write", "now", "text", "n", "list", "\"name\": \"write\"", "\"arguments\": {", "\"parameters\": {", "functions.write:0",
	"<function=write>", "<parameter=text>", "</parameter>", "</function>", "<invoke name=\"write\">", "</invoke>", "call:write{", "write(text=\"",
}

// NewFuzzer prepares to fuzz a format. The same seed makes the same texts.
func NewFuzzer(f format.Format, seeds []string, seed uint64) *Fuzzer {
	z := &Fuzzer{Format: f, Seeds: seeds, random: rand.New(rand.NewPCG(seed, 1)), pieces: fuzzPieces}
	for _, m := range f.Markers() {
		z.pieces = append(z.pieces, m, m, m[:len(m)/2])
	}
	for _, s := range seeds {
		for s != "" {
			n := min(len(s), 1+z.random.IntN(12))
			z.pieces = append(z.pieces, s[:n])
			s = s[n:]
		}
	}
	return z
}

// Next makes a text and checks it. A fault is an error that holds the text.
func (z *Fuzzer) Next(ctx context.Context) error {
	var b strings.Builder
	if len(z.Seeds) > 0 && z.random.IntN(2) == 0 {
		// A seed with a piece put somewhere into it.
		s := z.Seeds[z.random.IntN(len(z.Seeds))]
		at := z.random.IntN(len(s) + 1)
		cut := at + z.random.IntN(min(8, len(s)-at)+1)
		b.WriteString(s[:at] + z.piece() + s[cut:])
	} else {
		for range z.random.IntN(16) {
			b.WriteString(z.piece())
		}
	}
	return z.Check(ctx, b.String())
}

func (z *Fuzzer) piece() string { return z.pieces[z.random.IntN(len(z.pieces))] }

// Check checks one text: no panic, events that don't depend on the split, and
// arguments that are JSON where a call is whole.
func (z *Fuzzer) Check(ctx context.Context, text string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("text %q: panic: %v", text, r)
		}
	}()
	o := format.ParseOptions{Tools: fuzzTools, State: format.State{ReasoningOpen: z.random.IntN(3) == 0}}
	whole, err := Parse(ctx, z.Format, o, []string{text})
	if err != nil {
		return err
	}
	joined := format.Join(whole)
	for _, chunks := range [][]string{Bytes(text), Random(z.random, text)} {
		events, err := Parse(ctx, z.Format, o, chunks)
		if err != nil {
			return err
		}
		if got := format.Join(events); !reflect.DeepEqual(joined, got) {
			return fmt.Errorf("text %q: events depend on the split %q\n- %s\n+ %s", text, chunks, show(joined), show(got))
		}
	}
	for _, c := range format.Collect(whole).Calls {
		if !c.Incomplete && !json.Valid([]byte(c.Arguments)) {
			return fmt.Errorf("text %q: arguments of %s are no JSON: %q", text, c.Name, c.Arguments)
		}
	}
	return nil
}
