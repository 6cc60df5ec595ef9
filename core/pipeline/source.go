package pipeline

import (
	"fmt"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// source is a text that positions point into: the file, one --set argument, or
// a file that stands for a text.
type source struct {
	name  string // as shown
	text  string
	set   bool // a --set argument: it has no line numbers
	whole bool // all of it is one value, and no YAML
	lines []string
}

func (s *source) line(n int) string {
	if s.lines == nil {
		s.lines = splitLines(s.text)
	}
	if n < 1 || n > len(s.lines) {
		return ""
	}
	return s.lines[n-1]
}

// splitLines splits where YAML sees a line end, so that numbers agree.
func splitLines(text string) []string {
	var lines []string
	from := 0
	for i, r := range text {
		switch r {
		case '\n', '\r', 0x85, 0x2028, 0x2029:
			if r == '\n' && i > 0 && text[i-1] == '\r' {
				from = i + 1
				continue
			}
			lines = append(lines, text[from:i])
			from = i + utf8.RuneLen(r)
		}
	}
	return append(lines, text[from:])
}

// pos is a place in a source; line and col count from 1, col in characters.
type pos struct {
	src       *source
	line, col int
}

// inside is p, or the end of the source for a place after it: that is where
// YAML puts a value that was left out.
func (p pos) inside() pos {
	p.src.line(1)
	if n := len(p.src.lines); p.line > n {
		return pos{p.src, n, utf8.RuneCountInString(p.src.line(n)) + 1}
	}
	return p
}

// report collects findings.
type report struct {
	found Diagnostics
	// secrets are values of ${env:} and ${file:}, which no message shows.
	secrets map[string]bool
}

// minSecret is the length from which a value is hidden: shorter ones occur by
// chance.
const minSecret = 4

func (r *report) add(sev Severity, p pos, code, hint, message string) {
	d := Diagnostic{Severity: sev, Code: code, Message: message, Hint: hint}
	if p.src != nil {
		p = p.inside()
		d.File, d.Line, d.Col = p.src.name, p.line, p.col
		d.Excerpt = strings.TrimRight(p.src.line(p.line), " \t")
		if p.src.set {
			d.Line = 0
		}
	}
	for s := range r.secrets {
		if len(s) >= minSecret {
			d.Message = strings.ReplaceAll(d.Message, s, "***")
			d.Hint = strings.ReplaceAll(d.Hint, s, "***")
		}
	}
	r.found = append(r.found, d)
}

func (r *report) errorf(p pos, code, hint, format string, args ...any) {
	r.add(Error, p, code, hint, fmt.Sprintf(format, args...))
}

func (r *report) warnf(p pos, code, hint, format string, args ...any) {
	r.add(Warning, p, code, hint, fmt.Sprintf(format, args...))
}

// at is where a node stands.
func (f *File) at(n *yaml.Node) pos {
	if n == nil {
		return pos{src: f.src, line: 1, col: 1}
	}
	return pos{src: f.sourceOf(n), line: n.Line, col: n.Column}
}

// place is a node's line and column, for messages about another place.
func (f *File) place(n *yaml.Node) string {
	p := f.at(n).inside()
	if p.src.set {
		return fmt.Sprintf("character %d", p.col)
	}
	return fmt.Sprintf("%d:%d", p.line, p.col)
}

func (f *File) sourceOf(n *yaml.Node) *source {
	if s, ok := f.origin[n]; ok {
		return s
	}
	return f.src
}

// unquoted is an expression that YAML takes for brackets of its own.
var unquoted = regexp.MustCompile(`[:,\[{]\s*\$\{\{`)

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

// parseYAML parses the first document of a source. It returns nil after an
// error, which it reports.
func (f *File) parseYAML(s *source) *yaml.Node {
	if at, what, hint := unreadable(s.text); at >= 0 && !utf16(s.text) {
		f.errorf(s.posAt(at), "encoding", hint, "%s", what)
		return nil
	}
	d := yaml.NewDecoder(strings.NewReader(s.text))
	var doc, more yaml.Node
	err := d.Decode(&doc)
	switch {
	case err != nil && err.Error() == "EOF":
		f.errorf(pos{s, 1, 1}, "empty", "a pipeline begins with 'penstock: "+Version+"'", "the file is empty")
		return nil
	case err != nil:
		f.syntaxError(s, err)
		return nil
	}
	if err := d.Decode(&more); err == nil {
		f.errorf(pos{s, more.Line, 1}, "yaml", "remove the '---' and what follows it", "a file holds one pipeline, here a second document begins")
		return nil
	} else if err.Error() != "EOF" {
		f.syntaxError(s, err)
		return nil
	}
	if len(doc.Content) == 0 {
		f.errorf(pos{s, 1, 1}, "empty", "a pipeline begins with 'penstock: "+Version+"'", "the file is empty")
		return nil
	}
	return doc.Content[0]
}

// syntaxError reports what the YAML parser said, a tab as a tab.
func (f *File) syntaxError(s *source, err error) {
	m := yamlError.FindStringSubmatch(err.Error())
	line, message := 0, err.Error()
	if m != nil {
		line, _ = strconv.Atoi(m[1]) // "" is 0: no line
		message = m[2]
	}
	if at := tabNear(s, line); at.line > 0 {
		f.errorf(at, "tab", "indent with spaces", "the line is indented with a tab; YAML allows spaces only")
		return
	}
	if name := unknownAnchor.FindStringSubmatch(message); name != nil {
		if at := strings.Index(s.text, "*"+name[1]); at >= 0 {
			f.errorf(s.posAt(at), "yaml", "give something the anchor &"+name[1]+" further up, or quote the text", "nothing before it has the anchor '%s'", name[1])
			return
		}
	}
	line = s.problemLine(line, message)
	text := s.line(line)
	col := len(text) - len(strings.TrimLeft(text, " ")) + 1
	hint := ""
	switch {
	case unquoted.MatchString(text):
		hint = `put the text around ${{ }} in quotes: "${{ ... }}"`
	case strings.Contains(message, "mapping values are not allowed"):
		hint = "check the indentation, and quote a value that contains ': '"
	case strings.Contains(message, "did not find expected"), strings.Contains(message, "could not find expected"):
		hint = "check the indentation and the brackets of this line and the one above"
	}
	f.errorf(pos{s, line, col}, "yaml", hint, "not valid YAML: %s", message)
}

// problemLine is the line that makes the parser stop. What it names is the
// begin of the construct around: for brackets that is as good as any, else
// the first line is looked for without which the file parses.
func (s *source) problemLine(line int, message string) int {
	if !strings.HasPrefix(message, "did not find expected") {
		return max(line, 1)
	}
	line++ // the parser counts from 0 here
	if strings.Contains(message, "'") && !strings.Contains(message, "indicator") {
		return line
	}
	s.line(1)
	fails := func(n int) bool {
		var doc yaml.Node
		err := yaml.Unmarshal([]byte(strings.Join(s.lines[:n], "\n")), &doc)
		return err != nil && strings.HasSuffix(err.Error(), message)
	}
	found := 1 + sort.Search(len(s.lines), func(i int) bool { return fails(i + 1) })
	if found > len(s.lines) {
		return line
	}
	return found
}

// tabNear finds the line with a tab in its indentation that made the parser
// stop: at the line that it named, or next to it.
func tabNear(s *source, line int) pos {
	for _, n := range []int{line, line + 1, line - 1} {
		text := s.line(n)
		indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
		if i := strings.IndexByte(indent, '\t'); i >= 0 && len(indent) < len(text) {
			return pos{s, n, i + 1}
		}
	}
	return pos{}
}

// maxNodes bounds a file after its aliases are expanded.
const maxNodes = 200_000

// expander replaces aliases by copies and merges `<<`, so that nothing after
// it meets an alias, a cycle or a repeated key.
type expander struct {
	f      *File
	active map[*yaml.Node]bool
	nodes  int
	ok     bool
}

func (f *File) expand(n *yaml.Node) (*yaml.Node, bool) {
	e := &expander{f: f, active: map[*yaml.Node]bool{}, ok: true}
	return e.node(n), e.ok
}

func (e *expander) fail(n *yaml.Node, code, hint, format string, args ...any) {
	e.f.errorf(e.f.at(n), code, hint, format, args...)
	e.ok = false
}

func (e *expander) node(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		if e.active[n.Alias] {
			e.fail(n, "yaml", "", "the alias *%s contains itself", n.Value)
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}
		}
		n = n.Alias
	}
	e.nodes++
	c := *n
	c.Content, c.Anchor = nil, ""
	if e.f.origin[n] != nil {
		e.f.origin[&c] = e.f.origin[n]
	}
	if e.nodes > maxNodes {
		if e.nodes == maxNodes+1 {
			e.fail(n, "yaml", "", "the file is too large: more than %d values, its aliases expanded", maxNodes)
		}
		return &c
	}
	if t := n.ShortTag(); strings.HasPrefix(t, "!") && !strings.HasPrefix(t, "!!") || t == "!!binary" || t == "!!set" {
		e.fail(n, "yaml", "remove the tag", "the tag %s is not known", t)
	}
	e.active[n] = true
	defer delete(e.active, n)
	if n.Kind == yaml.MappingNode {
		e.mapping(n, &c)
		return &c
	}
	for _, item := range n.Content {
		c.Content = append(c.Content, e.node(item))
	}
	return &c
}

