package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

const (
	// noActivity is the exit status of a program that did nothing.
	noActivity = "agent_no_activity"
	// grace is how long an agent has between TERM and KILL.
	grace = 5 * time.Second
	// budgetGrace is how long an agent has to end by itself once a call was
	// refused as over budget.
	budgetGrace = 10 * time.Second
	// drainTime is how long a session waits for calls in flight after its agent
	// ended.
	drainTime = 5 * time.Second
)

// invocation is one try of an invoker stage.
type invocation struct {
	*rollout
	stage   *pipeline.Stage
	invoker invoker.Invoker
	session *gateway.Session // nil without a model
	plan    *invoker.Plan
	home    string
	dir     string // artifacts
	used    used   // of the stage's budget, by the tries before this one

	mu    sync.Mutex
	lines json.RawMessage // state of Line
	stop  *invoker.Stop
	end   context.CancelFunc // ends the program

	active atomic.Int64 // when the program last wrote, in ns
	idle   atomic.Bool  // it was ended for doing nothing
}

// spawn runs one try of an invoker stage and returns its exit status.
func (r *rollout) spawn(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) (string, error) {
	v := &invocation{rollout: r, stage: s, invoker: r.invokers[s.ID]}
	result, status, err := v.run(ctx, res)
	var broken *storeError
	if errors.As(err, &broken) {
		return "", err
	}
	res.ExitStatus = status
	if err != nil {
		res.Status, res.Error = "failed", err.Error()
		return again(status, err), nil
	}
	switch status {
	case "ok", "agent_error", "timeout", "max_turns", "budget":
		res.Error = result.Error
		res.Output, err = withText(result.Text, map[string]any{
			"usage": result.Usage, "cost": result.Cost, "exit_status": status,
		})
		return status, err
	}
	res.Status, res.Error = "failed", status
	if result.Error != "" {
		res.Error = status + ": " + result.Error
	}
	return status, nil
}

// again is what retry.on is compared with after an error: nothing, where
// another try can only end as this one did.
func again(status string, err error) string {
	if agent.Permanent(err) {
		return ""
	}
	return status
}

// storeError is a failure of penstock itself, which ends the run.
type storeError struct{ error }

func (e *storeError) Unwrap() error { return e.error }

func (v *invocation) run(ctx context.Context, res *trace.StageResult) (*invoker.Result, string, error) {
	input, err := v.input(v.stage)
	if err != nil {
		return nil, invoker.InfraError, err
	}
	input = told(input, v.stage, v.repair)
	if v.home, v.dir, err = v.place(v.stage.ID, res); err != nil {
		return nil, invoker.InfraError, err
	}
	if v.used, err = v.begin(ctx, v.stage, res); err != nil {
		return nil, invoker.InfraError, err
	}
	began := time.Now()
	deadline := began.Add(v.used.limit(v.stage))
	if err := v.open(ctx, res, deadline); err != nil {
		return nil, invoker.InfraError, err
	}
	exit, err := v.start(ctx, input, deadline)
	if e := v.close(ctx); err == nil && e != nil {
		v.warn(v.stage.ID, e.Error())
	}
	if err != nil {
		v.spent(nil)
		return nil, invoker.InfraError, errors.Join(err, v.tried(ctx, v.stage, res.Round, time.Since(began), 0))
	}
	if err := v.artifacts(res); err != nil {
		v.warn(v.stage.ID, err.Error())
	}
	result, status, err := v.result(ctx, exit)
	if v.session == nil && result != nil && result.Usage != nil {
		v.state.Usage = v.state.Usage.Add(*result.Usage)
	}
	c := v.spent(result)
	if e := v.tried(ctx, v.stage, res.Round, time.Since(began), c.USD); e != nil {
		return nil, invoker.InfraError, &storeError{e}
	}
	return result, status, err
}

