// Package stripvolatile is the hook strip-volatile: it takes out of a request
// what agents write anew on every turn or every run, such as billing lines and
// today's date. A prompt whose beginning changes is no continuation of the one
// before: it costs the engine's prefix cache, and forks what would be one
// training row.
//
// What never enters: what the model wrote, what a tool gave, and what a user
// wrote outside of the blocks that agents add to it.
package stripvolatile

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// Config is the hook's `with:`.
type Config struct {
	Kinds    []string `json:"kinds,omitempty" desc:"what is taken out: billing, date, time, tokens; default all"`
	Patterns []Rule   `json:"patterns,omitempty" desc:"more of it, in system texts and in blocks"`
	Blocks   []string `json:"blocks,omitempty" desc:"tags of the blocks that agents add to what a user says; default system-reminder, env, environment_context, environment_details"`
}

// Rule replaces what a pattern matches.
type Rule struct {
	Match string `json:"match" desc:"a regular expression"`
	With  string `json:"with,omitempty" desc:"what comes in its place, $1 is a group; default nothing"`
}

const (
	day   = `(?:\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|(?:[A-Z][a-z]{2,8},? )?(?:[A-Z][a-z]{2,8} \d{1,2}(?:st|nd|rd|th)?,? \d{4}|\d{1,2} [A-Z][a-z]{2,8} \d{4}))`
	clock = `(?:,? (?:at )?\d{1,2}:\d{2}(?::\d{2})?(?: ?[AaPp][Mm])?(?: \(?[A-Za-z]+(?:/[A-Za-z_]+|[+-]\d+(?::\d+)?)?\)?)?)`
)

// kinds are what is known to change. Each leaves a text that says what stood
// there, so that the prompt still reads well; a billing line is no text to
// read and goes as a whole.
var kinds = map[string][]Rule{
	"billing": {{`(?m)^x-anthropic-billing-header:[^\n]*\n?`, ""}},
	"date":    {{`((?i:today(?:'s date|’s date| date)?(?: is| it is)?|(?:the )?current date(?: is| and time)?|date):?[ \t]+)` + day + clock + `?`, "${1}(a day)"}, {`((?i:<current_?date>)\s*)` + day, "${1}(a day)"}},
	"time":    {{`\b\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?`, "(a time)"}, {`((?i:current time(?: is)?):?[ \t]+)(?:` + day + `)?` + clock, "${1}(a time)"}, {`((?i:current time(?: is)?):?[ \t]+)\d{1,2}:\d{2}(?::\d{2})?(?: ?[AaPp][Mm])?`, "${1}(a time)"}},
	"tokens":  {{`(?i)(token usage: )\d+/\d+; \d+ remaining`, "${1}(some)"}, {`(?i)\b\d[\d,]* tokens (left|remaining)`, "some tokens $1"}},
}

// order is that in which the kinds are taken out.
var order = []string{"billing", "date", "time", "tokens"}

type rule struct {
	match *regexp.Regexp
	with  string
}

type strip struct {
	rules  []rule
	blocks []*regexp.Regexp
}

// New checks the config.
func New(c Config) (hook.Hook, error) {
	if c.Kinds == nil {
		c.Kinds = order
	}
	if c.Blocks == nil {
		c.Blocks = []string{"system-reminder", "env", "environment_context", "environment_details"}
	}
	var all []Rule
	for _, k := range c.Kinds {
		if kinds[k] == nil {
			return nil, fmt.Errorf("kinds: there is no %q, want some of %s", k, strings.Join(order, ", "))
		}
	}
	for _, k := range order {
		if slices.Contains(c.Kinds, k) {
			all = append(all, kinds[k]...)
		}
	}
	s := &strip{}
	for _, r := range append(all, c.Patterns...) {
		re, err := regexp.Compile(r.Match)
		if err != nil {
			return nil, fmt.Errorf("patterns: %w", err)
		}
		if re.MatchString("") {
			return nil, fmt.Errorf("patterns: %q matches the empty text, which stands everywhere", r.Match)
		}
		s.rules = append(s.rules, rule{re, r.With})
	}
	if len(s.rules) == 0 {
		return nil, errors.New("nothing to take out: give kinds or patterns")
	}
	for _, tag := range c.Blocks {
		quoted := regexp.QuoteMeta(tag)
		re, err := regexp.Compile(`(?s)<` + quoted + `(?:\s[^>]*)?>.*?</` + quoted + `>`)
		if err != nil {
			return nil, fmt.Errorf("blocks: %w", err)
		}
		s.blocks = append(s.blocks, re)
	}
	return s, nil
}

// Apply edits system texts, and the blocks in a user's.
func (s *strip) Apply(_ context.Context, e *hook.Event) (hook.Result, error) {
	if e.Point() != hook.Request {
		return hook.Pass(), nil
	}
	request, _ := e.Subject().Get("")
	count := 0
	out, err := hook.EditText(request, func(role chat.Role, text string) string {
		edited := s.edit(role, text)
		if edited != text {
			count++
		}
		return edited
	})
	if err != nil || out == nil {
		return hook.Pass(), err
	}
	return hook.Result{Action: hook.Replace, Value: out, Report: fmt.Appendf(nil, `{"texts":%d}`, count)}, nil
}

func (s *strip) edit(role chat.Role, text string) string {
	switch role {
	case chat.System:
		return s.replace(text)
	case chat.User:
		for _, block := range s.blocks {
			text = block.ReplaceAllStringFunc(text, s.replace)
		}
	}
	return text
}

func (s *strip) replace(text string) string {
	for _, r := range s.rules {
		text = r.match.ReplaceAllString(text, r.with)
	}
	return text
}

func init() {
	hook.Register("strip-volatile", New, hook.Changes(hook.Request),
		hook.Summary("takes out what agents write anew on every turn: billing lines, dates, token counts"))
}
