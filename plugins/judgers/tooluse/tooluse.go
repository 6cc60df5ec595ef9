// Package tooluse is the judger tool-use: it looks at the tool calls of a
// rollout, as the trace has them: which were made, with what arguments, how
// often, in what order, and whether they failed. What never enters: whether
// the final answer is right.
package tooluse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/rollout"
)

// Config is what a stage's `with:` sets once.
type Config struct {
	Partial bool `json:"partial,omitempty" desc:"the reward is the part of the checks that hold, not 1 for all and 0 otherwise"`
}

// Input is what `with:` gives for each rollout. Names of tools may hold *,
// which stands for any text.
type Input struct {
	Calls        []Call   `json:"calls,omitempty" desc:"calls that have to be there"`
	Never        []string `json:"never,omitempty" desc:"tools that must not be called"`
	Order        []string `json:"order,omitempty" desc:"tools that have to be called in this order, with any others between them"`
	NoErrorAfter string   `json:"no_error_after,omitempty" desc:"no call after the last one of this tool may fail, nor may that one; it has to be called"`
	NoErrors     bool     `json:"no_errors,omitempty" desc:"no call at all may fail"`
}

// Call is a call that has to be there: how often is it made with all that is
// said here?
type Call struct {
	Tool      string                     `json:"tool" desc:"name of the tool"`
	Arguments map[string]json.RawMessage `json:"arguments,omitempty" desc:"arguments that equal these, others are free; a key that begins with / is a JSON Pointer"`
	Matches   map[string]string          `json:"matches,omitempty" desc:"regular expressions that are found in the text of these arguments"`
	Result    string                     `json:"result,omitempty" desc:"regular expression that is found in the result"`
	OK        bool                       `json:"ok,omitempty" desc:"count only calls that did not fail"`
	Min       *int                       `json:"min,omitempty" desc:"least number of such calls; default 1, or 0 if max is 0"`
	Max       *int                       `json:"max,omitempty" desc:"most of them; default any number"`
}

type toolUse struct{ cfg Config }

// New makes the judger.
func New(cfg Config) (judger.Judger, error) { return toolUse{cfg}, nil }

// check is one thing that holds or doesn't.
type check struct {
	name string
	why  string // empty if it holds
}

// Judge makes every check. What is wrong with the input is an error.
func (t toolUse) Judge(_ context.Context, r *judger.Request) (judger.Verdict, error) {
	var in Input
	if err := r.DecodeInput(&in); err != nil {
		return judger.Verdict{}, err
	}
	checks, err := all(in, r.Rollout().ToolCalls())
	if err != nil {
		return judger.Verdict{}, err
	}
	if len(checks) == 0 {
		return judger.Verdict{}, errors.New("there is nothing to check: give calls, never, order, no_error_after or no_errors")
	}
	held, failed := 0, []string{}
	components := map[string]float64{}
	for _, c := range checks {
		components[c.name] = 1
		if held++; c.why != "" {
			held--
			components[c.name] = 0
			failed = append(failed, c.name+": "+c.why)
		}
	}
	v := judger.Pass(len(failed) == 0)
	if t.cfg.Partial {
		v = judger.Reward(float64(held) / float64(len(checks)))
	}
	v.Components = components
	v.Explanation = strings.Join(failed, "; ")
	return v, nil
}

func all(in Input, calls []rollout.Call) ([]check, error) {
	var out []check
	for i, want := range in.Calls {
		why, err := want.check(calls)
		if err != nil {
			return nil, fmt.Errorf("calls/%d: %w", i, err)
		}
		out = append(out, check{fmt.Sprintf("calls/%d", i), why})
	}
	for i, pattern := range in.Never {
		c := check{name: fmt.Sprintf("never/%d", i)}
		n, err := index(calls, pattern, 0)
		if err != nil {
			return nil, err
		}
		if n >= 0 {
			c.why = fmt.Sprintf("%s was called", calls[n].Name())
		}
		out = append(out, c)
	}
	if len(in.Order) > 0 {
		why, err := order(in.Order, calls)
		if err != nil {
			return nil, err
		}
		out = append(out, check{"order", why})
	}
	if in.NoErrorAfter != "" {
		why, err := noErrorAfter(in.NoErrorAfter, calls)
		if err != nil {
			return nil, err
		}
		out = append(out, check{"no_error_after", why})
	}
	if in.NoErrors {
		out = append(out, check{"no_errors", failure(calls)})
	}
	return out, nil
}

// index finds the first call of a tool at or after a place, -1 if there is
// none.
func index(calls []rollout.Call, pattern string, from int) (int, error) {
	for i := from; i < len(calls); i++ {
		ok, err := matches(pattern, calls[i].Name())
		if err != nil || ok {
			return i, err
		}
	}
	_, err := matches(pattern, "")
	return -1, err
}

