package llm

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/plugins/invokers/streamjson"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// tokenVariable is where the program looks for the token of a subscription.
const tokenVariable = "CLAUDE_CODE_OAUTH_TOKEN"

// emptyDir is where the program starts, in the private home: whatever a task's
// workspace holds, such as CLAUDE.md or .mcp.json, is not looked at.
const emptyDir = "~/empty"

// structured is the tool by which the program gives output that fits a schema.
const structured = "StructuredOutput"

// subscription is the mode of the same name: Claude Code as a pure completion,
// which talks to the provider by itself.
type subscription struct{ cfg Config }

func (s subscription) check() error {
	switch {
	case s.cfg.Token == "":
		return &schema.Error{Pointer: "/token", Message: "the subscription's token (" + tokenVariable + ") is missing or empty: mode subscription takes it from nowhere but what this names, such as token: ${env:" + tokenVariable + "}; `claude setup-token` prints one"}
	case strings.TrimSpace(s.cfg.Token) == "":
		return &schema.Error{Pointer: "/token", Message: "the subscription's token (" + tokenVariable + ") is empty: what this setting names holds nothing; `claude setup-token` prints one"}
	case s.cfg.Model == "":
		return &schema.Error{Pointer: "/model", Message: "mode subscription needs the model to ask for, such as sonnet: the program's own choice depends on the subscription"}
	case s.cfg.BaseURL != "" && !isAddress(s.cfg.BaseURL):
		return &schema.Error{Pointer: "/base_url", Message: "this is no http or https URL, such as https://api.anthropic.com"}
	case len(s.cfg.Tools) > 0 && s.cfg.MaxTurns < 2:
		return &schema.Error{Pointer: "/max_turns", Message: "with tools at least 2 turns are needed: one to call, one to answer"}
	case s.cfg.MaxTokens > 0 || s.cfg.Temperature != nil || s.cfg.Schema != "":
		return errors.New("mode subscription has no max_tokens, temperature and schema: the program decides")
	}
	return nil
}

// plan starts the program without tools, servers, memory, hooks or settings, for
// a single turn; for two where a schema is asked for, as its answer comes by a
// tool.
func (s subscription) plan(r *invoker.PlanRequest, in Input) (*invoker.Plan, error) {
	turns := max(s.cfg.MaxTurns, 1)
	argv := append([]string{}, s.cfg.Command...)
	if len(argv) == 0 {
		argv = []string{"claude"}
	}
	argv = append(argv,
		"-p", "--output-format", "stream-json", "--verbose", "--model", s.cfg.Model,
		"--safe-mode", "--setting-sources", "", "--strict-mcp-config", "--mcp-config", `{"mcpServers":{}}`,
		"--no-session-persistence", "--disable-slash-commands", "--tools", strings.Join(s.cfg.Tools, ","), "--system-prompt="+in.System)
	if len(r.Session.OutputSchema) > 0 {
		if s.cfg.MaxTurns == 1 {
			return nil, errors.New("max_turns is 1, but output that fits a schema takes 2: leave it out")
		}
		turns = max(turns, 2)
		argv = append(argv, "--json-schema", string(r.Session.OutputSchema))
	}
	argv = append(argv, "--max-turns", strconv.Itoa(turns))
	if s.cfg.MaxUSD > 0 {
		left := s.cfg.MaxUSD - r.Session.SpentUSD
		if left <= 0 {
			return nil, fmt.Errorf("earlier tries used up max_usd: %g of %g USD", r.Session.SpentUSD, s.cfg.MaxUSD)
		}
		argv = append(argv, "--max-budget-usd", strconv.FormatFloat(left, 'f', -1, 64))
	}
	env := map[string]string{
		tokenVariable: s.cfg.Token, "IS_SANDBOX": "1", "ENABLE_TOOL_SEARCH": "false", "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
		"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
	}
	if s.cfg.BaseURL != "" {
		env["ANTHROPIC_BASE_URL"] = s.cfg.BaseURL
	}
	return &invoker.Plan{
		Argv: argv, Env: env, Dir: emptyDir, Stdin: in.Prompt, Output: invoker.JSONL,
		Install: "npm install -g @anthropic-ai/claude-code", StandIn: "penstock dev claude",
	}, nil
}

// line checks, before a turn is used, that the program has what was asked for
// and nothing else.
func (s subscription) line(r *invoker.LineRequest) (invoker.LineResult, error) {
	return streamjson.Line(streamjson.Expect{Tools: append([]string{}, s.cfg.Tools...), May: []string{structured}}, r)
}

func (s subscription) result(r *invoker.ResultRequest) *invoker.Result {
	if r.Exit < 0 && r.Stdout == "" {
		return &invoker.Result{}
	}
	return streamjson.Answer(r)
}

// isAddress says whether a server can be asked there, or that only the run will
// know.
func isAddress(text string) bool {
	at, err := url.Parse(text)
	return strings.Contains(text, "${") || err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.Hostname() != ""
}
