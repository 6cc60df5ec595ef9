// Package judgecases reads the cases of `penstock judge test`: rollouts that
// never ran, and what a judge must say of them. What never enters: judges.
package judgecases

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/rollout"
)

// Case is one call of a judge and what must come of it: either Rollout or
// Rollouts, and one of Want and Error.
type Case struct {
	Name     string
	Stage    string // "" where only one stage judges
	Task     json.RawMessage
	Rollout  *rollout.Data
	Rollouts []*rollout.Data
	Want     []map[string]any // one for each rollout
	Error    string           // part of the judge's error
	Place    string           // file:line

	file string
	node *yaml.Node
}

// Errorf is an error about a field of the case, or about the case where it
// doesn't have that field.
func (c Case) Errorf(field, format string, args ...any) error {
	at := c.node
	if k, _ := entry(c.node, field); k != nil {
		at = k
	}
	return fail(c.file, at, format, args...)
}

func fail(file string, at *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d:%d: %s", file, at.Line, at.Column, fmt.Sprintf(format, args...))
}

// Read reads a file of cases: YAML with a list `cases`, or JSONL.
func Read(path string) ([]Case, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read cases: %w", err)
	}
	return Parse(path, text)
}

// Parse reads the text of a file of cases. Paths in it start at the file's
// folder.
func Parse(path string, text []byte) ([]Case, error) {
	nodes, err := split(path, text)
	if err != nil {
		return nil, err
	}
	var out []Case
	for i, n := range nodes {
		c, err := read(path, n)
		if err != nil {
			return nil, err
		}
		if c.Name == "" {
			c.Name = fmt.Sprintf("case %d", i+1)
		}
		out = append(out, c)
	}
	return out, nil
}

// split finds the nodes of the cases.
func split(path string, text []byte) ([]*yaml.Node, error) {
	if strings.HasSuffix(path, ".jsonl") {
		return lines(path, text)
	}
	root, err := document(path, text)
	if err != nil || root == nil {
		return nil, err
	}
	if err := only(path, root, "the file", "cases"); err != nil {
		return nil, err
	}
	_, list := entry(root, "cases")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil, fail(path, root, "want a list 'cases:', each {name, stage, task, rollout, want}")
	}
	return list.Content, nil
}

func lines(path string, text []byte) (out []*yaml.Node, err error) {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		n, err := document(path, append(bytes.Repeat([]byte("\n"), i), line...)) // so that it knows its line
		if err != nil {
			return nil, err
		}
		if n != nil {
			out = append(out, n)
		}
	}
	return out, nil
}

func document(path string, text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return doc.Content[0], nil
}

// entry is the key and the value of a field of an object.
func entry(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// only refuses fields of other names, and what is no object.
func only(path string, n *yaml.Node, what string, names ...string) error {
	if n.Kind != yaml.MappingNode {
		return fail(path, n, "%s is an object, with: %s", what, strings.Join(names, ", "))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case !slices.Contains(names, k.Value):
			return fail(path, k, "%s has no field '%s'; it takes: %s", what, k.Value, strings.Join(names, ", "))
		case seen[k.Value]:
			return fail(path, k, "'%s' is given twice", k.Value)
		}
		seen[k.Value] = true
	}
	return nil
}

// The fields of a rollout that a case may give.
var shownFields = []string{
	"id", "sample", "attempt", "final_text", "exit_status", "status", "workspace", "workspace_before", "artifacts", "usage", "cost",
	"tool_calls", "stages", "messages",
}

func read(path string, n *yaml.Node) (Case, error) {
	c := Case{file: path, node: n, Place: fmt.Sprintf("%s:%d", path, n.Line), Task: json.RawMessage("{}")}
	if err := only(path, n, "a case", "name", "stage", "task", "rollout", "rollouts", "want", "error"); err != nil {
		return c, err
	}
	for name, to := range map[string]any{"name": &c.Name, "stage": &c.Stage, "error": &c.Error} {
		if _, v := entry(n, name); v != nil && v.Decode(to) != nil {
			return c, c.Errorf(name, "'%s' is a text", name)
		}
	}
	if _, v := entry(n, "task"); v != nil {
		if v.Kind != yaml.MappingNode {
			return c, c.Errorf("task", "'task' is an object")
		}
		raw, err := toJSON(v)
		if err != nil {
			return c, c.Errorf("task", "task: %v", err)
		}
		c.Task = raw
	}
	if err := c.rollouts(); err != nil {
		return c, err
	}
	return c, c.wants()
}

func (c *Case) rollouts() error {
	_, one := entry(c.node, "rollout")
	_, many := entry(c.node, "rollouts")
	switch {
	case (one == nil) == (many == nil):
		return c.Errorf("rollouts", "a case has one of 'rollout' and 'rollouts'")
	case one != nil:
		d, err := c.data(one)
		c.Rollout = d
		return err
	case many.Kind != yaml.SequenceNode || len(many.Content) == 0:
		return c.Errorf("rollouts", "'rollouts' is a list of rollouts")
	}
	for i, n := range many.Content {
		d, err := c.data(n)
		if err != nil {
			return err
		}
		d.Sample = i
		c.Rollouts = append(c.Rollouts, d)
	}
	return nil
}

