// Package invoker is the interface of invokers: they say how an agent program
// is started, or which call of the model stands in its place, and read what
// came of it. All of it is pure: the host starts the program and makes the
// call, so that an invoker never holds a process or a connection.
package invoker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// Session is what the gateway opened for one run of the agent. BaseURL is the
// gateway's root, without /v1, and is empty when the stage names no model.
type Session struct {
	ID        string    `json:"id"`
	BaseURL   string    `json:"base_url,omitempty"`
	Token     string    `json:"token,omitempty"`
	Model     string    `json:"model,omitempty"`
	Workspace string    `json:"workspace"`
	Home      string    `json:"home"`
	MaxTurns  int       `json:"max_turns,omitempty"`
	Context   int       `json:"context,omitempty"` // tokens that the model takes, 0 if not known
	Deadline  time.Time `json:"deadline"`
	// OutputSchema is the JSON Schema that the final text must fit, where the
	// file gives one: for programs that can be held to it.
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	// SpentUSD is what earlier tries of the stage cost in US dollars, by what
	// Result said of them, where the program reaches its model by itself.
	SpentUSD float64 `json:"spent_usd,omitempty"`
}

// Output says how the program writes its standard output.
type Output string

// The kinds of output. With JSONL each line goes to Line as it comes.
const (
	Text  Output = "text"
	JSON  Output = "json"
	JSONL Output = "jsonl"
)

// File is written before the program starts. A relative path is in the
// workspace; one that starts with "~/" is in the private home.
type File struct {
	Path string `json:"path"`
	Data string `json:"data"`
	Mode uint32 `json:"mode,omitempty"` // permission bits; 0 means 0600
}

// ModelCall is one call of the model, for work that needs no program. The host
// makes it in the stage's session, so that it is recorded, counted and bounded
// as a program's calls are.
type ModelCall struct {
	// Path is a route of the gateway, such as /v1/chat/completions. It decides
	// in which dialect Body and its answer are.
	Path string `json:"path"`
	// Body asks for a whole answer, not for a stream.
	Body json.RawMessage `json:"body"`
}

