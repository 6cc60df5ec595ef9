package engine

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/sdk/component"
)

// openSandboxes tries the sandboxes that stages ask for, each once, and notes
// which it came to. One that was asked for and does not hold is an error.
func (e *Engine) openSandboxes(ctx context.Context) (err error) {
	e.sandboxes = map[string]sandbox.Sandbox{}
	said := map[string]string{}
	e.each(func(s *pipeline.Stage) {
		use := s.Sandbox.Use
		if err != nil || use == "" || use == sandbox.None {
			return
		}
		if e.sandboxes[use] == nil {
			if e.sandboxes[use], err = e.runner.Sandbox(ctx, use); err != nil {
				err = fmt.Errorf("stage %s: %w", s.ID, err)
				return
			}
			if got := e.sandboxes[use]; got.Name() == sandbox.None {
				e.Log.Warn("agents run without a sandbox: none holds on this machine", "asked", use)
			} else {
				e.Log.Info("agents run in a sandbox", "asked", use, "sandbox", got.Name(), "bounds", got.Limits())
			}
		}
		said[s.ID] = e.sandboxes[use].Limits()
	})
	if len(said) > 0 {
		e.File.Sandboxes = said
	}
	return err
}

// confine bounds what a program of a stage may touch. Of the run folder it
// gets nothing but its workspace, its home and the bin folder: the tasks and
// their answers, the operator's token and the other rollouts are in there. No
// kind of sandbox makes up for it: a folder that a stage may read, or that PATH
// names, can be one that the run folder is in.
func (r *rollout) confine(spec *agent.Spec, s *pipeline.Stage, home string) error {
	spec.Hide, spec.Keep, spec.View = []string{r.Folder.Dir}, []string{spec.Dir, home}, []string{r.binDir}
	box := r.sandboxes[s.Sandbox.Use]
	if box == nil {
		return nil
	}
	spec.Sandbox = box
	spec.Policy = sandbox.Policy{
		Read: append([]string{r.binDir}, s.Sandbox.Read...), Write: append([]string{home}, s.Sandbox.Write...), Network: s.Sandbox.Network,
	}
	if s.Model == "" || s.Kind == component.Judger { // of a judge, only the judger asks the model
		return nil
	}
	at, err := url.Parse(r.front.URL())
	if err != nil {
		return fmt.Errorf("read the gateway's address: %w", err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		return fmt.Errorf("read the gateway's address: %w", err)
	}
	spec.Policy.Ports = []int{port}
	return nil
}
