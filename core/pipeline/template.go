package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// Template is a JSON value with expressions in it. It may be evaluated from
// several goroutines.
type Template struct {
	root *part
	// schema checks the value when it was built from expressions, whose types
	// may be known only at run time.
	schema *jsonschema.Schema
	where  string
}

// part is one node of a template. Exactly one field is set: literal JSON, an
// expression whose value keeps its type, pieces of text, or members.
type part struct {
	literal json.RawMessage
	expr    *Expr
	text    []piece
	keys    []string // of an object
	items   []*part  // of an object or a list
	object  bool
	// dir, if it isn't "", is the folder at which the program that an expr or
	// a text names starts.
	dir string
}

// piece is text or an expression within text.
type piece struct {
	text string
	expr *Expr
}

// JSON evaluates the template. An error names the place in the file.
func (t *Template) JSON(env Env) (json.RawMessage, error) {
	if t == nil || t.root == nil {
		return json.RawMessage("{}"), nil
	}
	if t.root.literal != nil {
		return t.root.literal, nil
	}
	out, err := t.root.append(nil, env)
	if err != nil {
		return nil, err
	}
	if t.schema == nil {
		return out, nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(out))
	if err != nil {
		return nil, fmt.Errorf("read input of %s: %w", t.where, err)
	}
	if t.schema.Validate(v) != nil {
		return nil, fmt.Errorf("input of %s doesn't fit the plugin's schema: %s", t.where, violationText(t.schema, v))
	}
	return out, nil
}

func (p *part) append(b []byte, env Env) ([]byte, error) {
	switch {
	case p.literal != nil:
		return append(b, p.literal...), nil
	case p.expr != nil:
		v, err := p.expr.JSON(env)
		return append(b, startAt(p.dir, v)...), err
	case p.text != nil:
		s, err := join(p.text, env)
		if err != nil {
			return nil, err
		}
		return append(b, startAt(p.dir, quoted(s))...), nil
	}
	open, end := byte('['), byte(']')
	if p.object {
		open, end = '{', '}'
	}
	b = append(b, open)
	for i, item := range p.items {
		if i > 0 {
			b = append(b, ',')
		}
		if p.object {
			b = append(append(b, quoted(p.keys[i])...), ':')
		}
		var err error
		if b, err = item.append(b, env); err != nil {
			return nil, err
		}
	}
	return append(b, end), nil
}

func join(pieces []piece, env Env) (string, error) {
	var b []byte
	for _, p := range pieces {
		if p.expr == nil {
			b = append(b, p.text...)
			continue
		}
		raw, err := p.expr.JSON(env)
		if err != nil {
			return "", err
		}
		if b, err = appendText(b, raw); err != nil {
			return "", p.expr.fail(err)
		}
	}
	return string(b), nil
}

// appendText appends a value as it stands in text: strings bare, numbers
// plainly, objects and lists as JSON.
func appendText(b []byte, raw json.RawMessage) ([]byte, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case absent(raw):
		return nil, errors.New("the value is null, which can't stand in text")
	case raw[0] == '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		return append(b, s...), nil
	case bytes.ContainsAny(raw, "eE") && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9'):
		f, err := strconv.ParseFloat(string(raw), 64)
		if err != nil {
			return nil, err
		}
		return strconv.AppendFloat(b, f, 'f', -1, 64), nil
	case raw[0] == '{' || raw[0] == '[':
		var c bytes.Buffer
		if err := json.Compact(&c, raw); err != nil {
			return nil, err
		}
		return append(b, c.Bytes()...), nil
	}
	return append(b, raw...), nil
}

func quoted(s string) []byte {
	b, _ := chat.Marshal(s) // a string always has a JSON form
	return bytes.TrimSpace(b)
}

// FromDir is the folder that a rollout's workspace is copied from, absolute;
// "" means that it starts empty.
func (w Workspace) FromDir(env Env) (string, error) {
	if w.From == nil {
		return "", nil
	}
	raw, err := w.From.JSON(env)
	if err != nil {
		return "", err
	}
	var dir *string
	if err := json.Unmarshal(raw, &dir); err != nil {
		return "", fmt.Errorf("workspace.from of %s: want a path, got %s", w.From.where, raw)
	}
	if dir == nil || *dir == "" {
		return "", nil
	}
	if filepath.IsAbs(*dir) {
		return filepath.Clean(*dir), nil
	}
	return filepath.Join(w.dir, *dir), nil
}
