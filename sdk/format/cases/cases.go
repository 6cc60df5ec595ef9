// Package cases runs parser cases: a text that a model wrote, the tools that
// it was offered, and what must come out. Each case is parsed whole and under
// many splits. What never enters: which formats there are.
package cases

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Case is one line of a cases file.
type Case struct {
	ID            string      `json:"id"`
	Format        string      `json:"format"`
	Tools         []chat.Tool `json:"tools"`
	Text          string      `json:"text"`
	ReasoningOpen bool        `json:"reasoning_open,omitempty"`
	Want          Want        `json:"want"`
	Source        string      `json:"source,omitempty"`
	Note          string      `json:"note,omitempty"`
}

// Want is what a parse must give. Outer whitespace of reasoning and content
// doesn't count; arguments are compared as JSON values, integers exactly.
type Want struct {
	Reasoning string `json:"reasoning"`
	Content   string `json:"content"`
	Calls     []Call `json:"calls"`
}

// Call is a wanted call.
type Call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Read reads a cases file, strictly. file names it in errors.
func Read(file string, r io.Reader) ([]Case, error) {
	var out []Case
	var errs []error
	seen := map[string]int{}
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			c, bad := readCase(line)
			switch first, twice := seen[c.ID]; {
			case bad != nil:
				errs = append(errs, fmt.Errorf("%s:%d: %w", file, n, bad))
			case twice:
				errs = append(errs, fmt.Errorf("%s:%d: case %q is there already, in line %d", file, n, c.ID, first))
			default:
				seen[c.ID] = n
				out = append(out, c)
			}
		}
		if errors.Is(err, io.EOF) {
			return out, errors.Join(errs...)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
}

func readCase(line []byte) (Case, error) {
	var c Case
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, err
	}
	if c.ID == "" || c.Format == "" {
		return c, errors.New("a case needs an id and a format")
	}
	return c, nil
}

// Run parses a case whole, byte by byte, rune by rune and under random splits,
// and returns what is wrong with the first that goes wrong.
func Run(ctx context.Context, f format.Format, c Case, splits int) error {
	whole, err := parse(ctx, f, c, []string{c.Text})
	if err != nil {
		return err
	}
	if diff := Compare(format.Collect(whole), c.Want); diff != "" {
		return fmt.Errorf("whole: %s", diff)
	}
	again, err := parse(ctx, f, c, []string{c.Text})
	if err != nil {
		return err
	}
	random := drawn(whole, again)
	joined := format.Join(without(whole, random))
	check := func(how string, chunks []string) error {
		events, err := parse(ctx, f, c, chunks)
		if err != nil {
			return err
		}
		events = without(events, random)
		if got := format.Join(events); !reflect.DeepEqual(joined, got) {
			return fmt.Errorf("%s: events differ from those of the whole text\n- %s\n+ %s", how, show(joined), show(got))
		}
		return nil
	}
	if err := check("byte by byte", Bytes(c.Text)); err != nil {
		return err
	}
	if err := check("rune by rune", strings.Split(c.Text, "")); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(len(c.Text)), 1))
	for range splits {
		chunks := Random(r, c.Text)
		if err := check(fmt.Sprintf("split %q", chunks), chunks); err != nil {
			return err
		}
	}
	return nil
}

// drawn reports whether two parses of a text differ in the ids of calls, which a
// format behind a transport draws itself.
func drawn(a, b []format.Event) bool {
	ids := func(events []format.Event) (out []string) {
		for _, e := range events {
			out = append(out, e.ID)
		}
		return out
	}
	return !slices.Equal(ids(a), ids(b))
}

// without takes the ids off events, if they were drawn.
func without(events []format.Event, drawn bool) []format.Event {
	if drawn {
		for i := range events {
			events[i].ID = ""
		}
	}
	return events
}

// Parse parses a text in chunks. Ids count from call_1, so that parses
// compare.
func Parse(ctx context.Context, f format.Format, o format.ParseOptions, chunks []string) ([]format.Event, error) {
	n := 0
	o.NewID = func() string {
		n++
		return fmt.Sprintf("call_%d", n)
	}
	p, err := f.Open(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var events []format.Event
	for _, chunk := range chunks {
		events = p.Feed(events, []byte(chunk))
	}
	events = p.Finish(events)
	return events, p.Err()
}

func parse(ctx context.Context, f format.Format, c Case, chunks []string) ([]format.Event, error) {
	o := format.ParseOptions{Tools: c.Tools, State: format.State{ReasoningOpen: c.ReasoningOpen}}
	return Parse(ctx, f, o, chunks)
}

// Bytes splits a text into single bytes.
func Bytes(text string) []string {
	out := make([]string, len(text))
	for i := range out {
		out[i] = text[i : i+1]
	}
	return out
}

// Random splits a text at random places, also inside runes.
func Random(r *rand.Rand, text string) []string {
	var out []string
	longest := 1 + r.IntN(1+min(len(text), 40))
	for text != "" {
		n := min(len(text), 1+r.IntN(longest))
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}

// Compare says how a parse differs from what is wanted, "" when it doesn't.
func Compare(got format.Result, want Want) string {
	var diff []string
	line := func(what, want, got string) {
		if want != got {
			diff = append(diff, fmt.Sprintf("%s:\n- want %s\n+ got  %s", what, want, got))
		}
	}
	line("reasoning", quote(want.Reasoning), quote(got.Reasoning))
	line("content", quote(want.Content), quote(got.Content))
	line("number of calls", fmt.Sprint(len(want.Calls)), fmt.Sprint(len(got.Calls)))
	for i := range min(len(want.Calls), len(got.Calls)) {
		w, g := want.Calls[i], got.Calls[i]
		line(fmt.Sprintf("call %d: name", i), w.Name, g.Name)
		if !Same(w.Arguments, []byte(g.Arguments)) {
			line(fmt.Sprintf("call %d: arguments", i), string(w.Arguments), g.Arguments)
		}
	}
	return strings.Join(diff, "\n")
}

func quote(s string) string { return fmt.Sprintf("%q", strings.TrimSpace(s)) }

// Same compares two JSON texts as values: key order and spacing don't count,
// integers are exact.
func Same(a, b []byte) bool {
	x, errX := value(a)
	y, errY := value(b)
	return errX == nil && errY == nil && utf8.Valid(b) && reflect.DeepEqual(x, y)
}

func value(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("text after the value")
	}
	return exact(v), nil
}

// exact turns numbers into fractions, which compare by value.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok {
			return "number " + r.String()
		}
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}

func show(events []format.Event) string {
	b, _ := json.Marshal(events) // events always have a JSON form
	return string(b)
}
