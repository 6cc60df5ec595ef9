package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/agent/enter"
	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/penstock-dev/penstock/core/agent/shim"
	"github.com/penstock-dev/penstock/core/temp"
)

// command is how the program is started in its sandbox.
func (p *run) command(r *Runner, env []string) (sandbox.Command, error) {
	s := p.spec
	switch {
	case s.Sandbox == nil:
		return sandbox.Command{Path: p.path, Argv: s.Argv}, nil
	case !sandbox.Contains(s.Sandbox):
		return s.Sandbox.Command(p.policy(r), s.Dir, p.path, s.Argv)
	}
	policy := p.policy(r)
	socket, err := p.openDoor(env, policy)
	if err != nil {
		return sandbox.Command{}, err
	}
	policy.Read = append(policy.Read, p.way.Path)
	argv := append(slices.Clone(r.shim), shim.ArgEnter, socket)
	return s.Sandbox.Command(policy, s.Dir, r.shim[0], argv)
}

// openDoor makes the way out of a container, where its process 1 finds out what
// to start.
func (p *run) openDoor(env []string, policy sandbox.Policy) (socket string, err error) {
	if p.way, err = temp.Make(os.TempDir(), temp.Agent); err != nil {
		return "", err
	}
	s := p.spec
	job := enter.Job{Argv: s.Argv, Env: slices.Clone(env), Dir: s.Dir, Grace: p.grace()}
	for i, kv := range job.Env {
		if search, ok := strings.CutPrefix(kv, "PATH="); ok {
			job.Env[i] = "PATH=" + strings.Join(slices.DeleteFunc(filepath.SplitList(search), func(dir string) bool {
				return !slices.Contains(policy.Read, dir)
			}), ":")
		}
	}
	if !policy.Network { // else it is there by itself
		job.Ports = policy.Ports
	}
	socket = filepath.Join(p.way.Path, "out")
	p.door, err = enter.Open(socket, job)
	return socket, err
}

// policy is the spec's, with what every program needs. A container has its own
// programs, and gets of this machine only what the spec names.
func (p *run) policy(r *Runner) sandbox.Policy {
	s := p.spec
	policy := s.Policy
	policy.Read = slices.Clone(policy.Read)
	if !sandbox.Contains(s.Sandbox) {
		policy.Read = append(policy.Read, sandbox.ProgramPaths(p.path, lookup(s.Env, "PATH"))...)
	}
	if self, err := filepath.EvalSymlinks(r.shim[0]); err == nil { // what BinDir links to
		policy.Read = append(policy.Read, self)
	}
	policy.Write = slices.Concat(policy.Write, []string{s.Dir})
	if p.temp != nil {
		policy.Write = append(policy.Write, p.temp.Path)
	}
	return policy
}

// notStarted is why the program of a container never ran, nil when it did or
// was ended before.
func (p *run) notStarted(r *Runner) error {
	if p.door == nil || p.exit.TimedOut || p.exit.Cancelled || p.failed != nil {
		return nil
	}
	start := &StartError{Argv0: p.spec.Argv[0], Path: p.spec.Sandbox.Name(), Reason: Failed}
	entered, err := p.door.Started()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		start.Reason, start.Detail, start.Err = NotInImage, p.spec.Sandbox.Name(), err
	case err != nil:
		start.Err = err
	case entered:
		return nil
	default:
		start.Err = p.engineSaid(r)
	}
	return start
}

// engineSaid is why a container did not start, of which the engine's own words
// are all that there is. Most images have no use for a binary that is linked
// with another system's libraries.
func (p *run) engineSaid(r *Runner) error {
	why := "the container did not start"
	if said := strings.TrimSpace(p.stderr.tail.take()); said != "" {
		why += ": " + said
	}
	if loader := interpreterOf(r.shim[0]); loader != "" {
		why += fmt.Sprintf("; %s needs %s of the image: build it with CGO_ENABLED=0, and it needs nothing", r.shim[0], loader)
	}
	return errors.New(why)
}
