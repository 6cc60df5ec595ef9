// Package judger is the interface of judgers: they look at a finished rollout
// and return a verdict. A judger in a file of its own:
//
//	type Config struct {
//		IgnoreCase bool `json:"ignore_case,omitempty" desc:"compare without case"`
//	}
//
//	type exact struct{ cfg Config }
//
//	func New(cfg Config) (judger.Judger, error) { return exact{cfg}, nil }
//
//	func (e exact) Judge(_ context.Context, r *judger.Request) (judger.Verdict, error) {
//		return judger.Pass(r.Rollout().FinalText() == r.Task().String("answer")), nil
//	}
//
//	func init() { judger.Register("exact", New) }
//	func main() { serve.Main() }
package judger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/model"
	"github.com/penstock-dev/penstock/sdk/rollout"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// Judger judges one rollout. Judge may be called from several goroutines. An
// error is a judge_error: the reward is then null, never 0.
type Judger interface {
	Judge(ctx context.Context, r *Request) (Verdict, error)
}

// GroupJudger judges the samples of a task together, for a stage with scope:
// group. It gives one verdict for each rollout, in their order.
type GroupJudger interface {
	JudgeGroup(ctx context.Context, r *GroupRequest) ([]Verdict, error)
}

// Status says what a verdict is worth.
type Status string

// The statuses of a verdict. Skipped has a null reward and completes the
// stage; the errors fail it.
const (
	Scored     Status = "scored"
	Skipped    Status = "skipped"
	JudgeError Status = "judge_error"
	InfraError Status = "infra_error"
)

// Verdict is a judger's answer. Reward is nil unless Status is Scored.
type Verdict struct {
	Reward      *float64           `json:"reward"`
	Components  map[string]float64 `json:"components,omitempty"`
	Label       string             `json:"label,omitempty"`
	Explanation string             `json:"explanation,omitempty"`
	Status      Status             `json:"status"`
	Tampered    bool               `json:"tampered,omitempty"`
	Cost        *float64           `json:"cost,omitempty"`
	// Extra are fields beyond these, as the judger declares with Writes.
	Extra map[string]json.RawMessage `json:"-"`
}

// Reward is a verdict with a reward.
func Reward(r float64) Verdict { return Verdict{Reward: &r, Status: Scored} }

// Pass is a verdict with reward 1 for true and 0 for false.
func Pass(ok bool) Verdict {
	if ok {
		return Reward(1)
	}
	return Reward(0)
}

// Skip is a verdict without a reward.
func Skip(why string) Verdict { return Verdict{Status: Skipped, Explanation: why} }

