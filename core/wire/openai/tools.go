package openai

import (
	"fmt"
	"strconv"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// Choice maps tool_choice and parallel_tool_calls; named reads the name of the
// tool that an object chooses. A choice that no tool can satisfy is refused.
func Choice(choice, parallel rawjson.Value, tools []chat.Tool, named func(rawjson.Value) (string, error)) (*chat.Choice, error) {
	c := &chat.Choice{Mode: chat.ChoiceAuto}
	var err error
	switch choice.Kind() {
	case 0, 'n':
	case '"':
		switch mode := choice.Text(); mode {
		case "auto", "none", "required":
			c.Mode = chat.ChoiceMode(mode)
		default:
			err = rawjson.Errorf("must be auto, none, required or a tool, not %q", mode)
		}
	case '{':
		c.Mode = chat.ChoiceNamed
		c.Name, err = named(choice)
	default:
		err = rawjson.Errorf("must be a string or an object")
	}
	if err != nil {
		return nil, rawjson.In("tool_choice", err)
	}
	if parallel.Given() {
		allowed, err := parallel.Bool()
		if err != nil {
			return nil, rawjson.In("parallel_tool_calls", err)
		}
		c.DisableParallel = !allowed
	}
	if !choice.Given() && !c.DisableParallel {
		return nil, nil
	}
	if err := satisfiable(c, tools); err != nil {
		return nil, rawjson.In("tool_choice", err)
	}
	return c, nil
}

func satisfiable(c *chat.Choice, tools []chat.Tool) error {
	switch c.Mode {
	case chat.ChoiceRequired:
		if len(tools) == 0 {
			return rawjson.Errorf("a tool can't be required without tools")
		}
	case chat.ChoiceNamed:
		for _, t := range tools {
			if t.Name == c.Name {
				return nil
			}
		}
		return rawjson.Errorf("there is no tool %q in tools", c.Name)
	}
	return nil
}

// AppendTools appends the field of the tools. One that came in the same dialect
// and wasn't changed goes out as it came, and function writes any other.
func AppendTools(b []byte, tools []chat.Tool, unchanged func(chat.Tool) bool, function func([]byte, chat.Tool) []byte) ([]byte, error) {
	if tools == nil {
		return b, nil
	}
	b = append(b, `,"tools":[`...)
	for i, t := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case unchanged(t):
			b = append(b, t.Raw...)
		case t.Type != "":
			return nil, fmt.Errorf("write tools[%d]: a tool of type %q has no form here", i, t.Type)
		default:
			b = function(b, t)
		}
	}
	return append(b, ']'), nil
}

// AppendChoice appends the fields of a choice; named writes that of one tool.
func AppendChoice(b []byte, c *chat.Choice, named func(b []byte, name string) []byte) []byte {
	if c == nil {
		return b
	}
	b = append(b, `,"tool_choice":`...)
	if c.Mode == chat.ChoiceNamed {
		b = named(b, c.Name)
	} else {
		b = sse.AppendString(b, string(c.Mode))
	}
	if c.DisableParallel {
		b = append(b, `,"parallel_tool_calls":false`...)
	}
	return b
}

// AppendSampling appends the fields that both dialects have for sampling, the
// limit of tokens under its name in the one that writes.
func AppendSampling(b []byte, s chat.Sampling, limit string) []byte {
	if s.MaxTokens != nil {
		b = append(append(append(b, `,"`...), limit...), `":`...)
		b = strconv.AppendInt(b, int64(*s.MaxTokens), 10)
	}
	if s.Temperature != nil {
		b = append(b, `,"temperature":`...)
		b = strconv.AppendFloat(b, *s.Temperature, 'g', -1, 64)
	}
	if s.TopP != nil {
		b = append(b, `,"top_p":`...)
		b = strconv.AppendFloat(b, *s.TopP, 'g', -1, 64)
	}
	return b
}
