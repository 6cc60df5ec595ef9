package agentcli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/sdk/invoker"
)

// read finds out what came of a run.
func (r *Recipe) read(q *invoker.ResultRequest) *invoker.Result {
	out := &invoker.Result{ExitStatus: invoker.OK}
	if q.Exit != 0 || q.Signal != "" {
		out.ExitStatus, out.Error = invoker.AgentError, ended(q)
	}
	status, known := r.Result.ExitCodes[strconv.Itoa(q.Exit)]
	if known = known && q.Signal == ""; known {
		if out.ExitStatus = status; status == invoker.OK {
			out.Error = ""
		}
	}
	if r.Output != "json" && r.Output != "jsonl" {
		out.Text = strings.TrimSpace(q.Stdout)
		if r.Result.Part != "" {
			paragraphs := strings.Split(out.Text, "\n\n")
			out.Text = strings.TrimSpace(paragraphs[len(paragraphs)-1])
		}
		return out
	}
	found := r.find(q.Stdout)
	out.Text = found.text
	switch {
	case found.status != "" && !known:
		out.ExitStatus = found.status
	case found.failed && out.ExitStatus == invoker.OK:
		out.ExitStatus = invoker.AgentError
	case !found.answered && out.ExitStatus == invoker.OK:
		out.ExitStatus, out.Error = invoker.AgentError, "the program ended without an answer in its output"
	}
	if found.failed && out.ExitStatus != invoker.OK {
		out.Error = found.message
	}
	return out
}

// finding is what JSON output says.
type finding struct {
	text     string
	answered bool
	message  string // of an error
	failed   bool
	status   string
}

// find reads what the output says. An error that is followed by an answer was
// none of the run's: the program had asked again, say.
func (r *Recipe) find(stdout string) (f finding) {
	each(r.Output, stdout, func(doc json.RawMessage) {
		for _, p := range r.Result.Text {
			if text, ok := p.take(doc); ok {
				f.text, f.answered, f.failed = text, true, false
			}
		}
		for _, p := range r.Result.Error {
			if text, ok := p.take(doc); ok {
				f.message, f.failed = text, true
			}
		}
		for _, p := range r.Result.Status {
			if p.matches(doc) {
				f.status = p.Set
			}
		}
	})
	return f
}

// each calls f with the document of JSON output, or with each of its lines.
// Programs print warnings: what is before the document, and lines that are no
// JSON, are passed over.
func each(output, stdout string, f func(json.RawMessage)) {
	if output == "jsonl" {
		for line := range strings.Lines(stdout) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "{") && json.Valid([]byte(line)) {
				f(json.RawMessage(line))
			}
		}
		return
	}
	for rest := stdout; rest != ""; {
		if trimmed := strings.TrimSpace(rest); trimmed != "" && strings.ContainsRune("{[", rune(trimmed[0])) && json.Valid([]byte(trimmed)) {
			f(json.RawMessage(trimmed))
			return
		}
		_, after, _ := strings.Cut(rest, "\n")
		rest = after
	}
}

func (p *Pick) matches(doc json.RawMessage) bool {
	for pointer, want := range p.Where {
		got, ok := at(doc, pointer)
		if !ok || got != want {
			return false
		}
	}
	return true
}

func (p *Pick) take(doc json.RawMessage) (string, bool) {
	if !p.matches(doc) {
		return "", false
	}
	return at(doc, p.At)
}

// at is the value at a JSON Pointer: a string's own text, any other value but
// null as JSON. The item -1 of a list is its last.
func at(data json.RawMessage, pointer string) (string, bool) {
	data = bytes.TrimSpace(data)
	if pointer != "" {
		for token := range strings.SplitSeq(pointer[1:], "/") {
			token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
			var ok bool
			if data, ok = step(data, token); !ok {
				return "", false
			}
		}
	}
	var text string
	if json.Unmarshal(data, &text) == nil && len(data) > 0 && data[0] == '"' {
		return text, true
	}
	return string(data), len(data) > 0 && string(data) != "null"
}

func step(data json.RawMessage, token string) (json.RawMessage, bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) == nil {
		v, ok := object[token]
		return v, ok
	}
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil {
		return nil, false
	}
	i, err := strconv.Atoi(token)
	if token == "-1" {
		i = len(list) - 1
	}
	if err != nil || i < 0 || i >= len(list) {
		return nil, false
	}
	return list[i], true
}

// ended says how a program failed, with the end of what it complained of.
func ended(q *invoker.ResultRequest) string {
	message := fmt.Sprintf("the program ended with exit code %d", q.Exit)
	if q.Signal != "" {
		message = "the program ended with signal " + q.Signal
	}
	if tail := strings.TrimSpace(q.Stderr); tail != "" {
		const most = 2000
		if len(tail) > most {
			tail = "…" + strings.ToValidUTF8(tail[len(tail)-most:], "")
		}
		message += "; its stderr ends: " + tail
	}
	return message
}
