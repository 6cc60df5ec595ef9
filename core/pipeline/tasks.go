package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// loadTasks reads the tasks and the type of `task`.
func (f *File) loadTasks() {
	node := f.get(f.root, "tasks")
	f.samples = max(1, f.opts.Samples)
	if f.opts.Samples == 0 && node != nil {
		f.samples = max(1, f.integer(node, "samples"))
	}
	switch {
	case f.opts.GivenTasks != nil:
		f.givenTasks()
		return
	case f.opts.Tasks != "":
		f.tasksFile(f.opts.Tasks, f.opts.Tasks, pos{src: &source{name: "--tasks " + f.opts.Tasks, text: "", set: true}})
		return
	case node == nil:
		if _, given := lookup(f.root, "tasks"); given == nil && !f.opts.NoStages {
			f.errorf(f.at(f.root), "missing-key", "tasks: { file: tasks.jsonl }", "'tasks' is missing")
		}
		return
	}
	file, inline := f.get(node, "file"), f.get(node, "inline")
	switch {
	case file != nil && inline != nil:
		f.errorf(f.at(inline), "tasks", "keep one of them", "'tasks' has both 'file' and 'inline'")
	case file != nil:
		name := f.resolve(file, file.Value)
		if reference.MatchString(name) {
			return // it was reported, or isn't known without the environment
		}
		shown := name
		if !filepath.IsAbs(name) {
			shown = filepath.Join(filepath.Dir(f.path), name)
		}
		f.tasksFile(f.abs(name), shown, f.at(file))
	case inline != nil:
		f.inlineTasks(inline)
	default:
		if len(node.Content) == 0 || !f.hasBad(node) {
			f.errorf(f.at(node), "tasks", "file: tasks.jsonl, or inline: [{prompt: ...}]", "'tasks' names no tasks")
		}
	}
}

func (f *File) hasBad(n *yaml.Node) bool {
	for _, c := range n.Content {
		if f.bad[c] {
			return true
		}
	}
	return false
}

func (f *File) givenTasks() {
	l := &taskLoader{f: f, src: &source{name: "stored tasks"}, first: map[string]int{}}
	for i, t := range f.opts.GivenTasks {
		l.add(t.Data, i+1)
	}
	f.tasks, f.taskType = f.opts.GivenTasks, l.stat.objectType()
}

func (f *File) tasksFile(path, shown string, at pos) {
	if strings.HasSuffix(path, ".csv") && !f.enabled["csv"] {
		f.errorf(at, "not-built", "write the tasks as JSONL, one JSON object a line", "'csv' is not built yet")
		return
	}
	b, err := os.ReadFile(path)
	if err != nil {
		f.errorf(at, "tasks", "a relative path starts at the folder of the pipeline file", "the tasks file %s can't be read: %s", shown, pathCause(err))
		return
	}
	f.tasksPath = path
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	l := &taskLoader{f: f, src: &source{name: shown, text: string(b)}, first: map[string]int{}}
	if strings.HasSuffix(path, ".csv") {
		l.csv(b)
	} else {
		l.jsonl(b)
	}
	f.tasks, f.taskType = l.tasks, l.stat.objectType()
	if len(l.tasks) == 0 && !l.failed {
		f.errorf(at, "tasks", "", "the tasks file %s has no tasks", shown)
	}
}

// taskLoader reads tasks line by line.
type taskLoader struct {
	f      *File
	src    *source
	tasks  []Task
	first  map[string]int // line of each id
	stat   stat
	dec    jsontext.Decoder
	failed bool
	inline map[int]*yaml.Node
	errors int
}

// maxTaskErrors bounds how many bad lines are shown.
const maxTaskErrors = 20

func (l *taskLoader) jsonl(b []byte) {
	for n := 1; len(b) > 0; n++ {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		if line = bytes.TrimRight(line, " \t\r"); len(bytes.TrimSpace(line)) > 0 {
			l.add(line, n)
		}
		if l.errors >= maxTaskErrors {
			l.fail(n, 0, "tasks", "", "more errors in this file are not shown")
			return
		}
	}
}

func (l *taskLoader) at(line, offset int, text []byte) pos {
	if n := l.inline[line]; n != nil {
		return l.f.at(n)
	}
	offset = min(offset, len(text))
	return pos{l.src, line, utf8.RuneCount(text[:offset]) + 1}
}

func (l *taskLoader) fail(line, col int, code, hint, format string, args ...any) {
	l.failAt(pos{l.src, line, col + 1}, code, hint, format, args...)
}

func (l *taskLoader) failAt(p pos, code, hint, format string, args ...any) {
	l.failed = true
	l.errors++
	l.f.errorf(p, code, hint, format, args...)
}

