// Package engine runs the rollouts of a pipeline: its stages in order, with
// retries, budgets, checkpoints and events. It knows pipelines, sessions,
// agents and the store, and calls every plugin through the interface of its
// kind; it never knows over which transport one is reached.
package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/core/point"
	"github.com/penstock-dev/penstock/core/redact"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/telemetry"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// Options is what a run needs. All of it belongs to the caller, who closes
// what can be closed after Run returned.
type Options struct {
	Pipeline *pipeline.Pipeline
	Folder   *run.Folder
	File     *run.File
	Events   *run.Events
	Store    *trace.Store
	Plugins  *plugin.Registry
	Log      *slog.Logger
	// Self is the path of the running binary: agents find it as `penstock`,
	// and the shim is started from it.
	Self string
	// Redact takes secrets out of all that is written; nil leaves them in.
	Redact *redact.Redactor
	// Telemetry is told of sessions and calls; nil is none. It belongs to the
	// caller, who also gives it the events.
	Telemetry *telemetry.Telemetry
	// JudgeOnly opens what judges need and nothing else: no agent will run. With
	// Judges only those stages judge.
	JudgeOnly bool
	Judges    []string
	// Gateway holds the gateway's settings: address, limits, keep-alive.
	Gateway gateway.Options
}

// Engine is one run in progress.
type Engine struct {
	Options
	front      *gateway.Gateway
	runner     *agent.Runner
	drain      time.Duration // for calls in flight once their agent ended
	binDir     string
	sandboxes  map[box]sandbox.Sandbox // by what stages ask for
	models     map[string]*gateway.Model
	invokers   map[string]invoker.Invoker // by stage id
	judgers    map[string]judger.Judger
	converters map[string]converter.Converter
	hooks      map[string][]point.Hook // by stage id
	watch      *point.Watch            // hooks of stages and rows that only observe
	closers    []func() error
	judging    chan struct{} // bounds judge calls in flight
	ran        int           // rollouts that this part of the run started
}