func (e *expander) mapping(n, c *yaml.Node) {
	seen := map[string]*yaml.Node{}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := e.node(n.Content[i]), n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			e.fail(key, "key", `a text with braces needs quotes: "${{ ... }}"`, "a key must be text, this one is %s", kindName(key))
			continue
		}
		if key.Tag == "!!merge" {
			merges = append(merges, e.node(value))
			continue
		}
		if first := seen[key.Value]; first != nil {
			e.fail(key, "duplicate-key", "keep one of the two", "'%s' is given twice, first at %s", key.Value, e.f.place(first))
			continue
		}
		seen[key.Value] = key
		c.Content = append(c.Content, key, e.node(value))
	}
	for _, m := range merges {
		e.merge(c, m, seen)
	}
}

func (e *expander) merge(into, from *yaml.Node, seen map[string]*yaml.Node) {
	if from.Kind == yaml.SequenceNode {
		for _, m := range from.Content {
			e.merge(into, m, seen)
		}
		return
	}
	if from.Kind != yaml.MappingNode {
		e.fail(from, "yaml", "", "'<<' takes a mapping, this is %s", kindName(from))
		return
	}
	for i := 0; i+1 < len(from.Content); i += 2 {
		if key := from.Content[i]; seen[key.Value] == nil {
			seen[key.Value] = key
			into.Content = append(into.Content, key, from.Content[i+1])
		}
	}
}

// kindName says what a node is, for messages.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "empty"
	case "!!bool":
		return "a boolean"
	case "!!int", "!!float":
		return "a number"
	}
	return "text"
}

// lookup finds a key of a mapping.
func lookup(n *yaml.Node, key string) (k, v *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// abs makes a path of the file absolute.
func (f *File) abs(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(f.dir, path)
}
