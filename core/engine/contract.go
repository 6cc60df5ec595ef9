package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

// contract is what a try ended with whose output is not what the stage
// promises: no exit status, and nothing that retry.on can name.
const contract = "contract"

// keep checks what a stage wrote against what it promises, before anybody
// reads it. Where the file gives a schema for an agent's or a program's
// output, that is the JSON in its text. Renamed are the keys that stand under
// another name now, as the file says.
func keep(s *pipeline.Stage, res *trace.StageResult) (renamed []string, err error) {
	if s.Output != nil && s.Kind != "judger" {
		res.Text = doc.At(doc.Bytes(res.Output), "").String("text")
		found, err := onlyObject(res.Text)
		if err != nil && res.Error != "" {
			return nil, fmt.Errorf("%w (%s)", err, res.Error) // such as a reply that was cut
		}
		if err != nil {
			return nil, err
		}
		res.Output = found
	}
	if res.Output, renamed, err = s.Rename(res.Output); err != nil {
		return nil, err
	}
	return renamed, s.CheckResult(res.Output)
}

// unanswered says that an agent of which output is promised failed without a
// word: that is no answer which could be mended by asking again.
func unanswered(s *pipeline.Stage, res *trace.StageResult) bool {
	return s.Output != nil && s.Kind == component.Invoker && res.ExitStatus != invoker.OK &&
		strings.TrimSpace(doc.At(doc.Bytes(res.Output), "").String("text")) == ""
}

// onlyObject is the JSON object that a text is, or that stands in its only
// fenced block. With several it is not for us to choose.
func onlyObject(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if object, ok := asObject(text); ok {
		return object, nil
	}
	var found []json.RawMessage
	for _, block := range fenced(text) {
		if object, ok := asObject(block); ok {
			found = append(found, object)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, errors.New("the text is no JSON object, and holds none in a fenced block")
	}
	return nil, fmt.Errorf("the text holds %d JSON objects in fenced blocks, want one", len(found))
}

func asObject(text string) (json.RawMessage, bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") || !json.Valid([]byte(text)) {
		return nil, false
	}
	return json.RawMessage(text), true
}

// fenced are the contents of a text's fenced blocks.
func fenced(text string) []string {
	var out []string
	var block []string
	fence := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(trimmed, "```"):
			fence, block = trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))], nil
		case fence != "" && strings.HasPrefix(trimmed, fence) && strings.Trim(trimmed, "`") == "":
			out = append(out, strings.Join(block, ""))
			fence = ""
		case fence != "":
			block = append(block, line)
		}
	}
	return out
}

// told adds to a prompt what was wrong with the answer to it.
func told(input json.RawMessage, s *pipeline.Stage, words string) json.RawMessage {
	var in map[string]json.RawMessage
	var prompt string
	if words == "" || json.Unmarshal(input, &in) != nil || json.Unmarshal(in["prompt"], &prompt) != nil {
		return input
	}
	prompt += fmt.Sprintf("\n\nAn earlier answer to this could not be used: %s.\nAnswer again, with one JSON object that fits this schema and nothing else:\n%s\n", words, s.Output)
	raw, err := chat.Marshal(prompt)
	if err != nil {
		return input
	}
	in["prompt"] = raw
	out, err := chat.Marshal(in)
	if err != nil {
		return input
	}
	return out
}