// spent adds what this try cost to the rollout, and makes it the result's. What
// the gateway counted comes before what the program says of itself, which is an
// estimate.
func (v *invocation) spent(result *invoker.Result) cost.Cost {
	var c cost.Cost
	if v.session != nil {
		c = v.session.Stats().Cost
	}
	if result != nil && result.Cost != nil && c.Amount() == nil {
		c = cost.Cost{USD: *result.Cost, Basis: cost.Estimated}
	} else if result != nil && result.Cost == nil && v.stage.Direct {
		c = cost.Cost{Basis: cost.Unknown}
	}
	if result != nil {
		result.Cost = c.Amount()
	}
	v.pay(c)
	return c
}

// pay adds a cost to the rollout's.
func (r *rollout) pay(c cost.Cost) {
	sum := cost.Read(r.state.Cost, r.state.CostBasis).Add(c)
	r.state.Cost, r.state.CostBasis = sum.Amount(), string(sum.Basis)
}

// session is what a try of a stage asks its model in.
func (r *rollout) session(s *pipeline.Stage, res *trace.StageResult, used used, deadline time.Time) gateway.SessionSpec {
	return gateway.SessionSpec{
		Session: trace.Session{
			ID: run.NewID("s"), Rollout: r.state.ID, Task: r.state.Task, Stage: s.ID, Round: res.Round, Try: res.Try,
			Attempt: res.Attempt, ModelEntry: s.Model, Opened: time.Now().UTC(),
		},
		Model: r.models[s.Model], Task: r.task.Data, Deadline: deadline, Budget: budgetOf(s), Used: used.Budget,
	}
}

// open opens the session of this try, if the stage names a model.
func (v *invocation) open(ctx context.Context, res *trace.StageResult, deadline time.Time) (err error) {
	res.Session = ""
	if v.stage.Model == "" {
		return nil
	}
	spec := v.rollout.session(v.stage, res, v.used, deadline)
	spec.Hold = true
	v.session, err = v.front.Open(ctx, spec)
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	res.Session = v.session.ID()
	return nil
}

// close revokes the session and adds what it used to the rollout.
func (v *invocation) close(ctx context.Context) error {
	if v.session == nil {
		return nil
	}
	ctx, cancel := v.draining(ctx, v.plan != nil && v.plan.Call != nil)
	defer cancel()
	err := v.session.Close(ctx)
	s := v.session.Stats()
	v.state.Usage = v.state.Usage.Add(s.Usage)
	v.state.Calls += s.Calls
	if err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}

// draining is the time that a session has for its calls in flight. A call of the
// host's own, or of a judge, has nobody left to read its reply once ctx has
// ended: it is broken off at once.
func (e *Engine) draining(ctx context.Context, own bool) (context.Context, context.CancelFunc) {
	if own && ctx.Err() != nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), e.drain)
}

