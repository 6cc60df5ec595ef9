package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// trials are conversations that a format's templates are tried on when it is
// read: a template that names a field that isn't there is else an error in the
// middle of a run.
var trials = []string{
	`{"messages":[{"role":"user","parts":[{"type":"text","text":"hello"}]}]}`,
	`{"tools":[{"name":"look","description":"looks","parameters":{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"}},"required":["path"]}}],
	"messages":[
		{"role":"system","parts":[{"type":"text","text":"be brief"}]},
		{"role":"user","parts":[{"type":"text","text":"look at a and b"}]},
		{"role":"assistant","parts":[{"type":"reasoning","text":"both"},{"type":"text","text":"I look."},
			{"type":"tool_call","id":"call_1","name":"look","arguments":{"path":"a","n":1}},{"type":"tool_call","id":"call_2","name":"look","arguments":{"path":"b"}}]},
		{"role":"tool","parts":[{"type":"tool_result","id":"call_1","content":[{"type":"text","text":"1"}]}]},
		{"role":"tool","parts":[{"type":"tool_result","id":"call_2","is_error":true,"content":[{"type":"text","text":"none"}]}]},
		{"role":"assistant","parts":[{"type":"text","text":"a is 1"}]},
		{"role":"user","parts":[{"type":"text","text":"thanks"}]}]}`,
}

// try renders the trials, with reasoning asked for, refused and not said.
func try(s *Spec) error {
	r, err := newRenderer(s)
	if err != nil {
		return err
	}
	yes, no := true, false
	for _, text := range trials {
		for _, thinking := range []*bool{nil, &yes, &no} {
			var c chat.Conversation
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				return fmt.Errorf("read a trial: %w", err)
			}
			c.Thinking = thinking
			if _, err := r.run(&c, -1, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// tried reports an error of a template at its line in the file.
func (d *specDecoder) tried(err error, root *yaml.Node) {
	if err == nil {
		return
	}
	message, hint := err.Error(), ""
	piece, line := "", 0
	if m := templatePlace.FindStringSubmatch(message); m != nil {
		piece = m[1]
		line, _ = strconv.Atoi(m[2])
		message = message[strings.Index(message, m[0])+len(m[0]):]
	}
	var failed template.ExecError
	if errors.As(err, &failed) {
		if _, rest, ok := strings.Cut(message, ": "); ok && strings.HasPrefix(message, "executing ") {
			message = rest
		}
	}
	if m := unknownField.FindStringSubmatch(message); m != nil {
		hint = "it has " + strings.Join(fieldsOf(m[2]), ", ")
		if near := Nearest(m[1], fieldsOf(m[2])); near != "" {
			hint = "did you mean ." + near + "? " + hint
		}
		message = "there is no ." + m[1]
	}
	render := find(root, "render")
	at := find(render, piece)
	if at == render {
		at = find(render, "define", piece)
	}
	where := *at
	switch {
	case at.Style == yaml.LiteralStyle || at.Style == yaml.FoldedStyle:
		where.Line, where.Column = at.Line+max(line, 1), 1
	case line > 1:
		where.Line += line - 1
	}
	d.fail(&where, hint, "the template of %s can't be used: %s", piece, message)
}

var (
	templatePlace = regexp.MustCompile(`template: ([^: ]+):(\d+)(?::\d+)?: `)
	unknownField  = regexp.MustCompile(`can't evaluate field (\w+) in type \*?format\.(\w+)`)
)

// fieldsOf are what a template can name of a view.
func fieldsOf(name string) []string {
	var out []string
	for _, v := range []any{view{}, messageView{}, toolView{}, callView{}} {
		t := reflect.TypeOf(v)
		if t.Name() != name {
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() {
				out = append(out, f.Name)
			}
		}
		for i := range reflect.PointerTo(t).NumMethod() {
			out = append(out, reflect.PointerTo(t).Method(i).Name)
		}
	}
	sort.Strings(out)
	return out
}
