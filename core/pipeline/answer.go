package pipeline

import (
	"encoding/json"
	"fmt"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
)

// Answer is what a person wrote in place of a stage, as the stage would have:
// what only the stage can know, such as tokens, is filled in. The error says
// what doesn't fit the schema of the stage's output.
func (s *Stage) Answer(given json.RawMessage) (json.RawMessage, error) {
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
