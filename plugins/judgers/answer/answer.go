// Package answer is the judger that compares the agent's final answer with
// the one that is expected: it finds the answer in the final text, normalises
// both sides and compares. What never enters: models as judges, and anything
// that needs more than the final text.
package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock-dev/penstock/sdk/judger"
)

// Config is what a stage's `with:` sets once.
type Config struct {
	Mode      string     `json:"mode,omitempty" enum:"exact,includes,regex" desc:"exact (the default): the answer equals what is expected; includes: it contains it; regex: what is expected is a pattern that is found in it"`
	Normalize *[]string  `json:"normalize,omitempty" desc:"applied to both sides, in order: trim, lower, spaces, punctuation, articles, number; default trim, and number if a number is expected"`
	Extract   *[]string  `json:"extract,omitempty" desc:"where the answer is looked for, the first that is there: boxed, answer, final_answer, hashes, last_number, text; default boxed, answer, final_answer, hashes, text, and text alone for includes and regex"`
	Tolerance *Tolerance `json:"tolerance,omitempty" desc:"compare as numbers, which may differ by the larger of both"`
}

// Tolerance is how far two numbers may be apart.
type Tolerance struct {
	Abs float64 `json:"abs,omitempty" desc:"absolute"`
	Rel float64 `json:"rel,omitempty" desc:"times the expected number"`
}

// Input is what `with:` gives for each rollout.
type Input struct {
	Expect json.RawMessage `json:"expect" desc:"the expected answer: a string, a number, true or false, or a list of answers that are all right"`
}

// The modes.
const (
	exact    = "exact"
	includes = "includes"
	regex    = "regex"
)

type answer struct {
	cfg       Config
	normalize []string // nil: the default
	extract   []string
}

// New checks the config.
func New(cfg Config) (judger.Judger, error) {
	if cfg.Mode == "" {
		cfg.Mode = exact
	}
	if !slices.Contains([]string{exact, includes, regex}, cfg.Mode) {
		return nil, fmt.Errorf("mode is %q, want exact, includes or regex", cfg.Mode)
	}
	a := &answer{cfg: cfg, extract: []string{"boxed", "answer", "final_answer", "hashes", "text"}}
	if cfg.Mode != exact {
		a.extract = []string{"text"}
	}
	if cfg.Extract != nil {
		a.extract = *cfg.Extract
		if len(a.extract) == 0 {
			return nil, errors.New("extract is an empty list; the whole text is [text]")
		}
	}
	for _, name := range a.extract {
		if extractors[name] == nil {
			return nil, fmt.Errorf("extract: there is no %q, want some of boxed, answer, final_answer, hashes, last_number, text", name)
		}
	}
	if cfg.Normalize != nil {
		a.normalize = append([]string{}, *cfg.Normalize...)
	}
	for _, name := range a.normalize {
		if normalizers[name] == nil {
			return nil, fmt.Errorf("normalize: there is no %q, want some of trim, lower, spaces, punctuation, articles, number", name)
		}
	}
	if t := cfg.Tolerance; t != nil {
		if cfg.Mode != exact {
			return nil, errors.New("tolerance goes with mode exact only")
		}
		if !(t.Abs >= 0) || !(t.Rel >= 0) || math.IsInf(t.Abs, 0) || math.IsInf(t.Rel, 0) {
			return nil, errors.New("tolerance: abs and rel are finite and not negative")
		}
	}
	return a, nil
}

// expected is one right answer.
type expected struct {
	text   string
	number bool // written as a number in JSON
}

