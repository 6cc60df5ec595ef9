package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
)

// Answer is what a person wrote in place of a stage, as the stage would have:
// what only the stage can know, such as tokens, is filled in. The error says
// what doesn't fit the schema of the stage's output.
func (s *Stage) Answer(given json.RawMessage) (json.RawMessage, error) {
	if err := readable(given); err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(given, &m); err != nil || m == nil {
		return nil, fmt.Errorf("an answer is a JSON object that %s could have written; its schema is %s", s.ID, s.Writes())
	}
	fill := func(name, value string) {
		if m[name] == nil {
			m[name] = json.RawMessage(value)
		}
	}
	switch {
	case s.Kind == component.Invoker && s.Output == nil:
		fill("usage", `{"input":0,"output":0}`)
		fill("cost", "null")
		fill("exit_status", `"ok"`)
	case s.Kind == component.Judger && s.Output == nil:
		fill("reward", "null")
		status := `"scored"`
		if absent(m["reward"]) {
			status = `"skipped"`
		}
		fill("status", status)
	}
	full, err := chat.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	schema := s.Writes()
	if schema == nil {
		return nil, fmt.Errorf("stage %s writes no output that an answer could stand in for", s.ID)
	}
	whole := &Stage{}
	if whole.output, err = new(schemaSet).compile(schema); err != nil {
		return nil, fmt.Errorf("read the schema of stage %s: %w", s.ID, err)
	}
	if err := whole.CheckOutput(full); err != nil {
		return nil, err
	}
	return full, nil
}

// readable says where an answer is no JSON, or has a name twice: of two values
// the last would count, and the person gave both.
func readable(given json.RawMessage) error {
	d := jsontext.NewDecoder(bytes.NewReader(given))
	_, err := d.ReadValue()
	if err == nil {
		if _, err = d.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("the answer is no JSON: at character %d something follows its end", characters(given, d.InputOffset())+1)
	}
	at := int64(len(given))
	var wrong *jsontext.SyntacticError
	if errors.As(err, &wrong) {
		at, err = wrong.ByteOffset, wrong.Err
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("the answer has a name twice, at %s (character %d)", wrong.JSONPointer, characters(given, at)+1)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the answer is no JSON: it ends too early, at character %d", characters(given, int64(len(given))))
	}
	return fmt.Errorf("the answer is no JSON: at character %d: %s", characters(given, at)+1, err)
}

// characters are those before a byte of a text.
func characters(text []byte, at int64) int { return utf8.RuneCount(text[:min(at, int64(len(text)))]) }
