package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/agent/workspace"
	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/model"
	sdkrollout "github.com/penstock-dev/penstock/sdk/rollout"
	sdkworkspace "github.com/penstock-dev/penstock/sdk/workspace"
)

// judgeError is what retry.on calls a judge that erred.
const judgeError = "judge_error"

// judge runs one try of a judger stage.
func (r *rollout) judge(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) (string, error) {
	r.pause()
	queued := time.Now()
	select {
	case r.judging <- struct{}{}:
		r.proceed()
		res.Started = res.Started.Add(time.Since(queued))
		defer func() { <-r.judging }()
	case <-ctx.Done():
		return "cancelled", nil
	}
	dir, err := r.verdictDir(s, res)
	if err != nil {
		return "", err
	}
	v, err := r.verdict(ctx, s, res)
	if ctx.Err() != nil && err != nil {
		return "cancelled", nil
	}
	return r.hear(dir, v, err, res), nil
}

// hear takes a verdict, or the error instead of one. It returns what retry.on
// is compared with.
func (e *Engine) hear(dir string, v judger.Verdict, err error, res *trace.StageResult) string {
	if err == nil {
		err = e.keepVerdict(filepath.Join(dir, "verdict.json"), v, res)
	}
	switch {
	case err != nil:
		res.Status, res.Error = trace.Failed, fmt.Sprintf("%s: %v", judgeError, err)
	case v.Status == judger.JudgeError || v.Status == judger.InfraError:
		res.Status, res.Error = trace.Failed, fmt.Sprintf("%s: %s", v.Status, v.Explanation)
	default:
		return ""
	}
	return judgeError
}

func (e *Engine) keepVerdict(path string, v judger.Verdict, res *trace.StageResult) (err error) {
	if err := v.Check(); err != nil {
		return err
	}
	if res.Output, err = chat.Marshal(v); err != nil {
		return fmt.Errorf("encode verdict: %w", err)
	}
	e.clean(res)
	return run.Artifact(path, func(w *os.File) error {
		_, err := w.Write(append(res.Output, '\n'))
		return err
	})
}

func (r *rollout) verdict(ctx context.Context, s *pipeline.Stage, res *trace.StageResult) (judger.Verdict, error) {
	input, err := r.input(s)
	if err != nil {
		return judger.Verdict{}, err
	}
	copied, err := os.MkdirTemp(r.Folder.Path("work"), "judge.*")
	if err != nil {
		return judger.Verdict{}, fmt.Errorf("copy workspace: %w", err)
	}
	defer workspace.RemoveAll(copied)
	data, err := r.data(ctx, res.Attempt, filepath.Join(copied, "workspace"))
	if err != nil {
		return judger.Verdict{}, err
	}
	used, err := r.begin(ctx, s, res)
	if err != nil {
		return judger.Verdict{}, err
	}
	limit := used.limit(s)
	asked, session, err := r.openJudge(ctx, s, res, used, time.Now().Add(limit))
	if err != nil {
		return judger.Verdict{}, err
	}
	request, err := chat.Marshal(struct {
		Input   json.RawMessage  `json:"input"`
		Task    json.RawMessage  `json:"task"`
		Rollout *sdkrollout.Data `json:"rollout"`
		Session *model.Session   `json:"session,omitempty"`
	}{input, r.task.Data, data, session})
	if err != nil {
		return judger.Verdict{}, fmt.Errorf("encode judge request: %w", err)
	}
	judging, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	judging = sdkworkspace.WithRunner(judging, &judged{rollout: r, stage: s, dir: copied})
	v, err := r.judgers[s.ID].Judge(judging, judger.NewRequest(doc.Bytes(request)))
	r.closeJudge(ctx, s, asked, &v)
	return v, late(judging, limit, err)
}

// late says of a judge's error that its time was over. It is asked of the
// clock: a plugin's reply may come before the context tells.
func late(ctx context.Context, limit time.Duration, err error) error {
	if end, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(end) {
		return fmt.Errorf("no verdict within %s: %w", limit, err)
	}
	return err
}

// openJudge opens the session in which a judger asks its model: nil without one.
func (r *rollout) openJudge(ctx context.Context, s *pipeline.Stage, res *trace.StageResult, used used, deadline time.Time) (*gateway.Session, *model.Session, error) {
	res.Session = ""
	if s.Model == "" {
		return nil, nil, nil
	}
	spec := r.session(s, res, used, deadline)
	spec.Session.Judge = true
	asked, err := r.front.Open(ctx, spec)
	if err != nil {
		return nil, nil, fmt.Errorf("open session: %w", err)
	}
	res.Session = asked.ID()
	return asked, &model.Session{ID: asked.ID(), BaseURL: asked.Root(), Token: asked.Token(), Model: spec.Model.ServeAs, Deadline: deadline}, nil
}

// closeJudge ends a judge's session. What it cost is the verdict's and the
// rollout's, verdict or not, and so are its tokens and calls the rollout's: they
// are what the cost is for. A budget counts the sessions of its own stage alone.
func (r *rollout) closeJudge(ctx context.Context, s *pipeline.Stage, asked *gateway.Session, v *judger.Verdict) {
	if asked == nil {
		return
	}
	ctx, cancel := r.draining(ctx, true)
	defer cancel()
	if err := asked.Close(ctx); err != nil {
		r.warn(s.ID, fmt.Sprintf("close session: %v", err))
	}
	stats := asked.Stats()
	r.state.Usage = r.state.Usage.Add(stats.Usage)
	r.state.Calls += stats.Calls
	c := stats.Cost
	if v.Cost == nil {
		v.Cost = c.Amount()
	}
	r.pay(c)
}

