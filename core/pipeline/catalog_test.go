package pipeline

import (
	"encoding/json"
	"errors"
	"sort"
	"strings"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/schema"
)

type mcpServer struct {
	Command schema.Argv       `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
}

type agentConfig struct {
	MaxTurns int         `json:"max_turns,omitempty"`
	Mode     string      `json:"mode,omitempty" enum:"api,bedrock"`
	Command  schema.Argv `json:"command,omitempty" default:"[\"agent\"]"`
}

type commandInput struct {
	Command schema.Argv       `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
}

type agentInput struct {
	Prompt string               `json:"prompt"`
	Effort string               `json:"effort,omitempty" enum:"low,high"`
	Budget int                  `json:"budget,omitempty"`
	MCP    map[string]mcpServer `json:"mcp,omitempty"`
	Extra  json.RawMessage      `json:"extra,omitempty"`
}

type answerConfig struct {
	Normalize []string `json:"normalize,omitempty"`
	Tolerance float64  `json:"tolerance,omitempty"`
}

type answerInput struct {
	Expect json.RawMessage `json:"expect"`
}

type labelInput struct {
	Text   string `json:"text"`
	Strict bool   `json:"strict,omitempty"`
	Count  int    `json:"count,omitempty"`
}

type maskConfig struct {
	Words []string `json:"words"`
}

type none struct{}

// testCatalog is a catalog of fixed components.
type testCatalog map[string]component.Descriptor

type guards struct {
	Rules []struct {
		Action string `json:"action" enum:"allow,deny"`
		Tool   string `json:"tool,omitempty"`
	} `json:"rules" desc:"the first rule that matches a call decides"`
}

func (c testCatalog) Describe(kind, name string) (component.Descriptor, error) {
	d, ok := c[kind+"/"+name]
	switch {
	case !ok:
		return d, errors.New("it isn't registered")
	case name == "broken":
		return d, errors.New("it ended with exit code 3: panic: no")
	}
	return d, nil
}

func (c testCatalog) Names(kind string) []string {
	var out []string
	for id := range c {
		if name, ok := strings.CutPrefix(id, kind+"/"); ok {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}

func newCatalog() testCatalog {
	c := testCatalog{}
	add := func(d component.Descriptor) { c[d.ID()] = d }
	add(component.Descriptor{Kind: "invoker", Name: "agent", Config: schema.Of[agentConfig](), Input: schema.Of[agentInput](),
		Output: invoker.OutputSchema, Wants: []string{"model"}})
	add(component.Descriptor{Kind: "invoker", Name: "quiet", Config: schema.Of[none](), Input: schema.Of[agentInput](),
		Output: invoker.OutputSchema, Wants: []string{"no_model"}})
	add(component.Descriptor{Kind: "invoker", Name: "command", Config: schema.Of[none](), Input: schema.Of[commandInput](), Output: invoker.OutputSchema})
	add(component.Descriptor{Kind: "judger", Name: "answer", Config: schema.Of[answerConfig](), Input: schema.Of[answerInput](), Output: judger.Output})
	add(component.Descriptor{Kind: "judger", Name: "exact42", Config: schema.Of[none](), Output: judger.Output})
	add(component.Descriptor{Kind: "judger", Name: "label", Config: schema.Of[none](), Input: schema.Of[labelInput](),
		Output: json.RawMessage(`{"type":"object","properties":{"reward":{"type":["number","null"]},"status":{"type":"string"},` +
			`"decision":{"type":"string","enum":["approve","reject"]},"findings":{"type":"array","items":{"type":"string"}},"note":{"type":"string"}},` +
			`"required":["reward","status","decision","findings"]}`)})
	add(component.Descriptor{Kind: "judger", Name: "broken"})
	add(component.Descriptor{Kind: "judger", Name: "rank", Config: schema.Of[none](), Input: schema.Of[labelInput](), Output: judger.Output,
		Methods: []string{judger.MethodJudgeGroup}})
	add(component.Descriptor{Kind: "hook", Name: "mask", Config: schema.Of[maskConfig](), Changes: []string{"request", "reply"}})
	add(component.Descriptor{Kind: "hook", Name: "sanitize-tools", Config: schema.Of[none](), Changes: []string{"tool_call"}})
	add(component.Descriptor{Kind: "hook", Name: "tool-guard", Config: schema.Of[guards](), Changes: []string{"tool_call"}})
	add(component.Descriptor{Kind: "hook", Name: "rows", Config: schema.Of[none](), Changes: []string{"row"}})
	add(component.Descriptor{Kind: "hook", Name: "guard", Config: schema.Of[none](), Changes: []string{"request", "stage.before"}, Observes: []string{"stage.after", "row"}})
	add(component.Descriptor{Kind: "converter", Name: "rows", Config: schema.Of[none]()})
	add(component.Descriptor{Kind: "converter", Name: "xtuner", Config: schema.Of[none](), Wants: []string{"ids"}})
	for _, f := range []string{"qwen3_coder", "qwen3p5", "hermes"} {
		add(component.Descriptor{Kind: "format", Name: f})
	}
	return c
}