// matches compares a name with a pattern in which * is any text. A slash is a
// character like any other.
func matches(pattern, name string) (bool, error) {
	plain := strings.NewReplacer("/", "\x00")
	ok, err := path.Match(plain.Replace(pattern), plain.Replace(name))
	if err != nil || pattern == "" {
		return false, fmt.Errorf("%q is no name of a tool and no pattern", pattern)
	}
	return ok, nil
}

func order(patterns []string, calls []rollout.Call) (string, error) {
	at := 0
	for i, pattern := range patterns {
		n, err := index(calls, pattern, at)
		if err != nil {
			return "", err
		}
		if n < 0 && i == 0 {
			return pattern + " was not called", nil
		}
		if n < 0 {
			return fmt.Sprintf("%s was not called after %s", pattern, patterns[i-1]), nil
		}
		at = n + 1
	}
	return "", nil
}

func noErrorAfter(pattern string, calls []rollout.Call) (string, error) {
	last := -1
	for {
		n, err := index(calls, pattern, last+1)
		if err != nil {
			return "", err
		}
		if n < 0 {
			break
		}
		last = n
	}
	if last < 0 {
		return pattern + " was not called", nil
	}
	return failure(calls[last:]), nil
}

// failure names the first call that failed.
func failure(calls []rollout.Call) string {
	for _, c := range calls {
		if c.IsError() {
			return fmt.Sprintf("a call of %s failed: %s", c.Name(), short(c.Result()))
		}
	}
	return ""
}

func short(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// check counts the calls and says what is wrong with their number.
func (w *Call) check(calls []rollout.Call) (string, error) {
	if err := w.valid(); err != nil {
		return "", err
	}
	result, err := regexp.Compile(w.Result)
	if err != nil {
		return "", fmt.Errorf("result: %w", err)
	}
	patterns := map[string]*regexp.Regexp{}
	for key, p := range w.Matches {
		if patterns[key], err = regexp.Compile(p); err != nil {
			return "", fmt.Errorf("matches: %s: %w", key, err)
		}
	}
	count, near := 0, 0
	for _, c := range calls {
		ok, err := matches(w.Tool, c.Name())
		if err != nil {
			return "", err
		}
		if !ok {
			continue
		}
		near++
		if w.fits(c, patterns) && (!w.OK || !c.IsError()) && (w.Result == "" || result.MatchString(c.Result())) {
			count++
		}
	}
	return w.number(count, near), nil
}

func (w *Call) valid() error {
	for _, n := range []*int{w.Min, w.Max} {
		if n != nil && *n < 0 {
			return errors.New("min and max are not negative")
		}
	}
	if w.Min != nil && w.Max != nil && *w.Min > *w.Max {
		return errors.New("min is larger than max")
	}
	return nil
}

func (w *Call) number(count, near int) string {
	least := 1
	if w.Min != nil {
		least = *w.Min
	} else if w.Max != nil && *w.Max == 0 {
		least = 0
	}
	switch {
	case count < least && near == 0:
		return fmt.Sprintf("%s was not called", w.Tool)
	case count < least && count == near:
		return fmt.Sprintf("%s was called %d times, want at least %d", w.Tool, count, least)
	case count < least:
		return fmt.Sprintf("%s was called %d times, %d of them as wanted, want at least %d", w.Tool, near, count, least)
	case w.Max != nil && count > *w.Max:
		return fmt.Sprintf("%s was called %d times as described, want at most %d", w.Tool, count, *w.Max)
	}
	return ""
}

func (w *Call) fits(c rollout.Call, patterns map[string]*regexp.Regexp) bool {
	for key, want := range w.Arguments {
		got, there := c.Arguments().Get(key)
		if !there {
			got = []byte("null")
		}
		if !equal(got, want) {
			return false
		}
	}
	for key, p := range patterns {
		if got, there := c.Arguments().Get(key); !there || !p.Match(got) {
			return false
		}
	}
	return true
}

// equal compares an argument, a string without its quotes or another value as
// JSON, with a JSON value. Numbers compare by value, objects without regard
// to the order of keys.
func equal(got []byte, want json.RawMessage) bool {
	want = bytes.TrimSpace(want)
	if len(want) > 0 && want[0] == '"' {
		var text string
		return json.Unmarshal(want, &text) == nil && text == string(got)
	}
	a, errA := decode(got)
	b, errB := decode(want)
	return errA == nil && errB == nil && same(a, b)
}

func decode(raw []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return v, d.Decode(&v)
}

func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			if w, there := b[k]; !there || !same(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || sameNumber(a.String(), b.String()))
	}
	return a == b
}

func sameNumber(a, b string) bool {
	const most = 100 // characters; longer numbers are compared as written
	if len(a) > most || len(b) > most {
		return false
	}
	x, _, errX := big.ParseFloat(a, 10, 512, big.ToNearestEven)
	y, _, errY := big.ParseFloat(b, 10, 512, big.ToNearestEven)
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

func init() {
	judger.Register("tool-use", New, judger.Input[Input](),
		judger.Summary("checks which tools were called, how, how often and in what order"))
}