// add reads one task from its JSON.
func (l *taskLoader) add(raw []byte, line int) {
	l.dec.Reset(bytes.NewBuffer(raw))
	id, err := l.read(raw)
	if err != nil {
		var at *taskError
		offset := int(l.dec.InputOffset())
		if errors.As(err, &at) {
			offset = at.offset
		}
		l.failAt(l.at(line, offset, raw), "tasks", "", "%s", err)
		return
	}
	data := json.RawMessage(bytes.TrimSpace(raw))
	if id == "" {
		id = fmt.Sprintf("t%04d", line)
		data = withID(data, id)
	}
	if first, taken := l.first[id]; taken {
		l.failAt(l.at(line, 0, raw), "duplicate-task", "every task needs an id of its own", "the task id %q is that of line %d too (lines %d and %d)", id, first, first, line)
		return
	}
	l.first[id] = line
	l.tasks = append(l.tasks, Task{ID: id, Data: data})
}

func withID(data json.RawMessage, id string) json.RawMessage {
	out := append([]byte(`{"id":`), quoted(id)...)
	rest := bytes.TrimSpace(data[1:])
	if len(rest) > 0 && rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}

// taskError is an error at a byte of a line.
type taskError struct {
	offset  int
	message string
}

func (e *taskError) Error() string { return e.message }

// read checks one line and adds its values to the type. After an error the
// type is of no use, nor is it used.
func (l *taskLoader) read(raw []byte) (id string, err error) {
	start := len(raw) - len(bytes.TrimLeft(raw, " \t"))
	if k := l.dec.PeekKind(); k != '{' && k != 0 {
		return "", &taskError{start, fmt.Sprintf("a task is a JSON object, this is %s", tokenName(k))}
	}
	if _, err := l.dec.ReadToken(); err != nil {
		return "", syntaxText(err)
	}
	l.stat.seen++
	l.stat.object++
	for l.dec.PeekKind() != '}' {
		name, err := l.dec.ReadToken()
		if err != nil {
			return "", syntaxText(err)
		}
		field := l.stat.at(name.String())
		if name.String() != "id" {
			if err := field.observe(&l.dec, 1); err != nil {
				return "", syntaxText(err)
			}
			continue
		}
		if k := l.dec.PeekKind(); k != '"' && k != 0 {
			return "", &taskError{l.next(raw), fmt.Sprintf("the id of a task is text, this is %s", idName(k))}
		}
		at := l.next(raw)
		v, err := l.dec.ReadToken()
		if err != nil {
			return "", syntaxText(err)
		}
		if id = v.String(); id == "" {
			return "", &taskError{at, "the id of a task is empty"}
		}
		field.seen++
		field.str++
	}
	if _, err := l.dec.ReadToken(); err != nil {
		return "", syntaxText(err)
	}
	end := l.next(raw)
	if _, err := l.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return "", &taskError{end, "there is more on the line than one JSON object"}
	}
	return id, nil
}

// next is where the next value of a line begins.
func (l *taskLoader) next(raw []byte) int {
	i := min(int(l.dec.InputOffset()), len(raw))
	for i < len(raw) && strings.IndexByte(" \t:,", raw[i]) >= 0 {
		i++
	}
	return i
}

func idName(k jsontext.Kind) string {
	switch k {
	case '0':
		return "a number; write it in quotes"
	case 'n':
		return "null; leave it out to get one by line number"
	}
	return tokenName(k)
}

func tokenName(k jsontext.Kind) string {
	switch k {
	case '[':
		return "a list"
	case '{':
		return "an object"
	case '"':
		return "text"
	case '0':
		return "a number"
	case 'n':
		return "null"
	}
	return "a boolean"
}

func syntaxText(err error) error {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		return err
	}
	text := strings.TrimPrefix(s.Err.Error(), "jsontext: ")
	if errors.Is(s.Err, io.ErrUnexpectedEOF) || errors.Is(s.Err, io.EOF) {
		text = "the line ends before the object does"
	}
	return &taskError{int(s.ByteOffset), "not valid JSON: " + text}
}

func (f *File) inlineTasks(list *yaml.Node) {
	l := &taskLoader{f: f, src: f.src, first: map[string]int{}, inline: map[int]*yaml.Node{}}
	for i, n := range list.Content {
		raw, err := f.toJSON(n, nil)
		var at *nodeError
		switch {
		case errors.As(err, &at):
			l.failAt(f.at(at.node), "tasks", "", "%s", at)
			continue
		case n.Kind != yaml.MappingNode:
			l.failAt(f.at(n), "tasks", "", "a task is an object, this is %s", kindName(n))
			continue
		}
		l.inline[i+1] = n
		l.add(raw, i+1)
	}
	f.tasks, f.taskType = l.tasks, l.stat.objectType()
	if len(l.tasks) == 0 && !l.failed {
		f.errorf(f.at(list), "tasks", "", "'inline' has no tasks")
	}
}