func (c *Case) data(n *yaml.Node) (*rollout.Data, error) {
	if err := only(c.file, n, "a rollout", shownFields...); err != nil {
		return nil, err
	}
	d := &rollout.Data{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		raw, err := toJSON(value)
		if err == nil {
			if raw, err = json.Marshal(map[string]json.RawMessage{key.Value: raw}); err == nil {
				strict := json.NewDecoder(bytes.NewReader(raw))
				strict.DisallowUnknownFields()
				err = strict.Decode(d)
			}
		}
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &kind):
			return nil, fail(c.file, value, "'%s' is of kind %s, and can't be used as %s", kind.Field, kind.Value, kind.Type)
		case err != nil:
			return nil, fail(c.file, value, "'%s': %s", key.Value, strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	for _, path := range []*string{&d.Workspace, &d.Before} {
		if *path == "" {
			continue
		}
		if !filepath.IsAbs(*path) {
			*path = filepath.Join(filepath.Dir(c.file), *path)
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, fail(c.file, n, "workspace: %v", err)
		}
		if info, err := os.Stat(abs); err != nil || !info.IsDir() {
			return nil, fail(c.file, n, "there is no folder %s", *path)
		}
		*path = abs
	}
	return d, nil
}

// The fields that a case may want of every verdict; a judger may have more.
func (c *Case) wants() error {
	_, want := entry(c.node, "want")
	if (want == nil) == (c.Error == "") {
		return c.Errorf("error", "a case has one of 'want', what the verdict must hold, and 'error', a part of the judge's error")
	}
	if want == nil {
		return nil
	}
	list := []*yaml.Node{want}
	if c.Rollouts != nil {
		if want.Kind != yaml.SequenceNode || len(want.Content) != len(c.Rollouts) {
			return fail(c.file, want, "'want' is a list with a verdict for each of the %d rollouts", len(c.Rollouts))
		}
		list = want.Content
	}
	for _, n := range list {
		if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
			return fail(c.file, n, "'want' is an object with fields of a verdict, such as { reward: 1 }")
		}
		raw, err := toJSON(n)
		if err != nil {
			return fail(c.file, n, "want: %v", err)
		}
		var w map[string]any
		if err := json.Unmarshal(raw, &w); err != nil {
			return fail(c.file, n, "want: %v", err)
		}
		c.Want = append(c.Want, w)
	}
	return nil
}

func toJSON(n *yaml.Node) (json.RawMessage, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// Compare says what of the results is not as the case wants it, "" if all is.
func (c Case) Compare(results []*trace.StageResult) string {
	var wrong []string
	for i, r := range results {
		where := ""
		if len(results) > 1 {
			where = fmt.Sprintf("rollout %d: ", i+1)
		}
		switch {
		case c.Error != "" && r.Error == "":
			wrong = append(wrong, fmt.Sprintf("%swant an error with %q, got %s", where, c.Error, verdict(r)))
		case c.Error != "" && !strings.Contains(r.Error, c.Error):
			wrong = append(wrong, fmt.Sprintf("%swant an error with %q, got %q", where, c.Error, r.Error))
		case c.Error != "":
		default:
			for _, text := range misses(c.Want[i], r) {
				wrong = append(wrong, where+text)
			}
		}
	}
	return strings.Join(wrong, "\n")
}

func verdict(r *trace.StageResult) string {
	if r.Output == nil {
		return "no verdict: the stage is " + r.Status
	}
	return string(r.Output)
}

func misses(want map[string]any, r *trace.StageResult) []string {
	if r.Error != "" {
		return []string{"the judge failed: " + r.Error}
	}
	var got map[string]any
	if r.Output == nil || json.Unmarshal(r.Output, &got) != nil {
		return []string{verdict(r)}
	}
	var out []string
	for _, name := range slices.Sorted(keys(want)) {
		w, g := want[name], got[name]
		said, isText := g.(string)
		if text, ok := w.(string); ok && isText && name == "explanation" && strings.Contains(said, text) {
			continue
		}
		if _, there := got[name]; !there && w != nil {
			out = append(out, fmt.Sprintf("the verdict has no '%s', want %s; %s", name, show(w), pipeline.Suggest(name, slices.Concat(slices.Sorted(keys(got)), verdictFields))))
			continue
		}
		if !holds(g, w) {
			out = append(out, fmt.Sprintf("%s is %s, want %s", name, show(g), show(w)))
		}
	}
	return out
}

// verdictFields may be left out of a verdict.
var verdictFields = []string{"components", "label", "explanation", "tampered"}

func keys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// holds compares values; of an object only what is wanted counts, and numbers
// may differ by what arithmetic does to them.
func holds(got, want any) bool {
	switch w := want.(type) {
	case float64:
		g, ok := got.(float64)
		return ok && math.Abs(g-w) <= 1e-9*max(1, math.Abs(w))
	case map[string]any:
		g, ok := got.(map[string]any)
		for k, v := range w {
			ok = ok && holds(g[k], v)
		}
		return ok
	case []any:
		g, ok := got.([]any)
		ok = ok && len(g) == len(w)
		for i := 0; ok && i < len(w); i++ {
			ok = holds(g[i], w[i])
		}
		return ok
	}
	return got == want
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
