// Package toolguard is the hook tool-guard: it lets tool calls pass or denies
// them, by the tool's name and by patterns over the arguments. It guards what
// a model asks for; it is no sandbox for what a tool then does.
//
// What never enters: repairs of calls, which are those of sanitize-tools.
package toolguard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// Config is the hook's `with:`.
type Config struct {
	Rules   []Rule `json:"rules" desc:"the first rule that matches a call decides"`
	Default string `json:"default,omitempty" enum:"allow,deny" desc:"what becomes of a call that no rule matches; default allow"`
}

// Rule matches a call when its tool and all of its patterns do.
type Rule struct {
	Action    string            `json:"action" enum:"allow,deny"`
	Tool      string            `json:"tool,omitempty" desc:"name of the tool, without regard to case; * stands for any text; default all tools"`
	Arguments map[string]string `json:"arguments,omitempty" desc:"regular expressions by argument, found in its text; a key that begins with / is a JSON Pointer; an argument that isn't there doesn't match; to deny, names match in any case, and arguments that are no object match"`
	Any       string            `json:"any,omitempty" desc:"regular expression that is found in some key or value of the arguments"`
	Reason    string            `json:"reason,omitempty" desc:"what the model is told of a call that is denied"`
}

type rule struct {
	deny      bool
	tool      string // in lower case
	arguments map[string]*regexp.Regexp
	any       *regexp.Regexp
	reason    string
}

type guard struct {
	rules []rule
	deny  bool // what no rule matches
}

// New checks the config.
func New(c Config) (hook.Hook, error) {
	g := &guard{}
	var err error
	if g.deny, err = denies(c.Default, "allow"); err != nil {
		return nil, fmt.Errorf("default: %w", err)
	}
	for i, r := range c.Rules {
		one, err := compile(r)
		if err != nil {
			return nil, fmt.Errorf("rules/%d: %w", i, err)
		}
		g.rules = append(g.rules, one)
	}
	return g, nil
}

func denies(action, absent string) (bool, error) {
	if action == "" {
		action = absent
	}
	switch action {
	case "deny":
		return true, nil
	case "allow":
		return false, nil
	}
	return false, fmt.Errorf("action is %q, want allow or deny", action)
}

func compile(r Rule) (rule, error) {
	out := rule{tool: strings.ToLower(r.Tool), arguments: map[string]*regexp.Regexp{}, reason: r.Reason}
	var err error
	if out.deny, err = denies(r.Action, ""); err != nil {
		return out, err
	}
	if out.tool == "" {
		out.tool = "*"
	}
	if _, err := path.Match(out.tool, ""); err != nil {
		return out, fmt.Errorf("tool %q is no pattern", r.Tool)
	}
	for key, pattern := range r.Arguments {
		if out.arguments[key], err = regexp.Compile(pattern); err != nil {
			return out, fmt.Errorf("arguments: %s: %w", key, err)
		}
	}
	if r.Any != "" {
		if out.any, err = regexp.Compile(r.Any); err != nil {
			return out, fmt.Errorf("any: %w", err)
		}
	}
	return out, nil
}

// Apply lets a call pass or denies it.
func (g *guard) Apply(_ context.Context, e *hook.Event) (hook.Result, error) {
	if e.Point() != hook.ToolCall {
		return hook.Pass(), nil
	}
	name := e.Subject().String("name")
	// Which of two values an agent takes is not for us to guess.
	arguments, _ := e.Subject().Get("arguments")
	if key, twice := repeated(arguments); twice && (g.deny || len(g.rules) > 0) {
		return denied(name, fmt.Sprintf("its arguments name %q more than once", key)), nil
	}
	for i := range g.rules {
		if r := &g.rules[i]; r.matches(name, e) {
			if r.deny {
				return denied(name, r.reason), nil
			}
			return hook.Pass(), nil
		}
	}
	if g.deny {
		return denied(name, "no rule allows it"), nil
	}
	return hook.Pass(), nil
}

