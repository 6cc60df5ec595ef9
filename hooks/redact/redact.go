// Package redact is the hook redact: it replaces words and patterns in what a
// model is asked, before the model sees it. What the model itself wrote stays
// as it is, because a prompt that differs from what was sampled is no longer
// the continuation of it.
//
// What never enters: the hiding of secrets in what is stored, which is the
// host's own work.
package redact

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
	Words       []string `json:"words,omitempty" desc:"replaced where they stand as they are written"`
	Patterns    []string `json:"patterns,omitempty" desc:"regular expressions; what they match is replaced, or, if the replacement names groups, rewritten"`
	Kinds       []string `json:"kinds,omitempty" desc:"patterns that are built in: email, ipv4, card, private_key, bearer"`
	Roles       []string `json:"roles,omitempty" desc:"whose text: system, user, tool; default all three"`
	Replacement string   `json:"replacement,omitempty" default:"[redacted]" desc:"what comes in their place; $1 is a group of a pattern"`
}

// kinds are the patterns that are built in. They find what is written plainly
// and prove nothing by finding nothing.
var kinds = map[string]string{
	"email":       `\b[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}\b`,
	"ipv4":        `\b(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)\b`,
	"card":        `\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{1,7}\b`,
	"private_key": `(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`,
	"bearer":      `(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}=*`,
}

type redact struct {
	words    *strings.Replacer
	patterns []*regexp.Regexp
	with     string
	roles    []chat.Role
}

// New checks the config.
func New(c Config) (hook.Hook, error) {
	if c.Replacement == "" {
		c.Replacement = "[redacted]"
	}
	r := &redact{with: c.Replacement}
	var pairs []string
	for _, w := range c.Words {
		if w == "" {
			return nil, errors.New("words: an empty word stands everywhere")
		}
		pairs = append(pairs, w, c.Replacement)
	}
	r.words = strings.NewReplacer(pairs...)
	patterns := slices.Clone(c.Patterns)
	for _, k := range c.Kinds {
		p, ok := kinds[k]
		if !ok {
			return nil, fmt.Errorf("kinds: there is no %q, want some of email, ipv4, card, private_key, bearer", k)
		}
		patterns = append(patterns, p)
	}
	for _, p := range patterns {
		re, err := regexp.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("patterns: %w", err)
		}
		if re.MatchString("") {
			return nil, fmt.Errorf("patterns: %q matches the empty text, which stands everywhere", p)
		}
		r.patterns = append(r.patterns, re)
	}
	if len(pairs) == 0 && len(patterns) == 0 {
		return nil, errors.New("nothing to redact: give words, patterns or kinds")
	}
	if c.Roles == nil {
		c.Roles = []string{"system", "user", "tool"}
	}
	for _, role := range c.Roles {
		if !slices.Contains([]string{"system", "user", "tool"}, role) {
			return nil, fmt.Errorf("roles: %q is none of system, user, tool", role)
		}
		r.roles = append(r.roles, chat.Role(role))
	}
	return r, nil
}

// Apply replaces in the texts of a request.
func (r *redact) Apply(_ context.Context, e *hook.Event) (hook.Result, error) {
	if e.Point() != hook.Request {
		return hook.Pass(), nil
	}
	request, _ := e.Subject().Get("")
	count := 0
	out, err := hook.EditText(request, func(role chat.Role, text string) string {
		if !slices.Contains(r.roles, role) {
			return text
		}
		edited := r.edit(text)
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

func (r *redact) edit(text string) string {
	text = r.words.Replace(text)
	for _, p := range r.patterns {
		text = p.ReplaceAllString(text, r.with)
	}
	return text
}

func init() {
	hook.Register("redact", New, hook.Changes(hook.Request),
		hook.Summary("replaces words and patterns in what a model is asked"))
}
