package streamjson

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/sdk/invoker"
)

// resultLine is the last line of a run.
type resultLine struct {
	Type           string           `json:"type"`
	Subtype        string           `json:"subtype"`
	IsError        bool             `json:"is_error"`
	Result         *string          `json:"result"`
	StopReason     string           `json:"stop_reason"`
	TerminalReason string           `json:"terminal_reason"`
	APIErrorStatus *int             `json:"api_error_status"`
	Errors         []string         `json:"errors"`
	Cost           number           `json:"total_cost_usd"`
	Models         map[string]model `json:"modelUsage"`
	Usage          *usage           `json:"usage"`
}

type assistantLine struct {
	// Parent is the call that started the sub-agent which speaks, if one does.
	Parent  *string `json:"parent_tool_use_id"`
	Message struct {
		ID      string `json:"id"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"message"`
}

// Result reads how a run ended from its result line. is_error says whether it
// failed: the subtype of a failed call of the API is "success", and the exit
// code of an interrupted run is 0.
func Result(r *invoker.ResultRequest) *invoker.Result {
	line, text := last(r.Stdout)
	if line == nil {
		return &invoker.Result{Text: text, ExitStatus: invoker.AgentError, Error: noResult(r)}
	}
	out := &invoker.Result{Text: text, Usage: line.usage(), Cost: line.cost(), ExitStatus: invoker.OK}
	if !line.IsError {
		if line.Result != nil {
			out.Text = *line.Result
		}
		if r.Exit != 0 {
			out.ExitStatus = invoker.AgentError
			out.Error = "the agent answered and then ended with " + ended(r)
		}
		return out
	}
	out.ExitStatus, out.Error = failure(line)
	return out
}

// Answer is Result for a run that was to give one answer and nothing else: what
// is no whole answer is not "ok", and none of its text is passed on. What was
// used is counted all the same.
func Answer(r *invoker.ResultRequest) *invoker.Result {
	out := Result(r)
	line, _ := last(r.Stdout)
	switch {
	case out.ExitStatus != invoker.OK:
	case len(r.State) == 0:
		out.ExitStatus, out.Error = invoker.InfraError, "the program answered, but never said what tools it has: it printed no system/init line"
	case line.StopReason == "max_tokens":
		out.ExitStatus, out.Error = invoker.AgentError, "the reply was cut at its most tokens"
	case line.StopReason == "refusal":
		out.ExitStatus, out.Error = invoker.AgentError, "the model refused"
	case strings.TrimSpace(out.Text) == "":
		out.ExitStatus, out.Error = invoker.AgentError, "the reply holds no text"
	}
	if out.ExitStatus != invoker.OK {
		out.Text = ""
	}
	return out
}

// failure maps a result that is an error. A provider that is overloaded or
// broken is no fault of the agent; a request that was refused is.
func failure(l *resultLine) (status, message string) {
	message = strings.Join(l.Errors, "; ")
	if l.Result != nil && *l.Result != "" {
		message = *l.Result
	}
	if l.Subtype == "error_max_budget_usd" {
		message = strings.TrimPrefix(message+"; the program came to its bound of money, by its own estimate"+l.estimate(), "; ")
	}
	if message == "" {
		message = strings.TrimSpace("the agent failed: " + l.Subtype + " " + l.TerminalReason)
	}
	switch {
	case l.TerminalReason == "max_turns", l.Subtype == "error_max_turns":
		return invoker.MaxTurns, message
	case l.Subtype == "error_max_budget_usd":
		return invoker.Budget, message
	case l.TerminalReason == "api_error" && (l.APIErrorStatus == nil || infra(*l.APIErrorStatus)):
		return invoker.InfraError, message
	}
	return invoker.AgentError, message
}

// estimate is the cost of a result line in words, "" if it has none.
func (l *resultLine) estimate() string {
	if c := l.cost(); c != nil {
		return fmt.Sprintf(": %.2f USD", *c)
	}
	return ""
}

func infra(status int) bool {
	return status == 0 || status == 401 || status == 408 || status == 409 || status == 429 || status >= 500
}

// last finds the result line and the last text of the assistant, from the end
// of the output. A message comes in several lines, one for each of its parts; a
// sub-agent's are not the assistant's.
func last(stdout string) (line *resultLine, text string) {
	var parts []string
	id := ""
	for rest := strings.TrimRight(stdout, "\n"); rest != ""; {
		from := strings.LastIndexByte(rest, '\n') + 1
		l := rest[from:]
		rest = strings.TrimRight(rest[:from], "\n")
		switch lineType(l) {
		case "result":
			var found resultLine
			if line == nil && json.Unmarshal([]byte(l), &found) == nil {
				line = &found
				if line.Result != nil && !line.IsError {
					return line, *line.Result
				}
			}
		case "assistant":
			var a assistantLine
			if json.Unmarshal([]byte(l), &a) != nil || a.Parent != nil {
				continue
			}
			said := a.text()
			if len(said) > 0 && len(parts) > 0 && (a.Message.ID == "" || a.Message.ID != id) {
				return line, strings.Join(parts, "\n")
			}
			if len(said) > 0 {
				parts, id = append(said, parts...), a.Message.ID
			}
		}
	}
	return line, strings.Join(parts, "\n")
}

func (a *assistantLine) text() []string {
	var out []string
	for _, c := range a.Message.Content {
		if c.Type == "text" && c.Text != "" {
			out = append(out, c.Text)
		}
	}
	return out
}

// noResult says what is known of a run that ended without a result.
func noResult(r *invoker.ResultRequest) string {
	message := "the agent ended without a result line, with " + ended(r)
	if tail := strings.TrimSpace(r.Stderr); tail != "" {
		const most = 2000
		if len(tail) > most {
			tail = "…" + strings.ToValidUTF8(tail[len(tail)-most:], "")
		}
		message += "; its stderr ends: " + tail
	}
	return message
}

func ended(r *invoker.ResultRequest) string {
	if r.Signal != "" {
		return "signal " + r.Signal
	}
	return fmt.Sprintf("exit code %d", r.Exit)
}