// verdictDir is the folder that a try's verdict is written to.
func (r *rollout) verdictDir(s *pipeline.Stage, res *trace.StageResult) (string, error) {
	if r.replay == "" {
		return r.Folder.Artifacts(r.state.ID, s.ID, res.Round, res.Try)
	}
	dir := r.Folder.Path("replays", r.replay, run.Escape(r.state.ID), run.Escape(s.ID), strconv.Itoa(res.Round))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of a verdict: %w", err)
	}
	return dir, nil
}

// data is what a judge sees of the rollout. The workspace is copied to dir.
func (r *rollout) data(ctx context.Context, attempt, dir string) (*sdkrollout.Data, error) {
	if r.made != nil {
		return r.made(dir)
	}
	d, err := r.facts(ctx, &r.state, r.results, attempt, r.last())
	if err != nil || !r.worked() {
		return d, err
	}
	if r.replay != "" && !r.kept() {
		return d, nil
	}
	ws, err := r.workspace()
	if err != nil {
		return nil, err
	}
	if name := r.then(ws); name != "" {
		err = ws.CopySnapshotTo(name, dir)
	} else {
		err = ws.CopyTo(dir)
	}
	if err != nil {
		return nil, err
	}
	d.Workspace, d.Before = dir, r.beforeAgents(ws)
	return d, nil
}

// beforeAgents is the workspace as the first agent found it, "" where none ran.
func (r *rollout) beforeAgents(ws *agent.Workspace) string {
	if len(r.order) == 0 {
		return ""
	}
	first := r.order[0]
	for round := 1; round <= r.results[first].Round; round++ {
		if name := snapshotOf(first, round); ws.HasSnapshot(name) {
			return ws.SnapshotPath(name)
		}
	}
	return ""
}

// worked says whether a program has been in the workspace: an agent, or that of
// a `run:` stage.
func (r *rollout) worked() (yes bool) {
	r.Pipeline.Each(func(s *pipeline.Stage) {
		res := r.results[s.ID]
		yes = yes || (s.Kind == component.Invoker || s.Kind == pipeline.KindRun) && res != nil && res.Status != "skipped"
	})
	return yes
}

// last is the result of the last invoker stage, nil before there is one.
func (r *rollout) last() *trace.StageResult {
	if len(r.order) == 0 {
		return nil
	}
	return r.results[r.order[len(r.order)-1]]
}

// facts are what is known of a rollout so far, without its workspace; last is
// the invoker stage whose conversation is shown, or nil.
func (e *Engine) facts(ctx context.Context, state *trace.Rollout, results map[string]*trace.StageResult, attempt string, last *trace.StageResult) (*sdkrollout.Data, error) {
	d := &sdkrollout.Data{
		ID: state.ID, Sample: state.Sample, Attempt: attempt, Status: state.Status, ExitStatus: state.ExitStatus,
		Usage: state.Usage, Cost: state.Cost, ToolCalls: []sdkrollout.CallData{}, Messages: []chat.Message{},
		Artifacts: map[string]string{}, Stages: map[string]sdkrollout.StageData{},
	}
	for id, res := range results {
		d.Stages[id] = sdkrollout.StageData{Status: res.Status, Output: res.Output}
	}
	if last == nil {
		return d, nil
	}
	if d.FinalText = last.Text; d.FinalText == "" {
		d.FinalText = doc.At(doc.Bytes(last.Output), "").String("text")
	}
	artifacts := e.Folder.Path("artifacts", run.Escape(state.ID), run.Escape(last.Stage), fmt.Sprintf("%d.%d", last.Round, last.Try))
	for _, name := range []string{"stdout", "stderr", "workspace.diff"} {
		d.Artifacts[name] = filepath.Join(artifacts, name)
	}
	if last.Session != "" {
		calls, err := e.Store.Calls(ctx, last.Session)
		if err != nil {
			return nil, err
		}
		d.Messages = conversation(calls)
		d.ToolCalls = toolCalls(d.Messages)
	}
	return d, nil
}

// conversation is the main lineage's: the messages of its last good call and
// the reply to it.
func conversation(calls []*trace.Call) []chat.Message {
	for i := len(calls) - 1; i >= 0; i-- {
		c := calls[i]
		if c.Kind != trace.Main || c.Status != trace.CallOK || c.Chat == nil {
			continue
		}
		out := append([]chat.Message(nil), c.Chat.Messages...)
		if c.Served != nil {
			out = append(out, chat.Message{Role: chat.Assistant, Parts: c.Served.Parts})
		}
		return out
	}
	return []chat.Message{}
}

// toolCalls pairs the calls of a conversation with their results.
func toolCalls(messages []chat.Message) []sdkrollout.CallData {
	out := []sdkrollout.CallData{}
	at := map[string]int{}
	for _, m := range messages {
		for _, p := range m.Parts {
			switch p.Type {
			case chat.ToolCall:
				at[p.ID] = len(out)
				out = append(out, sdkrollout.CallData{ID: p.ID, Name: p.Name, Arguments: p.Arguments})
			case chat.ToolResult:
				if i, ok := at[p.ID]; ok {
					out[i].Result, out[i].IsError = chat.PlainText(p.Content), p.IsError
				}
			}
		}
	}
	return out
}
