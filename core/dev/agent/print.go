package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// printer shows a run on standard output.
type printer interface {
	init(model, cwd string, tools []string, servers []serverState)
	assistant(r *reply)
	user(message json.RawMessage)
	result(o *outcome)
}

// textPrinter prints the final text and nothing else.
type textPrinter struct{ w io.Writer }

func (textPrinter) init(string, string, []string, []serverState) {}
func (textPrinter) assistant(*reply)                             {}
func (textPrinter) user(json.RawMessage)                         {}

func (p textPrinter) result(o *outcome) {
	if o.text != "" {
		_, _ = fmt.Fprintln(p.w, o.text)
	}
}

// linePrinter prints JSON lines as Claude Code does with --output-format
// stream-json.
type linePrinter struct {
	w       io.Writer
	session string
}

func (p linePrinter) line(v any) {
	b, err := marshal(v)
	if err == nil {
		_, _ = p.w.Write(append(b, '\n')) // a reader that is gone ends the run by its own signal
	}
}

func (p linePrinter) init(model, cwd string, tools []string, servers []serverState) {
	if servers == nil {
		servers = []serverState{}
	}
	p.line(struct {
		Type    string        `json:"type"`
		Subtype string        `json:"subtype"`
		CWD     string        `json:"cwd"`
		Session string        `json:"session_id"`
		Tools   []string      `json:"tools"`
		Servers []serverState `json:"mcp_servers"`
		Model   string        `json:"model"`
	}{"system", "init", cwd, p.session, tools, servers, model})
}

// assistant prints one line a block.
func (p linePrinter) assistant(r *reply) {
	type msg struct {
		ID      string   `json:"id"`
		Type    string   `json:"type"`
		Role    string   `json:"role"`
		Model   string   `json:"model"`
		Content []*block `json:"content"`
		Stop    string   `json:"stop_reason"`
		Usage   usage    `json:"usage"`
	}
	for _, b := range r.Blocks {
		p.line(struct {
			Type    string `json:"type"`
			Message msg    `json:"message"`
			Session string `json:"session_id"`
		}{"assistant", msg{r.ID, "message", "assistant", r.Model, []*block{b}, r.StopReason, r.Usage}, p.session})
	}
}

func (p linePrinter) user(message json.RawMessage) {
	p.line(struct {
		Type    string          `json:"type"`
		Message json.RawMessage `json:"message"`
		Session string          `json:"session_id"`
	}{"user", message, p.session})
}

func (p linePrinter) result(o *outcome) {
	line := struct {
		Type     string   `json:"type"`
		Subtype  string   `json:"subtype"`
		IsError  bool     `json:"is_error"`
		Status   *int     `json:"api_error_status"`
		Duration int64    `json:"duration_ms"`
		Turns    int      `json:"num_turns"`
		Result   *string  `json:"result,omitempty"`
		Stop     string   `json:"stop_reason"`
		Session  string   `json:"session_id"`
		Usage    usage    `json:"usage"`
		Reason   string   `json:"terminal_reason"`
		Errors   []string `json:"errors,omitempty"`
	}{
		Type: "result", Subtype: "success", IsError: o.err != nil, Duration: o.elapsed.Milliseconds(), Turns: o.turns,
		Result: &o.text, Stop: o.stop, Session: p.session, Usage: o.usage, Reason: o.reason,
	}
	if o.err != nil {
		text := o.err.Error()
		line.Result = &text
		var api *apiError
		if errors.As(o.err, &api) && api.Status != 0 {
			line.Status = &api.Status
		}
		switch o.reason {
		case apiFailed:
		case turnsOver:
			line.Subtype, line.Result, line.Errors = "error_max_turns", nil, []string{text}
		default:
			line.Subtype, line.Result, line.Errors = "error_during_execution", nil, []string{text}
		}
	}
	p.line(line)
}