// start plans the run, starts the program and waits until nothing of it is
// left. A plan may be one call of the model instead.
func (v *invocation) start(ctx context.Context, input json.RawMessage, deadline time.Time) (*agent.Exit, error) {
	request := &invoker.PlanRequest{Input: input, Task: v.task.Data, Session: invoker.Session{
		ID: run.NewID("s"), Workspace: v.ws.Path(), Home: v.home, Deadline: deadline, OutputSchema: v.stage.Output,
	}}
	if v.stage.Direct {
		request.Session.SpentUSD = v.used.USD
	}
	if v.session != nil {
		request.Session.ID, request.Session.Token = v.session.ID(), v.session.Token()
		request.Session.BaseURL, request.Session.Model = v.session.Root(), v.models[v.stage.Model].ServeAs
		request.Session.Context = v.models[v.stage.Model].Context
	}
	var err error
	if v.plan, err = v.invoker.Plan(ctx, request); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if err := v.ws.WriteFiles(v.home, v.plan.Files); err != nil {
		return nil, err
	}
	if v.session != nil && !v.plan.HoldFirstCall {
		v.session.Ready()
	}
	ctx, v.end = context.WithCancel(ctx)
	defer v.end()
	defer v.watch(ctx)()
	if v.plan.Call != nil {
		return v.makeCall(ctx, deadline)
	}
	dir, err := v.ws.Dir(v.home, v.plan.Dir)
	if err != nil {
		return nil, err
	}
	spec := agent.Spec{
		Argv: v.plan.Argv, Dir: v.ws.Path(), Stdin: []byte(v.plan.Stdin), Timeout: time.Until(deadline), Grace: grace,
		Env:    agent.BaseEnv(agent.EnvOptions{BinDir: v.binDir, Home: v.home, Extra: v.plan.Env}),
		Stdout: filepath.Join(v.dir, "stdout"), Stderr: filepath.Join(v.dir, "stderr"), Redact: v.redacted(),
		Active: func() { v.active.Store(time.Now().UnixNano()) },
	}
	if v.plan.Output == invoker.JSONL {
		spec.Line = func(line []byte) { v.line(ctx, line) }
	}
	if err := v.confine(&spec, v.stage, v.home); err != nil {
		return nil, err
	}
	if dir != spec.Dir {
		spec.Policy.Write = append(spec.Policy.Write, spec.Dir)
		spec.Dir = dir
	}
	exit, err := v.runner.Run(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("start agent: %w%s", err, toInstall(err, v.plan))
	}
	// At the deadline the gateway breaks calls off, too, and a program may end
	// on that before it is ended.
	if failed := exit.Code != 0 || exit.Signal != ""; failed && !exit.Lost && !exit.Cancelled && !time.Now().Before(deadline) {
		exit.TimedOut = true
	}
	return exit, nil
}

// toInstall says how a program that isn't there is got.
func toInstall(err error, p *invoker.Plan) string {
	var start *agent.StartError
	if p.Install == "" || !errors.As(err, &start) || start.Reason != agent.NotFound {
		return ""
	}
	how := "; install it with: " + p.Install
	if p.StandIn != "" {
		how += "; to try the pipeline out, " + p.StandIn + " stands in for it"
	}
	return how
}

