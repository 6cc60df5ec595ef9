// Package all registers every invoker that ships with penstock.
package all

import (
	_ "github.com/penstock-dev/penstock/plugins/invokers/agent"
	_ "github.com/penstock-dev/penstock/plugins/invokers/agentcli"
	_ "github.com/penstock-dev/penstock/plugins/invokers/claudecode"
	_ "github.com/penstock-dev/penstock/plugins/invokers/command"
	_ "github.com/penstock-dev/penstock/plugins/invokers/llm"
)