func denied(name, reason string) hook.Result {
	text := "the call of " + name + " was not let through"
	if reason != "" {
		text += ": " + reason
	}
	return hook.Result{Action: hook.Deny, Reason: text}
}

func (r *rule) matches(name string, e *hook.Event) bool {
	// A tool's name may hold slashes, which path.Match takes for more than
	// they are here.
	plain := strings.NewReplacer("/", "\x00")
	if ok, err := path.Match(plain.Replace(r.tool), plain.Replace(strings.ToLower(name))); err != nil || !ok {
		return false
	}
	arguments := e.Subject().At("arguments")
	for key, pattern := range r.arguments {
		if r.deny && suspect(arguments, key, pattern) {
			continue
		}
		if value, there := arguments.Get(key); !there || !pattern.Match(value) {
			return false
		}
	}
	if r.any != nil {
		raw, _ := arguments.Get("")
		return found(r.any, raw)
	}
	return true
}

// suspect is how a rule that denies looks at an argument. Agents take names of
// arguments without regard to case, and repair arguments that are no object, so
// that both count here, where they don't for a rule that allows.
func suspect(arguments doc.Object, key string, pattern *regexp.Regexp) bool {
	raw, there := arguments.Get("")
	if !there || len(bytes.TrimSpace(raw)) == 0 {
		return false
	}
	if raw = bytes.TrimSpace(raw); !json.Valid(raw) || raw[0] != '{' {
		return true
	}
	names := []string{key}
	if strings.HasPrefix(key, "/") {
		names = strings.Split(key[1:], "/")
		for i, n := range names {
			names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(n)
		}
	}
	return slices.ContainsFunc(below([]json.RawMessage{raw}, names), func(value json.RawMessage) bool {
		var text string
		if json.Unmarshal(value, &text) == nil && value[0] == '"' {
			return pattern.MatchString(text)
		}
		return pattern.Match(value)
	})
}

// below are the values at a path of names, in any case.
func below(at []json.RawMessage, names []string) []json.RawMessage {
	for _, name := range names {
		var next []json.RawMessage
		for _, raw := range at {
			var fields map[string]json.RawMessage
			var items []json.RawMessage
			if json.Unmarshal(raw, &fields) == nil {
				for key, value := range fields {
					if strings.EqualFold(key, name) {
						next = append(next, value)
					}
				}
			} else if i, err := strconv.Atoi(name); err == nil && json.Unmarshal(raw, &items) == nil && i >= 0 && i < len(items) {
				next = append(next, items[i])
			}
		}
		at = next
	}
	return at
}

// found looks at each key and each value, decoded, so that an escape hides
// nothing, and at text that is no JSON as a whole.
func found(pattern *regexp.Regexp, raw []byte) bool {
	if !json.Valid(raw) {
		return pattern.Match(raw)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if _, delimiter := token.(json.Delim); !delimiter && token != nil && pattern.MatchString(fmt.Sprint(token)) {
			return true
		}
	}
}

// repeated is a key that some object of the JSON has more than once.
func repeated(raw []byte) (string, bool) {
	if !json.Valid(raw) {
		return "", false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	var open []map[string]bool // of each object and list around; nil for a list
	key := false               // the next string is a key
	for {
		token, err := d.Token()
		if err != nil {
			return "", false
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				open = append(open, map[string]bool{})
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
		case string:
			if key {
				seen := open[len(open)-1]
				if seen[t] {
					return t, true
				}
				seen[t], key = true, false
				continue
			}
		}
		// A value, or an object's begin or end, is over: in an object a key
		// comes next.
		key = len(open) > 0 && open[len(open)-1] != nil
	}
}

func init() {
	hook.Register("tool-guard", New, hook.Changes(hook.ToolCall),
		hook.Summary("allows or denies tool calls by name and by patterns over their arguments"))
}
