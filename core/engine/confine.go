package engine

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/sdk/component"
)

// box is what stages ask for alike.
type box struct{ name, image string }

func boxOf(s *pipeline.Stage) box { return box{s.Sandbox.Use, s.Sandbox.Image} }

// openSandboxes tries the sandboxes that stages ask for, each once, and notes
// which it came to. One that was asked for and does not hold is an error.
func (e *Engine) openSandboxes(ctx context.Context) (err error) {
	e.sandboxes = map[box]sandbox.Sandbox{}
	said := map[string]string{}
	e.each(func(s *pipeline.Stage) {
		use := boxOf(s)
		if err != nil || use.name == "" || use.name == sandbox.None {
			return
		}
		if e.sandboxes[use] == nil {
			if e.sandboxes[use], err = e.runner.Sandbox(ctx, use.name, use.image); err != nil {
				err = fmt.Errorf("stage %s: %w", s.ID, err)
				return
			}
			switch got := e.sandboxes[use]; {
			case got.Name() == sandbox.None:
				e.Log.Warn("agents run without a sandbox: none holds on this machine", "asked", use.name)
			case use.image != "" && !sandbox.Contains(got):
				e.Log.Warn("agents run in a sandbox of this machine's programs: no container holds here", "asked", use.name, "image", use.image, "sandbox", got.Name(), "bounds", got.Limits())
			default:
				e.Log.Info("agents run in a sandbox", "asked", use.name, "sandbox", got.Name(), "bounds", got.Limits())
			}
		}
		said[s.ID] = e.sandboxes[use].Limits()
		if sandbox.Contains(e.sandboxes[use]) {
			err = e.apart(s)
		}
	})
	if len(said) > 0 {
		e.File.Sandboxes = said
	}
	return err
}

// apart refuses a container that would show the run folder, in which nothing
// can be hidden from here.
func (e *Engine) apart(s *pipeline.Stage) error {
	dir, err := filepath.EvalSymlinks(e.Folder.Dir)
	if err != nil {
		return fmt.Errorf("find the run folder: %w", err)
	}
	for _, path := range slices.Concat(s.Sandbox.Read, s.Sandbox.Write) {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return fmt.Errorf("stage %s: sandbox: %w", s.ID, err)
		}
		if rel, err := filepath.Rel(real, dir); err == nil && filepath.IsLocal(rel) {
			return fmt.Errorf("stage %s: sandbox %s: the run folder %s is in %s, which it would show; name narrower folders, or keep the run elsewhere with --out", s.ID, s.Sandbox.Use, dir, path)
		}
	}
	return nil
}

// confine bounds what a program of a stage may touch. Of the run folder it
// gets nothing but its workspace, its home and the bin folder: the tasks and
// their answers, the operator's token and the other rollouts are in there. No
// kind of sandbox makes up for it: a folder that a stage may read, or that PATH
// names, can be one that the run folder is in.
func (r *rollout) confine(spec *agent.Spec, s *pipeline.Stage, home string) error {
	spec.Hide, spec.Keep, spec.View = []string{r.Folder.Dir}, []string{spec.Dir, home}, []string{r.binDir}
	sb := r.sandboxes[boxOf(s)]
	if sb == nil {
		return nil
	}
	spec.Sandbox = sb
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
