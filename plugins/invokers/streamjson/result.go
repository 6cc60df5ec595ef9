package streamjson

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

// resultLine is the last line of a run.
type resultLine struct {
	Type           string   `json:"type"`
	Subtype        string   `json:"subtype"`
	IsError        bool     `json:"is_error"`
	Result         *string  `json:"result"`
	TerminalReason string   `json:"terminal_reason"`
	APIErrorStatus *int     `json:"api_error_status"`
	Errors         []string `json:"errors"`
	Cost           *float64 `json:"total_cost_usd"`
	Models         map[string]struct {
		CostBasis string `json:"costBasis"`
	} `json:"modelUsage"`
	Usage *struct {
		InputTokens   int `json:"input_tokens"`
		CacheCreation int `json:"cache_creation_input_tokens"`
		CacheRead     int `json:"cache_read_input_tokens"`
		OutputTokens  int `json:"output_tokens"`
	} `json:"usage"`
}

type assistantLine struct {
	Message struct {
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
	out := &invoker.Result{Text: text, Cost: line.cost(), ExitStatus: invoker.OK}
	if u := line.Usage; u != nil {
		out.Usage = &chat.Usage{Input: u.InputTokens + u.CacheCreation + u.CacheRead, Output: u.OutputTokens, Cached: u.CacheRead, CacheWrite: u.CacheCreation}
	}
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

// cost is nil when the program guesses: behind a gateway it counts models that
// it does not know at the price of one that it does.
func (l *resultLine) cost() *float64 {
	for _, m := range l.Models {
		if m.CostBasis == "unknown" {
			return nil
		}
	}
	return l.Cost
}

// failure maps a result that is an error. A provider that is overloaded or
// broken is no fault of the agent; a request that was refused is.
func failure(l *resultLine) (status, message string) {
	message = strings.Join(l.Errors, "; ")
	if l.Result != nil && *l.Result != "" {
		message = *l.Result
	}
	if message == "" {
		message = "the agent failed: " + l.Subtype + " " + l.TerminalReason
	}
	switch {
	case l.TerminalReason == "max_turns", l.Subtype == "error_max_turns":
		return invoker.MaxTurns, message
	case l.TerminalReason == "api_error" && (l.APIErrorStatus == nil || infra(*l.APIErrorStatus)):
		return invoker.InfraError, message
	}
	return invoker.AgentError, message
}

func infra(status int) bool {
	return status == 0 || status == 401 || status == 408 || status == 409 || status == 429 || status >= 500
}

// last finds the result line and the last text of the assistant, from the end
// of the output.
func last(stdout string) (line *resultLine, text string) {
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
			if json.Unmarshal([]byte(l), &a) != nil {
				continue
			}
			for _, c := range a.Message.Content {
				if c.Type == "text" {
					text += c.Text
				}
			}
			if text != "" {
				return line, text
			}
		}
	}
	return line, text
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