// New opens plugins, models and the gateway. Close ends what it started.
func New(ctx context.Context, o Options) (*Engine, error) {
	e := &Engine{
		Options:    o,
		drain:      drainTime,
		models:     map[string]*gateway.Model{},
		invokers:   map[string]invoker.Invoker{},
		judgers:    map[string]judger.Judger{},
		converters: map[string]converter.Converter{},
		hooks:      map[string][]point.Hook{},
		watch:      point.NewWatch(watchQueue, o.Log),
	}
	n := o.Pipeline.Concurrency.Judge
	if n <= 0 {
		n = 2 * runtime.GOMAXPROCS(0)
	}
	e.judging = make(chan struct{}, n)
	if err := e.open(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// NewGateway opens the models and the gateway alone, for agents that others
// start. Close ends what it started.
func NewGateway(ctx context.Context, o Options) (*Engine, error) {
	e := &Engine{Options: o, models: map[string]*gateway.Model{}}
	err := e.openModels(ctx, o.Pipeline.ModelOrder)
	if err == nil {
		for _, name := range o.Pipeline.ModelOrder {
			e.Gateway.Models = append(e.Gateway.Models, e.models[name])
		}
		err = e.openGateway()
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// URL is where the gateway listens.
func (e *Engine) URL() string { return e.front.URL() }

// Session opens a session on one of the models, outside of any rollout.
func (e *Engine) Session(ctx context.Context, model string) (*gateway.Session, error) {
	m := e.models[model]
	if m == nil {
		return nil, fmt.Errorf("open session: there is no model %s", model)
	}
	return e.front.Open(ctx, gateway.SessionSpec{
		Session: trace.Session{ID: run.NewID("s"), ModelEntry: model, Opened: time.Now().UTC()}, Model: m,
	})
}

func (e *Engine) open(ctx context.Context) error {
	e.Events.Redact(e.Redact.String)
	if err := e.openStages(ctx); err != nil {
		return err
	}
	if err := e.openModels(ctx, e.used()); err != nil {
		return err
	}
	if len(e.models) > 0 {
		if err := e.openGateway(); err != nil {
			return err
		}
	}
	e.binDir = e.Folder.Path("work", ".bin")
	if err := agent.BinDir(e.binDir, e.Self); err != nil {
		return fmt.Errorf("make the agents' bin folder: %w", err)
	}
	e.runner = agent.NewRunner(agent.RunnerOptions{Shim: []string{e.Self, "__shim"}, Log: e.Log})
	e.File.Isolation = e.runner.Isolation()
	e.File.Hidden = e.runner.Hides() && (e.File.Hidden || e.File.Resumed == 0)
	if !e.runner.Hides() {
		e.Log.Warn("agents can read the run folder: this machine has no namespaces to hide it in")
	}
	return e.openSandboxes(ctx)
}

// each calls f with the stages that this engine may run.
func (e *Engine) each(f func(*pipeline.Stage)) {
	e.Pipeline.Each(func(s *pipeline.Stage) {
		if !e.JudgeOnly || e.judges(s) {
			f(s)
		}
	})
}

// judges says whether a stage is one of those that judge, where they alone run.
func (e *Engine) judges(s *pipeline.Stage) bool {
	return s.Kind == component.Judger && (len(e.Judges) == 0 || slices.Contains(e.Judges, s.ID))
}

// used are the models that stages name, in the order of the file.
func (e *Engine) used() []string {
	named := map[string]bool{}
	e.each(func(s *pipeline.Stage) { named[s.Model] = true })
	var out []string
	for _, name := range e.Pipeline.ModelOrder {
		if named[name] {
			out = append(out, name)
		}
	}
	return out
}

func (e *Engine) openStages(ctx context.Context) error {
	var all []*pipeline.Stage
	e.each(func(s *pipeline.Stage) { all = append(all, s) })
	for _, s := range all {
		var err error
		switch s.Kind {
		case "invoker":
			e.invokers[s.ID], err = e.Plugins.Invoker(ctx, s.Name, s.Config)
		case "judger":
			if s.Model != "" && e.Plugins.Transport(s.Kind, s.Name) == plugin.Wasm {
				return fmt.Errorf("stage %s: %s asks a model, and a WASM module has no network; run it as a process", s.ID, s.Uses())
			}
			e.judgers[s.ID], err = e.Plugins.Judger(ctx, s.Name, s.Config)
		case "converter":
			e.converters[s.ID], err = e.Plugins.Converter(ctx, s.Name, s.Config)
		}
		if err != nil {
			return fmt.Errorf("stage %s: open %s/%s: %w", s.ID, s.Kind, s.Name, err)
		}
		if e.hooks[s.ID], err = e.openHooks(ctx, s.Hooks); err != nil {
			return fmt.Errorf("stage %s: %w", s.ID, err)
		}
	}
	return nil
}

// openGateway starts the gateway and writes where it is to gateway.json, with
// the operator's token unless the operator has given it.
func (e *Engine) openGateway() error {
	where := map[string]string{}
	o := e.Gateway
	if o.OperatorToken = os.Getenv("PENSTOCK_OPERATOR_TOKEN"); o.OperatorToken == "" {
		o.OperatorToken = newOperatorToken()
		where["operator_token"] = o.OperatorToken
	}
	e.Redact = e.Redact.With(o.OperatorToken)
	o.Calls, o.Log = redact.Calls(e.Telemetry.Calls(e.Store), e.Redact), e.Log
	o.Metrics = e.Telemetry.Metrics()
	if info, err := os.Stat(e.Folder.Database()); err == nil {
		o.Stored = info.Size() // of an earlier part of the run
	}
	g, err := gateway.New(o)
	if err != nil {
		return fmt.Errorf("start gateway: %w", err)
	}
	e.front = g
	where["url"] = g.URL()
	return run.Replace(e.Folder.Path("gateway.json"), func(w *os.File) error { return json.NewEncoder(w).Encode(where) })
}

// Close ends the gateway, the models and the agents' bin folder. It may be
// called twice.
func (e *Engine) Close() error {
	var errs []error
	if e.front != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		errs = append(errs, e.front.Close(ctx), os.Remove(e.Folder.Path("gateway.json")))
		e.front = nil
	}
	if e.watch != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		e.watch.Close(ctx)
	}
	for _, c := range e.closers {
		errs = append(errs, c())
	}
	e.closers = nil
	if e.binDir != "" {
		errs = append(errs, os.RemoveAll(e.binDir))
		os.Remove(filepath.Dir(e.binDir)) // goes only when no workspace was kept
		e.binDir = ""
	}
	return errors.Join(errs...)
}

// Run runs every rollout that isn't ended yet and writes the converters'
// files. It returns the run's totals. When ctx ends, rollouts in progress are
// cancelled, in a way that resume goes on with them; files are still written.
func (e *Engine) Run(ctx context.Context) (*run.Totals, error) {
	started := time.Now()
	before := 0.0
	if e.File.Totals != nil {
		before = e.File.Totals.Seconds
	}
	e.Events.Emit(run.Event{Type: run.RunStarted, Count: len(e.Pipeline.Tasks) * e.Pipeline.Samples, Path: e.Folder.Dir})
	err := e.tellAgain(ctx)
	if err == nil {
		err = e.rollouts(ctx)
	}
	if err != nil {
		return nil, err
	}
	// What was finished is written even when the run was interrupted.
	out := context.WithoutCancel(ctx)
	made, err := e.convert(out)
	if err != nil {
		return nil, err
	}
	totals, err := e.totals(out)
	if err != nil {
		return nil, err
	}
	totals.Rows, totals.Denied, totals.Lost, totals.Seconds = made.written, made.denied, made.lost, before
	totals.Dropped = e.dropped()
	if e.File.Totals != nil {
		for name, n := range e.File.Totals.Dropped {
			totals.Dropped[name] += n
		}
	}
	if e.ran > 0 || e.File.Ended.IsZero() { // resuming a run that is done leaves its times
		totals.Seconds += time.Since(started).Seconds()
		e.File.Ended = time.Now().UTC()
	}
	e.File.Totals = totals
	e.File.Status = "completed"
	if ctx.Err() != nil {
		e.File.Status = "interrupted"
	}
	if err := e.Folder.WriteFile(e.File); err != nil {
		return nil, err
	}
	e.Events.Emit(run.Event{Type: run.RunEnded, Status: e.File.Status, Seconds: totals.Seconds})
	return totals, nil
}

// rollouts runs what isn't ended, in task and sample order, so many at a time.
func (e *Engine) rollouts(ctx context.Context) error {
	known, err := e.Store.Rollouts(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	earlier := map[string]*trace.Rollout{}
	for _, r := range known {
		earlier[r.ID] = r
	}
	limit := e.Pipeline.Concurrency.Rollouts
	if limit <= 0 {
		limit = 2 * runtime.GOMAXPROCS(0)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	slots := make(chan struct{}, limit)
	var wg sync.WaitGroup
	for _, t := range e.Pipeline.Tasks {
		group := newCohort(e.Pipeline)
		for sample := range e.Pipeline.Samples {
			r := newRollout(e, t, sample, earlier)
			if r == nil {
				if err := e.absent(ctx, group, earlier[rolloutID(t, sample)]); err != nil {
					stop(err)
				}
				continue
			}
			r.cohort, r.seat = group, &seat{slots: slots}
			if r.seat.take(ctx) != nil {
				continue
			}
			e.ran++
			wg.Go(func() {
				defer r.seat.leave()
				if err := r.run(ctx); err != nil {
					stop(fmt.Errorf("rollout %s: %w", r.state.ID, err))
				}
				r.gone()
			})
		}
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// totals sums up what the store holds.
func (e *Engine) totals(ctx context.Context) (*run.Totals, error) {
	t := &run.Totals{Rollouts: len(e.Pipeline.Tasks) * e.Pipeline.Samples, Status: map[string]int{}}
	mean, spent, known := 0.0, cost.Cost{}, 0
	for r, err := range e.Store.EachRollout(ctx) {
		if err != nil {
			return nil, err
		}
		known++
		status := r.Status
		if r.Abandoned {
			status = run.Abandoned
		}
		t.Status[status]++
		t.Usage = t.Usage.Add(r.Usage)
		spent = spent.Add(cost.Read(r.Cost, r.CostBasis))
		t.Calls += r.Calls
		if r.Reward != nil {
			t.Rewarded++
			n := float64(t.Rewarded)
			mean = mean*(1-1/n) + *r.Reward/n // a sum may be too large for a number
		}
	}
	t.Cost, t.CostBasis = spent.Amount(), string(spent.Basis)
	if n := t.Rollouts - known; n > 0 {
		t.Status[trace.Queued] += n
	}
	if t.Rewarded > 0 {
		t.RewardMean = &mean
	}
	return t, nil
}

// newOperatorToken makes a secret of 256 bits.
func newOperatorToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
