package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// adapt makes an instance of any transport a value of its kind's interface.
func adapt(ctx context.Context, e *entry, in instance) (any, error) {
	r := remote{key: e.key, instance: in}
	switch e.Kind {
	case component.Judger:
		j := remoteJudger{r}
		if slices.Contains(e.Methods, judger.MethodJudgeGroup) {
			return remoteGroupJudger{j}, nil
		}
		return j, nil
	case component.Hook:
		return remoteHook{r}, nil
	case component.Invoker:
		i := remoteInvoker{r}
		if slices.Contains(e.Methods, invoker.MethodLine) {
			return remoteLiner{i}, nil
		}
		return i, nil
	case component.Format:
		return newRemoteFormat(ctx, r)
	case component.Converter:
		return newRemoteConverter(r)
	}
	return nil, fmt.Errorf("kind %q is not one of the contract's", e.Kind)
}

// remote is an instance that lives behind a transport.
type remote struct {
	key      string
	instance instance
}

func (r remote) close(ctx context.Context) error { return r.instance.close(ctx) }

// ask calls a method with a document and decodes the reply.
func (r remote) ask(ctx context.Context, method string, in []byte, reply any) error {
	out, err := r.instance.call(ctx, method, in)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, reply); err != nil {
		return r.bad(method, fmt.Errorf("the reply is not what %s gives: %w", method, schema.Plain(err)))
	}
	return nil
}

func (r remote) bad(method string, err error) error {
	return &Error{Plugin: r.key, Method: method, Reason: BadReply, Message: err.Error(), Cause: err}
}

// request asks with a request that is a struct.
func request[A any](ctx context.Context, r remote, method string, q any) (*A, error) {
	in, err := chat.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %s: %w", r.key, method, err)
	}
	a := new(A)
	return a, r.ask(ctx, method, in, a)
}

type remoteJudger struct{ remote }

// Judge implements judger.Judger.
func (j remoteJudger) Judge(ctx context.Context, q *judger.Request) (judger.Verdict, error) {
	var v judger.Verdict
	in, _ := q.Doc().Get("")
	if err := j.ask(ctx, judger.MethodJudge, in, &v); err != nil {
		return judger.Verdict{}, err
	}
	v = settled(v)
	if err := v.Check(); err != nil {
		return judger.Verdict{}, j.bad(judger.MethodJudge, err)
	}
	return v, nil
}

// settled fills in the status of a verdict that only has a reward, as the
// shortest judgers write it.
func settled(v judger.Verdict) judger.Verdict {
	if v.Status == "" && v.Reward != nil {
		v.Status = judger.Scored
	}
	return v
}

type remoteGroupJudger struct{ remoteJudger }

// JudgeGroup implements judger.GroupJudger.
func (j remoteGroupJudger) JudgeGroup(ctx context.Context, q *judger.GroupRequest) ([]judger.Verdict, error) {
	var vs []judger.Verdict
	in, _ := q.Doc().Get("")
	if err := j.ask(ctx, judger.MethodJudgeGroup, in, &vs); err != nil {
		return nil, err
	}
	if n := len(q.Rollouts()); n != len(vs) {
		return nil, j.bad(judger.MethodJudgeGroup, fmt.Errorf("it gave %d verdicts for %d rollouts", len(vs), n))
	}
	for i, v := range vs {
		vs[i] = settled(v)
		if err := vs[i].Check(); err != nil {
			return nil, j.bad(judger.MethodJudgeGroup, fmt.Errorf("verdict %d: %w", i, err))
		}
	}
	return vs, nil
}

type remoteHook struct{ remote }

// Apply implements hook.Hook.
func (h remoteHook) Apply(ctx context.Context, e *hook.Event) (hook.Result, error) {
	var res hook.Result
	in, _ := e.Doc().Get("")
	if err := h.ask(ctx, hook.Method, in, &res); err != nil {
		return hook.Result{}, err
	}
	if err := res.Check(); err != nil {
		return hook.Result{}, h.bad(hook.Method, err)
	}
	return res, nil
}

type remoteInvoker struct{ remote }

// Plan implements invoker.Invoker.
func (i remoteInvoker) Plan(ctx context.Context, q *invoker.PlanRequest) (*invoker.Plan, error) {
	return request[invoker.Plan](ctx, i.remote, invoker.MethodPlan, q)
}

// Result implements invoker.Invoker.
func (i remoteInvoker) Result(ctx context.Context, q *invoker.ResultRequest) (*invoker.Result, error) {
	return request[invoker.Result](ctx, i.remote, invoker.MethodResult, q)
}

type remoteLiner struct{ remoteInvoker }

// Line implements invoker.Liner.
func (i remoteLiner) Line(ctx context.Context, q *invoker.LineRequest) (invoker.LineResult, error) {
	a, err := request[invoker.LineResult](ctx, i.remote, invoker.MethodLine, q)
	if err != nil {
		return invoker.LineResult{}, err
	}
	return *a, nil
}
