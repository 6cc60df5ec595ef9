package plugin

import (
	"context"
	"encoding/json"
	"iter"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// wildOne panics in whatever it is asked.
type wildOne struct{ closed *bool }

func (w wildOne) Close() error { *w.closed = true; return nil }

type wildJudger struct{ wildOne }

func (wildJudger) Judge(context.Context, *judger.Request) (judger.Verdict, error) { panic("judge") }
func (wildJudger) JudgeGroup(context.Context, *judger.GroupRequest) ([]judger.Verdict, error) {
	panic("group")
}

type wildInvoker struct{ wildOne }

func (wildInvoker) Plan(context.Context, *invoker.PlanRequest) (*invoker.Plan, error) { panic("plan") }
func (wildInvoker) Result(context.Context, *invoker.ResultRequest) (*invoker.Result, error) {
	panic("result")
}
func (wildInvoker) Line(context.Context, *invoker.LineRequest) (invoker.LineResult, error) {
	panic("line")
}

type wildHook struct{ wildOne }

func (wildHook) Apply(context.Context, *hook.Event) (hook.Result, error) { panic("apply") }

type wildConverter struct{ wildOne }

func (wildConverter) Convert(context.Context, iter.Seq2[*converter.Row, error], converter.Output) error {
	panic("convert")
}

// TestAPanicOfWhatIsBuiltInIsAnError: of its call alone, as that of a plugin is;
// an instance keeps the interfaces that it has, and is closed with the registry.
func TestAPanicOfWhatIsBuiltInIsAnError(t *testing.T) {
	var closed bool
	one := wildOne{&closed}
	var all []component.Component
	for kind, v := range map[string]any{
		component.Judger: wildJudger{one}, component.Invoker: wildInvoker{one}, component.Hook: wildHook{one}, component.Converter: wildConverter{one},
	} {
		all = append(all, component.Component{
			Descriptor: component.Descriptor{Kind: kind, Name: "wild", Protocol: component.Protocol},
			Open:       func(context.Context, json.RawMessage) (any, error) { return v, nil },
		})
	}
	r := New(Options{Builtin: all})
	ctx := t.Context()
	j, err := r.Judger(ctx, "wild", nil)
	require.NoError(t, err)
	i, err := r.Invoker(ctx, "wild", nil)
	require.NoError(t, err)
	h, err := r.Hook(ctx, "wild", nil)
	require.NoError(t, err)
	c, err := r.Converter(ctx, "wild", nil)
	require.NoError(t, err)
	for want, call := range map[string]func() error{
		"plugin judger/wild: judge: it panicked: judge":        func() error { _, err := j.Judge(ctx, judger.NewRequest(doc.Bytes("{}"))); return err },
		"plugin judger/wild: judge_group: it panicked: group":  func() error { _, err := j.(judger.GroupJudger).JudgeGroup(ctx, nil); return err },
		"plugin invoker/wild: plan: it panicked: plan":         func() error { _, err := i.Plan(ctx, nil); return err },
		"plugin invoker/wild: result: it panicked: result":     func() error { _, err := i.Result(ctx, nil); return err },
		"plugin invoker/wild: line: it panicked: line":         func() error { _, err := i.(invoker.Liner).Line(ctx, nil); return err },
		"plugin hook/wild: hook_apply: it panicked: apply":     func() error { _, err := h.Apply(ctx, nil); return err },
		"plugin converter/wild: convert: it panicked: convert": func() error { return c.Convert(ctx, nil, nil) },
	} {
		err := call()
		var failed *Error
		require.ErrorAs(t, err, &failed, want)
		assert.Equal(t, Trapped, failed.Reason)
		assert.EqualError(t, err, want)
	}
	require.NoError(t, r.Close(ctx))
	assert.True(t, closed)
}