func readExpect(raw json.RawMessage) ([]expected, error) {
	raw = json.RawMessage(strings.TrimSpace(string(raw)))
	if len(raw) == 0 || string(raw) == "null" {
		return nil, errors.New("expect is missing")
	}
	if raw[0] == '[' {
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, fmt.Errorf("expect: %w", err)
		}
		if len(items) == 0 {
			return nil, errors.New("expect is an empty list")
		}
		var out []expected
		for _, item := range items {
			if len(item) > 0 && item[0] == '[' {
				return nil, errors.New("expect is a list of lists")
			}
			one, err := readExpect(item)
			if err != nil {
				return nil, err
			}
			out = append(out, one...)
		}
		return out, nil
	}
	switch raw[0] {
	case '{':
		return nil, errors.New("expect is an object, want a string or a number")
	case '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("expect: %w", err)
		}
		if strings.TrimSpace(text) == "" {
			return nil, errors.New("expect is empty")
		}
		return []expected{{text: text}}, nil
	case 't', 'f':
		return []expected{{text: string(raw)}}, nil
	}
	return []expected{{string(raw), true}}, nil
}

// Judge gives 1 for a right answer and 0 for a wrong one or none. What is
// wrong with the question, not with the answer, is an error.
func (a *answer) Judge(_ context.Context, r *judger.Request) (judger.Verdict, error) {
	var in Input
	if err := r.DecodeInput(&in); err != nil {
		return judger.Verdict{}, err
	}
	want, err := readExpect(in.Expect)
	if err != nil {
		return judger.Verdict{}, err
	}
	got, from, found := a.find(r.Rollout().FinalText())
	if !found {
		v := judger.Pass(false)
		v.Label = "no_answer"
		v.Explanation = "no answer found by " + strings.Join(a.extract, ", ")
		return v, nil
	}
	var v judger.Verdict
	for _, w := range want {
		ok, err := a.right(got, w)
		if err != nil {
			return judger.Verdict{}, err
		}
		v = judger.Pass(ok)
		v.Label = map[bool]string{true: "correct", false: "wrong"}[ok]
		v.Explanation = fmt.Sprintf("want %s, got %s (by %s)", shown(w.text), shown(got), from)
		if ok {
			break
		}
	}
	return v, nil
}

// find takes the first extractor that finds something.
func (a *answer) find(text string) (got, from string, found bool) {
	for _, name := range a.extract {
		if got, found = extractors[name](text); found {
			return got, name, true
		}
	}
	return "", "", false
}

func (a *answer) right(got string, want expected) (bool, error) {
	if a.cfg.Tolerance != nil {
		return a.near(got, want.text)
	}
	steps := a.normalize
	if steps == nil {
		steps = []string{"trim"}
		if want.number {
			steps = []string{"trim", "number"}
		}
	}
	got = normalize(got, steps)
	if a.cfg.Mode == regex {
		re, err := regexp.Compile(want.text)
		if err != nil {
			return false, fmt.Errorf("expect is no pattern: %w", err)
		}
		return re.MatchString(got), nil
	}
	w := normalize(want.text, steps)
	if a.cfg.Mode == includes {
		if w == "" {
			return false, fmt.Errorf("nothing is left of the expected %s after normalize", shown(want.text))
		}
		return strings.Contains(got, w), nil
	}
	return got == w, nil
}

// near compares as numbers, exactly.
func (a *answer) near(got, want string) (bool, error) {
	w, ok := number(want)
	if !ok {
		return false, fmt.Errorf("a tolerance is set, but the expected %s is no number", shown(want))
	}
	g, ok := number(got)
	if !ok {
		return false, nil
	}
	allowed := new(big.Rat).Abs(w)
	allowed.Mul(allowed, new(big.Rat).SetFloat64(a.cfg.Tolerance.Rel))
	if abs := new(big.Rat).SetFloat64(a.cfg.Tolerance.Abs); abs.Cmp(allowed) > 0 {
		allowed = abs
	}
	apart := g.Sub(g, w)
	return apart.Abs(apart).Cmp(allowed) <= 0, nil
}

// shown quotes a text, shortened.
func shown(text string) string {
	const most = 100
	if len(text) > most {
		cut := most
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return fmt.Sprintf("%q", text)
}

func init() {
	judger.Register("answer", New, judger.Input[Input](),
		judger.Summary("compares the final answer with the expected one: exact, includes, regex, numbers"))
}
