package engine

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/redact"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// The test binary is also the shim of the programs that runs start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__shim" {
		os.Exit(agent.ShimMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// bench is a run of a pipeline with components of the test's own.
type bench struct {
	testing.TB
	engine *Engine
	store  *trace.Store
	folder *run.Folder
	file   *run.File

	mu     sync.Mutex
	events []run.Event
}

// start makes an engine for the text of a pipeline file, and keeps its events.
func start(t testing.TB, text string, components ...component.Component) *bench {
	t.Helper()
	b := &bench{TB: t}
	b.begin(text, func(e run.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	}, components...)
	return b
}

func (b *bench) begin(text string, tell func(run.Event), components ...component.Component) {
	t := b.TB
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "pipeline.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	all := append([]component.Component{speaker(), teller(), listed()}, components...)
	plugins := plugin.New(plugin.Options{CacheDir: filepath.Join(dir, "cache"), Builtin: all})
	t.Cleanup(func() { require.NoError(t, plugins.Close(context.Background())) })
	f, err := pipeline.Parse(path, pipeline.ParseOptions{Enable: pipeline.Features})
	require.NoError(t, err)
	p, err := f.Check(plugins)
	require.NoError(t, err)
	b.folder, err = run.Create(filepath.Join(dir, "out"), "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.folder.Close()) })
	b.store, err = trace.Open(b.folder.Database(), trace.StoreOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.store.Close()) })
	events, err := b.folder.Events(tell)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, events.Close()) })
	self, err := os.Executable()
	require.NoError(t, err)
	b.file = &run.File{Version: run.FileVersion, Run: b.folder.ID}
	b.engine, err = New(t.Context(), Options{
		Pipeline: p, Folder: b.folder, File: b.file, Events: events, Store: b.store, Plugins: plugins,
		Log: slog.New(slog.DiscardHandler), Self: self, Redact: redact.New(redact.Options{Values: []string{"hunter2-hunter2"}}),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.engine.Close()) })
}

// run runs the pipeline to its end.
func (b *bench) run() *run.Totals {
	b.Helper()
	totals, err := b.engine.Run(b.Context())
	require.NoError(b, err)
	return totals
}

func (b *bench) rollout(id string) *trace.Rollout {
	b.Helper()
	r, err := b.store.Rollout(b.Context(), id)
	require.NoError(b, err)
	return r
}

func (b *bench) stage(rollout, id string) *trace.StageResult {
	b.Helper()
	all, err := b.store.Stages(b.Context(), rollout)
	require.NoError(b, err)
	for _, s := range all {
		if s.Stage == id {
			return s
		}
	}
	require.Fail(b, "no such stage", id)
	return nil
}

func (b *bench) warnings() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, e := range b.events {
		if e.Type == run.Warned {
			out = append(out, e.Message)
		}
	}
	return out
}

// speaker is invoker/say: a program that prints its prompt, without a model.
func speaker() component.Component {
	type input struct {
		Prompt string `json:"prompt"`
	}
	return component.Component{
		Descriptor: component.Descriptor{Kind: component.Invoker, Name: "say", Protocol: component.Protocol,
			Input: schema.Of[input](), Output: invoker.OutputSchema},
		Open: func(context.Context, json.RawMessage) (any, error) { return say{}, nil },
	}
}

type say struct{}

func (say) Plan(_ context.Context, q *invoker.PlanRequest) (*invoker.Plan, error) {
	var in struct{ Prompt string }
	err := json.Unmarshal(q.Input, &in)
	return &invoker.Plan{Argv: []string{"printf", "%s", in.Prompt}}, err
}

func (say) Result(_ context.Context, q *invoker.ResultRequest) (*invoker.Result, error) {
	return &invoker.Result{Text: q.Stdout}, nil
}

// teller is judger/length: the length of the final text, or of its input.
func teller() component.Component {
	type input struct {
		Text string `json:"text,omitempty"`
	}
	return component.Component{
		Descriptor: component.Descriptor{Kind: component.Judger, Name: "length", Protocol: component.Protocol,
			Input: schema.Of[input](), Output: judger.Output, Methods: []string{judger.MethodJudge}},
		Open: func(context.Context, json.RawMessage) (any, error) { return length{}, nil },
	}
}

type length struct{}

func (length) Judge(_ context.Context, r *judger.Request) (judger.Verdict, error) {
	text := r.Input().String("text")
	if text == "" {
		text = r.Rollout().FinalText()
	}
	return judger.Reward(float64(len(text))), nil
}

// listed is converter/list, which writes rows as they are.
func listed() component.Component {
	return component.Component{
		Descriptor: component.Descriptor{Kind: component.Converter, Name: "list", Protocol: component.Protocol},
		Open:       func(context.Context, json.RawMessage) (any, error) { return list{}, nil },
	}
}

type list struct{}

func (list) Convert(_ context.Context, rows iter.Seq2[*converter.Row, error], out converter.Output) error {
	return converter.Lines(rows, out, "jsonl", func(r *converter.Row) any { return r })
}

// hookFunc is a hook as a function.
type hookFunc func(ctx context.Context, e *hook.Event) (hook.Result, error)

func (f hookFunc) Apply(ctx context.Context, e *hook.Event) (hook.Result, error) { return f(ctx, e) }

// changes is a hook that may change what passes at the points.
func changes(name string, f hookFunc, points ...string) component.Component {
	return component.Component{
		Descriptor: component.Descriptor{Kind: component.Hook, Name: name, Protocol: component.Protocol, Changes: points, Methods: []string{hook.Method}},
		Open:       func(context.Context, json.RawMessage) (any, error) { return f, nil },
	}
}

// observes is a hook that watches the points.
func observes(name string, f hookFunc, points ...string) component.Component {
	c := changes(name, f)
	c.Observes = points
	return c
}