// Check reports why v is no verdict: a status that isn't one, a reward that
// doesn't fit it, NaN or an infinity.
func (v Verdict) Check() error {
	switch v.Status {
	case Scored:
		if v.Reward == nil {
			return fmt.Errorf("verdict is scored but has no reward")
		}
	case Skipped, JudgeError, InfraError:
		if v.Reward != nil {
			return fmt.Errorf("verdict is %s but has a reward", v.Status)
		}
	default:
		return fmt.Errorf("verdict has status %q, want scored, skipped, judge_error or infra_error", v.Status)
	}
	if v.Reward != nil && !finite(*v.Reward) {
		return fmt.Errorf("reward is %v, want a finite number", *v.Reward)
	}
	for name, c := range v.Components {
		if !finite(c) {
			return fmt.Errorf("component %s is %v, want a finite number", name, c)
		}
	}
	if v.Cost != nil && !finite(*v.Cost) {
		return fmt.Errorf("cost is %v, want a finite number", *v.Cost)
	}
	return nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// Request is one rollout to judge: the document {input, task, rollout}, and
// session where the stage names a model.
type Request struct{ doc doc.Doc }

// NewRequest makes a request from its document.
func NewRequest(d doc.Doc) *Request { return &Request{d} }

// Doc is the request's document.
func (r *Request) Doc() doc.Doc { return r.doc }

// Rollout is what is judged.
func (r *Request) Rollout() rollout.Rollout {
	return rollout.Rollout{Object: doc.At(r.doc, "/rollout")}
}

// Task is the task's own object, with all of its fields.
func (r *Request) Task() doc.Object { return doc.At(r.doc, "/task") }

// Input reads what `with:` gave for this call.
func (r *Request) Input() doc.Object { return doc.At(r.doc, "/input") }

// DecodeInput decodes the input strictly into v.
func (r *Request) DecodeInput(v any) error {
	b, _ := r.doc.Get("/input")
	return schema.Decode(b, v)
}

// Session is the way to the model that the stage names, for model.Ask; empty
// where it names none. A judger that always asks says so with AsksModel.
func (r *Request) Session() model.Session { return session(r.doc) }

func session(d doc.Doc) model.Session {
	var s model.Session
	if doc.At(d, "").Decode("session", &s) != nil {
		return model.Session{}
	}
	return s
}

// GroupRequest is the samples of a task: the document {input, task, rollouts},
// and session where the stage names a model. Those whose agent or an earlier
// stage failed, or whose stage was skipped, are not among them.
type GroupRequest struct{ doc doc.Doc }

// NewGroupRequest makes a request from its document.
func NewGroupRequest(d doc.Doc) *GroupRequest { return &GroupRequest{d} }

// Doc is the request's document.
func (r *GroupRequest) Doc() doc.Doc { return r.doc }

// Task is the task's own object.
func (r *GroupRequest) Task() doc.Object { return doc.At(r.doc, "/task") }

// Input reads what `with:` gave for this call.
func (r *GroupRequest) Input() doc.Object { return doc.At(r.doc, "/input") }

// Session is the way to the model that the stage names; see Request.Session.
func (r *GroupRequest) Session() model.Session { return session(r.doc) }

// Rollouts are the samples in order.
func (r *GroupRequest) Rollouts() []rollout.Rollout {
	var out []rollout.Rollout
	doc.At(r.doc, "").Each("rollouts", func(o doc.Object) bool {
		out = append(out, rollout.Rollout{Object: o})
		return true
	})
	return out
}

// The methods of a judger.
const (
	MethodJudge      = "judge"
	MethodJudgeGroup = "judge_group"
)

// Option describes a judger further.
type Option func(*component.Descriptor)

// Summary says in a line what the judger does.
func Summary(text string) Option { return func(d *component.Descriptor) { d.Summary = text } }

// Version is the judger's own version.
func Version(v string) Option { return func(d *component.Descriptor) { d.Version = v } }

// Input declares, as a struct, what each call is given through `with:`.
func Input[T any]() Option {
	return func(d *component.Descriptor) { d.Input = schema.Of[T]() }
}

// AsksModel says that the judger asks a model, so that its stage has to name
// one.
func AsksModel() Option {
	return func(d *component.Descriptor) { d.Wants = append(d.Wants, "model") }
}

// RunsPrograms says that the judger runs programs in the workspace, so that its
// stage may have a sandbox for them.
func RunsPrograms() Option {
	return func(d *component.Descriptor) { d.Wants = append(d.Wants, component.Programs) }
}

// Group says that the judger implements GroupJudger too. One that judges
// nothing but groups is registered with RegisterGroup.
func Group() Option {
	return func(d *component.Descriptor) { d.Methods = append(d.Methods, MethodJudgeGroup) }
}

// Register adds a judger to this program. C is a struct, the judger's config.
func Register[C any](name string, open func(C) (Judger, error), options ...Option) {
	register(name, open, MethodJudge, options)
}

// RegisterGroup adds a judger that judges groups and nothing else.
func RegisterGroup[C any](name string, open func(C) (GroupJudger, error), options ...Option) {
	alone := func(cfg C) (Judger, error) {
		g, err := open(cfg)
		return groupOnly{g}, err
	}
	register(name, alone, MethodJudgeGroup, options)
}

// groupOnly is a judger of groups as a Judger.
type groupOnly struct{ GroupJudger }

// Judge implements Judger. A pipeline that would come to it is refused at load.
func (groupOnly) Judge(context.Context, *Request) (Verdict, error) {
	return Verdict{}, errors.New("this judger judges groups: its stage needs scope: group")
}

func register[C any](name string, open func(C) (Judger, error), method string, options []Option) {
	d := component.Descriptor{
		Kind: component.Judger, Name: name, Config: schema.Of[C](), Output: Output,
		Methods: []string{method},
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

// Output is the schema of a verdict.
var Output = json.RawMessage(`{"type":"object","properties":{"reward":{"type":["number","null"]},` +
	`"components":{"type":"object","additionalProperties":{"type":"number"}},"label":{"type":"string"},` +
	`"explanation":{"type":"string"},"status":{"type":"string","enum":["scored","skipped","judge_error","infra_error"]},` +
	`"tampered":{"type":"boolean"},"cost":{"type":"number"}},"required":["reward","status"],"additionalProperties":false}`)

// Call is the byte form of a judger's methods, for transports.
func Call(ctx context.Context, instance any, method string, in doc.Doc) ([]byte, error) {
	switch method {
	case MethodJudge:
		v, err := instance.(Judger).Judge(ctx, NewRequest(in))
		if err != nil {
			return nil, err
		}
		if err := v.Check(); err != nil {
			return nil, err
		}
		return chat.Marshal(v)
	case MethodJudgeGroup:
		g, ok := instance.(GroupJudger)
		if !ok {
			return nil, fmt.Errorf("this judger judges no groups")
		}
		request := NewGroupRequest(in)
		vs, err := g.JudgeGroup(ctx, request)
		if err != nil {
			return nil, err
		}
		if n := len(request.Rollouts()); n != len(vs) {
			return nil, fmt.Errorf("it gave %d verdicts for %d rollouts", len(vs), n)
		}
		for i, v := range vs {
			if err := v.Check(); err != nil {
				return nil, fmt.Errorf("verdict %d: %w", i, err)
			}
		}
		return chat.Marshal(vs)
	}
	return nil, fmt.Errorf("a judger has no method %q", method)
}
