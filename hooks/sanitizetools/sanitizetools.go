// Package sanitizetools is the hook sanitize-tools: it compares each tool
// call of the model with the schema of the tool and repairs, or only reports,
// what does not fit. What was sampled is never touched: the host keeps the
// original beside what is served.
//
// What it can't repair without guessing it leaves as it is and reports. What
// never enters: knowledge of any one tool, agent or model.
package sanitizetools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/sdk/hook"
)

// Mode says what is done about one kind of fault.
type Mode string

// The modes. All but Off tell of the fault; Fix repairs it, Reject denies the
// whole call.
const (
	Off    Mode = "off"
	Report Mode = "report"
	Fix    Mode = "fix"
	Reject Mode = "reject"
)

// Config has one mode a rule. The empty mode is the rule's default: report
// for missing_required, fix for all others.
type Config struct {
	UnknownKeys     Mode `json:"unknown_keys,omitempty" enum:"off,report,fix,reject" default:"fix" desc:"keys that the schema forbids are left out; keys that it neither names nor forbids are reported, see closed"`
	MissingRequired Mode `json:"missing_required,omitempty" enum:"off,report,fix,reject" default:"report" desc:"fix fills in the schema's own default, where it has one"`
	WrongTypes      Mode `json:"wrong_types,omitempty" enum:"off,report,fix,reject" default:"fix" desc:"\"5\" for 5, 5 for \"5\", \"true\" for true, one item for a list of it, null for an optional value"`
	JSONInStrings   Mode `json:"json_in_strings,omitempty" enum:"off,report,fix,reject" default:"fix" desc:"an object or a list written as a string"`
	RawArguments    Mode `json:"raw_arguments,omitempty" enum:"off,report,fix,reject" default:"fix" desc:"arguments that are no JSON object"`
	NameCase        Mode `json:"name_case,omitempty" enum:"off,report,fix,reject" default:"fix" desc:"names of tools and keys that differ from the declared one by case alone"`
	Closed          bool `json:"closed,omitempty" desc:"treat schemas that do not say additionalProperties as if they said false"`
}

// The rules, as reports name them.
const (
	unknownKeys     = "unknown_keys"
	missingRequired = "missing_required"
	wrongTypes      = "wrong_types"
	jsonInStrings   = "json_in_strings"
	rawArguments    = "raw_arguments"
	nameCase        = "name_case"
)

// Finding is one fault. Pointer is a JSON Pointer into the call: /name, or
// /arguments and what is in it. Before is absent for what was missing, After
// for what was left out and for what was not repaired.
type Finding struct {
	Rule    string          `json:"rule"`
	Pointer string          `json:"pointer"`
	Fixed   bool            `json:"fixed"`
	Before  json.RawMessage `json:"before,omitempty"`
	After   json.RawMessage `json:"after,omitempty"`
}

type sanitizer struct {
	modes  map[string]Mode
	closed bool
}

// New checks the config.
func New(c Config) (hook.Hook, error) {
	s := &sanitizer{closed: c.Closed, modes: map[string]Mode{
		unknownKeys: c.UnknownKeys, missingRequired: c.MissingRequired, wrongTypes: c.WrongTypes,
		jsonInStrings: c.JSONInStrings, rawArguments: c.RawArguments, nameCase: c.NameCase,
	}}
	for rule, m := range s.modes {
		switch m {
		case "":
			s.modes[rule] = Fix
			if rule == missingRequired {
				s.modes[rule] = Report
			}
		case Off, Report, Fix, Reject:
		default:
			return nil, fmt.Errorf("%s is %q, want off, report, fix or reject", rule, m)
		}
	}
	return s, nil
}

// Apply compares one call with its tool.
func (s *sanitizer) Apply(_ context.Context, e *hook.Event) (hook.Result, error) {
	if e.Point() != hook.ToolCall {
		return hook.Pass(), nil
	}
	raw, _ := e.Subject().Get("")
	call, ok := object(raw)
	if !ok {
		return hook.Result{}, fmt.Errorf("the tool call is no object")
	}
	tools, _ := e.Tools().Get("")
	name := unquote(value(call, "name"))
	found := findTool(tools, name)
	w := &walk{sanitizer: s}
	if found == nil {
		if found = findFolded(tools, name); found == nil {
			return hook.Pass(), nil
		}
		right := unquote(value(found, "name"))
		if w.found(nameCase, "/name", quote(name), quote(right)) {
			call = set(call, "name", quote(right))
		}
	}
	if parameters := value(found, "parameters"); parameters != nil {
		call = w.arguments(call, parameters)
	}
	return w.result(call)
}

func (w *walk) result(call []member) (hook.Result, error) {
	if len(w.findings) == 0 {
		return hook.Pass(), nil
	}
	report, err := marshal(w.findings)
	if err != nil {
		return hook.Result{}, fmt.Errorf("write report: %w", err)
	}
	if why := w.rejected(); why != "" {
		name := unquote(value(call, "name"))
		return hook.Result{Action: hook.Deny, Reason: fmt.Sprintf("the call of %s does not fit the tool: %s", name, why), Report: report}, nil
	}
	r := hook.Result{Action: hook.Continue, Report: report}
	for _, f := range w.findings {
		if f.Fixed {
			r.Action, r.Value = hook.Replace, join(call)
		}
	}
	return r, nil
}

// rejected lists the faults whose rule says reject, "" for none.
func (w *walk) rejected() string {
	var why []string
	for _, f := range w.findings {
		if w.modes[f.Rule] == Reject {
			why = append(why, f.Rule+" at "+f.Pointer)
		}
	}
	return strings.Join(why, ", ")
}

func findTool(tools []byte, name string) []member {
	for _, t := range array(tools) {
		if tool, ok := object(t); ok && unquote(value(tool, "name")) == name {
			return tool
		}
	}
	return nil
}

// findFolded finds the only tool whose name differs by case alone.
func findFolded(tools []byte, name string) (found []member) {
	for _, t := range array(tools) {
		if tool, ok := object(t); ok && strings.EqualFold(unquote(value(tool, "name")), name) {
			if found != nil {
				return nil
			}
			found = tool
		}
	}
	return found
}

func init() {
	hook.Register("sanitize-tools", New, hook.Changes(hook.ToolCall),
		hook.Summary("repairs or reports tool calls that do not fit the tool's schema"))
}
