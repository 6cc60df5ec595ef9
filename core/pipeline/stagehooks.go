package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// The points that the hooks of each place act at.
var (
	modelPoints = []string{"request", "reply", "tool_call"}
	stagePoints = []string{"stage.before", "stage.after"}
	rowPoints   = []string{"row"}
)

// runInput is the input of a stage that runs a program, as hooks see it.
var runInput = json.RawMessage(`{"type":"object","properties":{"run":{"type":"array","items":{"type":"string"},"minItems":1}},` +
	`"required":["run"],"additionalProperties":false}`)

// stageHooks checks the hooks of a stage, or those on the rows of a converter.
func (c *check) stageHooks(n *yaml.Node, s *Stage) {
	f := c.f
	key, _ := lookup(n, "hooks")
	if key == nil {
		return
	}
	feature, points := "stage hooks", stagePoints
	if s.Kind == component.Converter {
		feature, points = "row hooks", rowPoints
	}
	if !f.enabled[feature] {
		f.errorf(f.at(key), "not-built", "hooks act under a model: models.NAME.hooks", "'hooks' is not built yet under a stage")
		return
	}
	s.Hooks = c.hooks(f.get(n, "hooks"), points...)
}

// givenBy is the schema that the component of a stage declares for its output.
func (c *check) givenBy(s *Stage) *jsonschema.Schema {
	switch {
	case s.Output != nil && s.Kind != component.Judger:
		return nil // it is read from the text, and has only the file's schema
	case !absent(s.Descriptor.Output):
		return c.compiled(s.Descriptor.Output)
	case s.Kind == KindRun:
		return c.compiled(runOutput)
	case s.Kind == component.Invoker:
		return c.compiled(invoker.OutputSchema)
	case s.Kind == component.Judger:
		return c.compiled(judger.Output)
	}
	return nil
}

// compiled is nil for a schema that can't be used, which was reported when
// the plugin was loaded.
func (c *check) compiled(raw json.RawMessage) *jsonschema.Schema {
	s, err := c.schemas.compile(raw)
	if err != nil {
		return nil
	}
	return s
}

// CheckInput validates an input that takes the place of the one that the file
// gives. That of a stage that runs a program is {"run": [argv]}.
func (s *Stage) CheckInput(input json.RawMessage) error {
	if s.takes == nil {
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(input, &keys); err != nil || len(keys) > 0 {
			return fmt.Errorf("%s takes no input, this is %s", s.Uses(), input)
		}
		return nil
	}
	if err := obeys(s.takes, input); err != nil {
		return fmt.Errorf("the input doesn't fit the schema of %s: %w", s.Uses(), err)
	}
	return nil
}

// CheckResult validates an output that takes the place of the stage's own:
// against what its component declares, and against the file's schema.
func (s *Stage) CheckResult(output json.RawMessage) error {
	if s.gives != nil {
		if err := obeys(s.gives, output); err != nil {
			return fmt.Errorf("the output doesn't fit the schema of %s: %w", s.Uses(), err)
		}
	}
	return s.CheckOutput(output)
}

func obeys(schema *jsonschema.Schema, value json.RawMessage) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return fmt.Errorf("it is no JSON: %w", err)
	}
	if schema.Validate(v) != nil {
		return errors.New(violationText(schema, v))
	}
	return nil
}
