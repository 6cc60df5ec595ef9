package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		if _, given := lookup(f.root, "tasks"); given == nil && !f.opts.NoStages && !f.meant[f.root]["tasks"] {
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

// maxTasksFile bounds what a file of tasks takes of the memory.
const maxTasksFile = 4 << 30

func (f *File) tasksFile(path, shown string, at pos) {
	if strings.HasSuffix(path, ".csv") && !f.enabled["csv"] {
		f.errorf(at, "not-built", "write the tasks as JSONL, one JSON object a line", "'csv' is not built yet")
		return
	}
	b, err := readAtMost(path, maxTasksFile)
	if err != nil {
		f.errorf(at, "tasks", "a relative path starts at the folder of the pipeline file", "the tasks file %s can't be read: %s", shown, pathCause(err))
		return
	}
	f.tasksPath = path
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	l := &taskLoader{f: f, src: &source{name: shown, text: string(b)}, first: map[string]int{}}
	if strings.HasSuffix(path, ".csv") {
		if at, what, hint := unreadable(l.src.text); at >= 0 {
			l.failAt(l.src.posAt(at), "encoding", hint, "%s", what)
		} else {
			l.csv(b)
		}
	} else {
		l.jsonl(b)
	}
	f.tasks = l.tasks
	switch {
	case len(l.tasks) > 0 && !l.failed:
		f.taskType = l.stat.objectType()
	case !l.failed:
		f.errorf(at, "tasks", "write a task a line: "+taskExample, "the tasks file %s has no tasks", shown)
	}
}

// taskExample is a task as it may be written in JSON and in YAML.
const taskExample = `{"id": "one", "prompt": "What is 1 + 1?", "answer": "2"}`

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
	cut    bool // the last line was the begin of a value that others go on with
	list   bool // the file is a list
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
		line = bytes.TrimRight(line, " \t\r")
		switch text := bytes.TrimSpace(line); {
		case len(text) == 0:
			continue
		case l.cut && text[0] != '{':
			return // the rest of what was reported
		}
		l.cut = false
		if l.add(line, n); l.list {
			return // it was reported, and the rest is its items
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
		offset, hint := int(l.dec.InputOffset()), ""
		if errors.As(err, &at) {
			offset, hint = at.offset, at.hint
			l.cut = at.message == errLineEnds
			l.list = bytes.HasPrefix(bytes.TrimSpace(raw), []byte{'['})
		}
		l.failAt(l.at(line, offset, raw), "tasks", hint, "%s", err)
		return
	}
	data := json.RawMessage(bytes.TrimSpace(raw))
	if id == "" {
		id = fmt.Sprintf("t%04d", line)
		data = withID(data, id)
	}
	if first, taken := l.first[id]; taken {
		l.twice(id, first, line, raw)
		return
	}
	l.first[id] = line
	l.tasks = append(l.tasks, Task{ID: id, Data: data})
}

// twice reports a task whose id is that of an earlier one.
func (l *taskLoader) twice(id string, first, line int, raw []byte) {
	at, hint := l.at(line, 0, raw), "every task needs an id of its own; without one it gets one by line number"
	if n := l.inline[first]; n != nil {
		l.failAt(at, "duplicate-task", hint, "the task id %q is given twice, first at %s", id, l.f.place(n))
		return
	}
	l.failAt(at, "duplicate-task", hint, "the task id %q is that of line %d too (lines %d and %d)", id, first, first, line)
}

func withID(data json.RawMessage, id string) json.RawMessage {
	out := append([]byte(`{"id":`), quoted(id)...)
	rest := bytes.TrimSpace(data[1:])
	if len(rest) > 0 && rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}

// read checks one line and adds its values to the type. After an error the
// type is of no use, nor is it used.
func (l *taskLoader) read(raw []byte) (id string, err error) {
	start := len(raw) - len(bytes.TrimLeft(raw, " \t"))
	if k := l.dec.PeekKind(); k != '{' && k != 0 {
		return "", &taskError{start, fmt.Sprintf("a task is a JSON object, this is %s", tokenName(k)), objectHint(k)}
	}
	if _, err := l.dec.ReadToken(); err != nil {
		return "", syntaxText(raw, err)
	}
	l.stat.seen++
	l.stat.object++
	for l.dec.PeekKind() != '}' {
		name, err := l.dec.ReadToken()
		if err != nil {
			return "", syntaxText(raw, err)
		}
		field := l.stat.at(name.String())
		if name.String() != "id" {
			if err := field.observe(&l.dec, 1); err != nil {
				return "", syntaxText(raw, err)
			}
			continue
		}
		if k := l.dec.PeekKind(); k != '"' && k != 0 {
			return "", &taskError{l.next(raw), fmt.Sprintf("the id of a task is text, this is %s", tokenName(k)), idHint(k)}
		}
		at := l.next(raw)
		v, err := l.dec.ReadToken()
		if err != nil {
			return "", syntaxText(raw, err)
		}
		if id = v.String(); id == "" {
			return "", &taskError{at, "the id of a task is empty", "write one, or leave 'id' out to get one by line number"}
		}
		field.seen++
		field.str++
	}
	if _, err := l.dec.ReadToken(); err != nil {
		return "", syntaxText(raw, err)
	}
	end := l.next(raw)
	if _, err := l.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return "", &taskError{end, "there is more on the line than one JSON object", "a line is one task; begin a new line here"}
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

func idHint(k jsontext.Kind) string {
	switch k {
	case '0':
		return "write it in quotes"
	case 'n':
		return "leave it out to get one by line number"
	}
	return `such as "id": "one"`
}

func objectHint(k jsontext.Kind) string {
	if k == '[' {
		return "a line is one task, not a list; jq -c '.[]' FILE writes each item of a list into a line"
	}
	return "such as " + taskExample
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
			l.failAt(f.at(n), "tasks", "such as "+taskExample, "a task is an object, this is %s", kindName(n))
			continue
		}
		l.inline[i+1] = n
		l.add(raw, i+1)
	}
	f.tasks = l.tasks
	switch {
	case len(l.tasks) > 0 && !l.failed:
		f.taskType = l.stat.objectType()
	case !l.failed:
		f.errorf(f.at(list), "tasks", "inline: ["+taskExample+"]", "'inline' has no tasks")
	}
}
