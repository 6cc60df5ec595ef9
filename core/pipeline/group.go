package pipeline

import (
	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// grouped checks `scope` of a judger stage. It returns the scope that the
// stage's settings are read in: those of a group are the same for all of its
// rollouts, so that they may not read what differs from one to the next.
func (c *check) grouped(n, uses *yaml.Node, s *Stage, d component.Descriptor, sc *scope) *scope {
	f := c.f
	g := f.get(n, "scope")
	if g == nil || g.Value != "group" {
		if s.Kind == component.Judger && len(d.Methods) > 0 && !contains(d.Methods, judger.MethodJudge) {
			f.errorf(f.at(uses), "scope", "add 'scope: group' to the stage", "%s judges the samples of a task together, and no single one", d.ID())
		}
		return sc
	}
	if s.Kind != component.Judger {
		return sc // refused with the keys of its kind
	}
	s.Group = true
	if !contains(d.Methods, judger.MethodJudgeGroup) {
		f.errorf(f.at(g), "scope", "use a judger that judges groups", "%s judges one rollout at a time", d.ID())
	}
	c.refuse(n, "hooks act on the stage of one rollout, and a group has several", "hooks")
	if sc.again {
		f.errorf(f.at(g), "scope", "move the stage behind the loop", "'scope: group' can't be in a loop, of which each sample makes as many passes as it needs")
	}
	if v := f.get(n, "on_error"); v != nil && v.Value == OnErrorPark {
		f.errorf(f.at(v), "scope", "use 'fail' or 'continue'", "'on_error: park' can't be had with 'scope: group': a person answers for one rollout, and the verdicts of a group come together")
	}
	if c.p.Samples == 1 {
		f.warnf(f.at(g), "scope", "set 'samples' under 'tasks', or --samples", "stage '%s' judges the samples of a task together, and each task has one sample", s.ID)
	}
	return sc.shared()
}

// shared is the scope without what differs from one sample of a task to the
// next.
func (s *scope) shared() *scope {
	out := *s
	out.vars, out.apart = map[string]*Type{}, map[string]bool{}
	for name, t := range s.vars {
		if name == "task" || name == "run" {
			out.vars[name] = t
		} else {
			out.apart[name] = true
		}
	}
	return &out
}
