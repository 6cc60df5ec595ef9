package agentcli

import (
	"encoding/json"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

// program is what a recipe starts when it speaks one of its protocols.
func (r *Recipe) program(api string) component.Program {
	config := map[string]string{"recipe": r.Name}
	if api != r.API {
		config["api"] = api
	}
	with, _ := chat.Marshal(config) // texts always have a JSON form
	return component.Program{
		Name: r.Name, Program: r.Program, Dialect: r.APIs[api].Dialect, With: json.RawMessage(with),
		Install: r.Install.how(), Version: r.Validated.Version, Date: r.Validated.Date, Quirks: r.Quirks,
	}
}

func init() {
	invoker.Register("agent-cli", New, invoker.Input[Input](), invoker.AlwaysCalls(), invoker.Programs(programs()...),
		invoker.Summary("runs an agent program as a recipe says: codex, gemini, qwen, opencode and others, or a file of your own"))
}