// Plan is how the program is started, or with Call, and nothing else of it but
// Files, what the model is asked without one. Env is added to the allow-listed
// environment; a name in it wins.
type Plan struct {
	// Argv is the program and its arguments. A name is looked for in PATH, a
	// relative path starts at the workspace. A setting that is a schema.Argv
	// has an absolute path where the pipeline file gives a relative one.
	Argv  []string          `json:"argv,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	Files []File            `json:"files,omitempty"`
	Stdin string            `json:"stdin,omitempty"`
	// Dir is where the program starts, and is made if it isn't there: a path in
	// the workspace, or with "~/" at its start in the private home. Empty is the
	// workspace.
	Dir string `json:"dir,omitempty"`
	// Output is Text if empty.
	Output Output `json:"output,omitempty"`
	// HoldFirstCall makes the gateway hold the session's first call until Line
	// says ready or stop.
	HoldFirstCall bool `json:"hold_first_call,omitempty"`
	// Install is a command that gets the program, for the error when it isn't
	// there.
	Install string `json:"install,omitempty"`
	// StandIn is a command that takes its place where a pipeline is tried out.
	StandIn string     `json:"stand_in,omitempty"`
	Call    *ModelCall `json:"call,omitempty"`
}

// The exit statuses that an invoker may set.
const (
	OK         = "ok"
	AgentError = "agent_error"
	MaxTurns   = "max_turns"
	Budget     = "budget"
	InfraError = "infra_error"
)

// Stop ends the agent at once.
type Stop struct {
	ExitStatus string `json:"exit_status"`
	Reason     string `json:"reason"`
}

// LineResult is the answer to one line. State is handed to the next call.
type LineResult struct {
	State json.RawMessage `json:"state,omitempty"`
	Ready bool            `json:"ready,omitempty"`
	Stop  *Stop           `json:"stop,omitempty"`
}

// Result is what came of a run. ExitStatus, when set, replaces an "ok" that
// the host found; it never overrules timeout, cancelled or sandbox_lost.
type Result struct {
	Text       string      `json:"text"`
	Usage      *chat.Usage `json:"usage,omitempty"`
	Cost       *float64    `json:"cost,omitempty"` // US dollars
	ExitStatus string      `json:"exit_status,omitempty"`
	Error      string      `json:"error,omitempty"`
}

// Invoker plans a run and reads its outcome.
type Invoker interface {
	Plan(ctx context.Context, r *PlanRequest) (*Plan, error)
	Result(ctx context.Context, r *ResultRequest) (*Result, error)
}

// Liner is implemented by invokers that read JSONL as it comes.
type Liner interface {
	Line(ctx context.Context, r *LineRequest) (LineResult, error)
}

// PlanRequest is the document {input, task, session}.
type PlanRequest struct {
	Input   json.RawMessage `json:"input,omitempty"`
	Task    json.RawMessage `json:"task,omitempty"`
	Session Session         `json:"session"`
}

// DecodeInput decodes the input strictly into v.
func (r *PlanRequest) DecodeInput(v any) error { return schema.Decode(r.Input, v) }

// String is a field of the input that is text, "" if it isn't there. The host
// has checked the input against its schema.
func (r *PlanRequest) String(field string) string {
	return doc.At(doc.Bytes(r.Input), "").String(field)
}

// LineRequest is one line of standard output, without its newline.
type LineRequest struct {
	State json.RawMessage `json:"state,omitempty"`
	Line  string          `json:"line"`
}

// ResultRequest is how the program ended. Exit is its exit code, -1 when a
// signal ended it. Stdout is at most its last 16 MiB, cut at a line. After a
// Call, Stdout is the body of the answer and Exit its HTTP status, or 0 where
// that is 200.
type ResultRequest struct {
	Exit       int             `json:"exit"`
	Signal     string          `json:"signal,omitempty"`
	ExitStatus string          `json:"exit_status"`
	State      json.RawMessage `json:"state,omitempty"`
	Stdout     string          `json:"stdout"`
	Stderr     string          `json:"stderr,omitempty"` // its last 64 KiB
}

// The methods of an invoker.
const (
	MethodPlan   = "plan"
	MethodLine   = "line"
	MethodResult = "result"
)

// Option describes an invoker further.
type Option func(*component.Descriptor)

// Summary says in a line what the invoker does.
func Summary(text string) Option { return func(d *component.Descriptor) { d.Summary = text } }

// Version is the invoker's own version.
func Version(v string) Option { return func(d *component.Descriptor) { d.Version = v } }

// Input declares, as a struct, what each call is given through `with:`.
func Input[T any]() Option {
	return func(d *component.Descriptor) { d.Input = schema.Of[T]() }
}

// AlwaysCalls says that a run of the program without one call of the model is
// a failure: agent_no_activity.
func AlwaysCalls() Option {
	return func(d *component.Descriptor) { d.Wants = append(d.Wants, "model") }
}

// Modes says what values of the setting key mean that don't stand for any model
// of the file through the gateway.
func Modes(key string, modes map[string]component.Mode) Option {
	return func(d *component.Descriptor) { d.ModeKey, d.Modes = key, modes }
}

// Programs names the agent programs that the invoker knows to start.
func Programs(list ...component.Program) Option {
	return func(d *component.Descriptor) { d.Programs = append(d.Programs, list...) }
}

// Register adds an invoker to this program. C is a struct, its config.
func Register[C any](name string, open func(C) (Invoker, error), options ...Option) {
	d := component.Descriptor{
		Kind: component.Invoker, Name: name, Config: schema.Of[C](), Output: OutputSchema,
		Methods: []string{MethodPlan, MethodLine, MethodResult},
	}
	for _, o := range options {
		o(&d)
	}
	component.Register(component.Component{
		Descriptor: d,
		Open: func(_ context.Context, config json.RawMessage) (any, error) {
			var cfg C
			if err := schema.Decode(config, &cfg); err != nil {
				return nil, err
			}
			return open(cfg)
		},
		Call: Call,
	})
}

// OutputSchema is the schema of an invoker stage's output.
var OutputSchema = json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"},` +
	`"usage":{"type":"object","properties":{"input":{"type":"integer"},"output":{"type":"integer"},"cached":{"type":"integer"},"cache_write":{"type":"integer"}},"required":["input","output"],"additionalProperties":false},` +
	`"cost":{"type":["number","null"]},"exit_status":{"type":"string","enum":["ok","agent_error","timeout","max_turns","budget"]}},` +
	`"required":["text","usage","cost","exit_status"],"additionalProperties":false}`)

// Call is the byte form of an invoker's methods, for transports.
func Call(ctx context.Context, instance any, method string, in doc.Doc) ([]byte, error) {
	raw, _ := in.Get("")
	switch method {
	case MethodPlan:
		return call(raw, func(r *PlanRequest) (*Plan, error) { return instance.(Invoker).Plan(ctx, r) })
	case MethodResult:
		return call(raw, func(r *ResultRequest) (*Result, error) { return instance.(Invoker).Result(ctx, r) })
	case MethodLine:
		return call(raw, func(r *LineRequest) (LineResult, error) {
			if l, ok := instance.(Liner); ok {
				return l.Line(ctx, r)
			}
			return LineResult{State: r.State}, nil
		})
	}
	return nil, fmt.Errorf("an invoker has no method %q", method)
}

func call[R, A any](raw []byte, f func(*R) (A, error)) ([]byte, error) {
	var r R
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	a, err := f(&r)
	if err != nil {
		return nil, err
	}
	return chat.Marshal(a)
}