// watch ends the program when it goes on after a call was over budget, or
// when it neither wrote nor called for longer than the stage allows.
func (v *invocation) watch(ctx context.Context) (stop func()) {
	var over <-chan struct{}
	if v.session != nil {
		over = v.session.BudgetHit()
	}
	v.active.Store(time.Now().UnixNano())
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var late, look <-chan time.Time
		if v.stage.Idle > 0 {
			tick := time.NewTicker(max(v.stage.Idle/10, time.Millisecond))
			defer tick.Stop()
			look = tick.C
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-over:
				over, late = nil, time.After(budgetGrace)
			case <-late:
				v.end()
				return
			case <-look:
				if time.Since(v.lastActive()) > v.stage.Idle {
					v.idle.Store(true)
					v.end()
					return
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// lastActive is when the program last wrote, or last called the model.
func (v *invocation) lastActive() time.Time {
	last := time.Unix(0, v.active.Load())
	if v.session != nil {
		if called := v.session.Stats().LastActivity; called.After(last) {
			return called
		}
	}
	return last
}

// line hands a line of output to the invoker.
func (v *invocation) line(ctx context.Context, line []byte) {
	liner, ok := v.invoker.(invoker.Liner)
	if !ok {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stop != nil {
		return
	}
	// What is read of a program that was told to end is no other than before.
	got, err := liner.Line(context.WithoutCancel(ctx), &invoker.LineRequest{State: v.lines, Line: string(line)})
	if err != nil {
		got.Stop = &invoker.Stop{ExitStatus: invoker.InfraError, Reason: fmt.Sprintf("read output: %v", err)}
	}
	v.lines = got.State
	if got.Stop != nil {
		v.stop = got.Stop
		if v.session != nil {
			v.session.Refuse(got.Stop.Reason)
		}
		v.end()
	} else if got.Ready && v.session != nil {
		v.session.Ready()
	}
}

// result says how the try ended. The host's own findings come first; the
// invoker may only turn an "ok" into something else.
func (v *invocation) result(ctx context.Context, exit *agent.Exit) (*invoker.Result, string, error) {
	status := invoker.OK
	var stats gateway.Stats
	if v.session != nil {
		stats = v.session.Stats()
	}
	switch {
	case exit.Lost:
		status = "sandbox_lost"
	case exit.TimedOut && v.used.limit(v.stage) < v.stage.Timeout:
		status = invoker.Budget
	case exit.TimedOut:
		status = "timeout"
	case v.stop != nil:
		status = v.stop.ExitStatus
	case v.idle.Load():
		status = noActivity
	case stats.BudgetHit:
		status = invoker.Budget
	case exit.Cancelled:
		status = "cancelled"
	case exit.Code != 0 || exit.Signal != "":
		status = invoker.AgentError
	}
	result, err := v.invoker.Result(context.WithoutCancel(ctx), &invoker.ResultRequest{
		Exit: exit.Code, Signal: exit.Signal, ExitStatus: status, State: v.lines,
		Stdout: exit.Stdout, Stderr: exit.Stderr,
	})
	if err != nil {
		return nil, invoker.InfraError, fmt.Errorf("read result: %w", err)
	}
	silent := status == invoker.OK && v.session != nil && stats.Calls == 0 && v.stage.Descriptor.Want("model")
	switch {
	case silent:
		status, result.Error = noActivity, "the program ended without one call of the model"
	case (status == invoker.OK || status == invoker.AgentError) && result.ExitStatus != "":
		status = result.ExitStatus
	}
	switch {
	case exit.Lost:
		result.Error = "the agent's supervisor died, so that the agent's end was not seen"
	case v.stop != nil && status == v.stop.ExitStatus:
		result.Error = v.stop.Reason
	case v.idle.Load():
		result.Error = fmt.Sprintf("the program neither wrote nor called the model for %s", v.stage.Idle)
	}
	if result.Error == "" {
		result.Error = v.bounded(status)
	}
	if exit.OutputErr != nil {
		v.warn(v.stage.ID, fmt.Sprintf("output could not be stored whole: %v", exit.OutputErr))
	}
	if exit.LongLines > 0 {
		v.warn(v.stage.ID, fmt.Sprintf("lines of output over 16 MiB are not read, but are in the artifact stdout: %d", exit.LongLines))
	}
	if v.session != nil {
		result.Usage = &stats.Usage
	}
	switch {
	case stats.Spoilt != "" && status != "cancelled":
		status, result.Error = invoker.InfraError, stats.Spoilt
	case stats.Fault != "" && status == invoker.AgentError:
		status, result.Error = invoker.InfraError, stats.Fault
	}
	if result.Usage == nil {
		result.Usage = &chat.Usage{}
	}
	return result, status, nil
}

// bounded says which of the stage's bounds ended the program.
func (v *invocation) bounded(status string) string {
	b := v.stage.Budget
	switch {
	case status == "timeout":
		return fmt.Sprintf("the program ran for longer than %s", v.stage.Timeout)
	case status == invoker.Budget && v.used.limit(v.stage) < v.stage.Timeout && v.used.wall > 0:
		return fmt.Sprintf("the program ran into the stage's budget of %s, of which earlier tries had used %s", b.Wall, v.used.wall.Round(time.Millisecond))
	case status == invoker.Budget && v.used.limit(v.stage) < v.stage.Timeout:
		return fmt.Sprintf("the program ran into the stage's budget of %s", b.Wall)
	case status == invoker.Budget:
		return "a call was refused, as the stage's budget is used up"
	}
	return ""
}

// artifacts keeps what the program changed in its workspace.
func (v *invocation) artifacts(*trace.StageResult) error {
	return run.Artifact(filepath.Join(v.dir, "workspace.diff"), func(f *os.File) error {
		w := v.Redact.Writer(f)
		if err := v.ws.Diff(w); err != nil {
			return err
		}
		return w.Close()
	})
}
