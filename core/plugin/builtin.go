package plugin

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// builtin is an instance that is compiled in. A panic of it is an error of its
// call, as one in another process or in a module is. Formats go without: their
// calls are the gateway's hottest, and it catches what panics in a call.
type builtin struct {
	key   string
	log   *slog.Logger
	inner any
}

// guarded is v behind a builtin, with the interfaces that v has of its kind.
func guarded(e *entry, log *slog.Logger, v any) any {
	b := builtin{e.key, log, v}
	switch v := v.(type) {
	case judger.Judger:
		j := builtinJudger{b, v}
		if g, ok := v.(judger.GroupJudger); ok {
			return builtinGroupJudger{j, g}
		}
		return j
	case invoker.Invoker:
		i := builtinInvoker{b, v}
		if l, ok := v.(invoker.Liner); ok {
			return builtinLiner{i, l}
		}
		return i
	case hook.Hook:
		return builtinHook{b, v}
	case converter.Converter:
		return builtinConverter{b, v}
	}
	return v
}

func (b builtin) close(context.Context) error { return component.Close(b.inner) }

// catch makes a panic the error of a method. It is deferred. The stack is
// logged, as what broke is the program and not what it was given.
func (b builtin) catch(method string, err *error) {
	if p := recover(); p != nil {
		b.log.Error("a built-in component panicked", "component", b.key, "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = &Error{Plugin: b.key, Method: method, Reason: Trapped, Message: fmt.Sprintf("it panicked: %v", p)}
	}
}

type builtinJudger struct {
	builtin
	judger.Judger
}

// Judge implements judger.Judger.
func (j builtinJudger) Judge(ctx context.Context, r *judger.Request) (v judger.Verdict, err error) {
	defer j.catch(judger.MethodJudge, &err)
	return j.Judger.Judge(ctx, r)
}

type builtinGroupJudger struct {
	builtinJudger
	group judger.GroupJudger
}

// JudgeGroup implements judger.GroupJudger.
func (j builtinGroupJudger) JudgeGroup(ctx context.Context, r *judger.GroupRequest) (vs []judger.Verdict, err error) {
	defer j.catch(judger.MethodJudgeGroup, &err)
	return j.group.JudgeGroup(ctx, r)
}

// ended says that the caller gave up before the call, as the other transports do.
func (b builtin) ended(ctx context.Context, method string) error {
	if err := ctx.Err(); err != nil {
		return &Error{Plugin: b.key, Method: method, Reason: Cancelled, Message: err.Error(), Cause: err}
	}
	return nil
}

type builtinInvoker struct {
	builtin
	invoker.Invoker
}

// Plan implements invoker.Invoker.
func (i builtinInvoker) Plan(ctx context.Context, r *invoker.PlanRequest) (p *invoker.Plan, err error) {
	defer i.catch(invoker.MethodPlan, &err)
	if err := i.ended(ctx, invoker.MethodPlan); err != nil {
		return nil, err
	}
	return i.Invoker.Plan(ctx, r)
}

// Result implements invoker.Invoker.
func (i builtinInvoker) Result(ctx context.Context, r *invoker.ResultRequest) (out *invoker.Result, err error) {
	defer i.catch(invoker.MethodResult, &err)
	if err := i.ended(ctx, invoker.MethodResult); err != nil {
		return nil, err
	}
	return i.Invoker.Result(ctx, r)
}

type builtinLiner struct {
	builtinInvoker
	liner invoker.Liner
}

// Line implements invoker.Liner.
func (i builtinLiner) Line(ctx context.Context, r *invoker.LineRequest) (out invoker.LineResult, err error) {
	defer i.catch(invoker.MethodLine, &err)
	if err := i.ended(ctx, invoker.MethodLine); err != nil {
		return out, err
	}
	return i.liner.Line(ctx, r)
}

type builtinHook struct {
	builtin
	hook.Hook
}

// Apply implements hook.Hook.
func (h builtinHook) Apply(ctx context.Context, e *hook.Event) (res hook.Result, err error) {
	defer h.catch(hook.Method, &err)
	return h.Hook.Apply(ctx, e)
}

type builtinConverter struct {
	builtin
	converter.Converter
}

// Convert implements converter.Converter.
func (c builtinConverter) Convert(ctx context.Context, rows iter.Seq2[*converter.Row, error], out converter.Output) (err error) {
	defer c.catch("convert", &err)
	return c.Converter.Convert(ctx, rows, out)
}
