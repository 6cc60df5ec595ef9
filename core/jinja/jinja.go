// Package jinja renders the chat templates of models: Jinja as transformers
// sets it up, with trim_blocks and lstrip_blocks, loop controls and Python's
// JSON. Every string knows where it is from through all that a template does
// to it, so that what a user wrote is told from what the template says, and
// can't pass for markup.
//
// What never enters: conversations and formats, files, includes, and anything
// that a template could reach outside of the values that it is given.
package jinja

import (
	"context"
	"fmt"
	"time"
)

// Template is a compiled template. It may be used by several goroutines.
type Template struct {
	file  string
	body  []node
	names map[string]bool // all that it spells: variables, attributes, strings
	vars  map[string]bool

	filters map[string]filter
	tests   map[string]test
}

// Error is what is wrong with a template, or with what it was given. Line
// counts from 1.
type Error struct {
	File    string
	Line    int
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message) }

// RaisedError is a conversation that the template itself refuses, by
// raise_exception.
type RaisedError struct {
	File    string
	Line    int
	Message string
}

func (e *RaisedError) Error() string {
	return fmt.Sprintf("the chat template refuses this conversation: %s (%s:%d)", e.Message, e.File, e.Line)
}

// Compile reads a template. Its error is an *Error.
func Compile(file, source string) (*Template, error) {
	tokens, err := lex(file, source)
	if err != nil {
		return nil, err
	}
	t := &Template{file: file, names: map[string]bool{}, vars: map[string]bool{}, filters: filterTable(), tests: testTable()}
	p := &parser{t: t, tokens: tokens, own: map[string]bool{}}
	if t.body, err = p.parse(); err != nil {
		return nil, err
	}
	return t, nil
}

// Reads reports whether the template reads a variable.
func (t *Template) Reads(variable string) bool { return t.vars[variable] }

// Names reports whether the template has a variable, an attribute or a string
// of this name.
func (t *Template) Names(name string) bool { return t.names[name] }

// Options is what a template is run with.
type Options struct {
	Vars map[string]Value
	// Now is the clock of strftime_now; nil is the system's.
	Now func() time.Time
	// Steps bounds how much the template may do; 0 is DefaultSteps.
	Steps int
}

// DefaultSteps is thousands for each message of the longest conversations.
const DefaultSteps = 10_000_000

// Run renders the template. Its error is an *Error or a *RaisedError.
func (t *Template) Run(ctx context.Context, o Options) (Text, error) {
	now := o.Now
	if now == nil {
		now = time.Now
	}
	e := &exec{ctx: ctx, t: t, now: now, steps: o.Steps}
	if e.steps == 0 {
		e.steps = DefaultSteps
	}
	root := &scope{parent: &scope{}}
	for k, v := range globals() {
		root.parent.set(k, v)
	}
	for k, v := range o.Vars {
		root.set(k, v)
	}
	var out builder
	if _, err := e.run(t.body, root, &out); err != nil {
		return Text{}, err
	}
	return out.text(), nil
}
