package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
)

// modelKey checks `model` against what the component wants; d is nil when that
// isn't known.
func (c *check) modelKey(n *yaml.Node, s *Stage, uses *yaml.Node, d *component.Descriptor) {
	f := c.f
	key, given := lookup(n, "model")
	v := f.get(n, "model")
	if v != nil {
		s.Model = f.resolve(v, v.Value)
		if c.p.Models[s.Model] == nil {
			hint := suggest("models: ", s.Model, c.p.ModelOrder)
			if len(c.p.ModelOrder) == 0 {
				hint = "the file has no 'models:'"
			}
			f.errorf(f.at(v), "unknown-model", hint, "there is no model '%s'", s.Model)
		}
		c.called[s.Model] = true
	}
	if d == nil {
		return
	}
	wants := d.Want("model")
	mode, at := c.mode(n, d)
	s.Direct, s.family = mode.Direct, mode.Family
	switch {
	case mode.Direct:
		unasked := ""
		if v != nil {
			unasked = ", and '" + s.Model + "' is not asked"
			s.Model = ""
		}
		f.warnf(f.at(at), "direct", "use another "+d.ModeKey+" and a 'model' where the calls are wanted",
			"the calls of stage '%s' go past the gateway: they are not recorded and give no rows%s", s.ID, unasked)
		c.refuseUnseen(n, s)
	case wants && given == nil:
		hint := "add 'model: " + strings.Join(c.p.ModelOrder, "' or '") + "'"
		if len(c.p.ModelOrder) == 0 {
			hint = "describe one under 'models:' and name it here"
		}
		f.errorf(f.at(uses), "model", hint, "%s calls a model, so the stage needs 'model'", d.ID())
	case given != nil && d.Want("no_model"):
		f.errorf(f.at(key), "model", "remove 'model'", "%s calls no model through the gateway", d.ID())
	case given != nil && s.Kind != component.Invoker && !wants:
		f.errorf(f.at(key), "model", "remove 'model'", "%s calls no model", d.ID())
	}
	c.modeSettings(n, d, mode)
	if m := c.p.Models[s.Model]; m != nil && mode.Upstream != "" && m.Upstream.Kind != mode.Upstream {
		f.errorf(f.at(at), "mode", fmt.Sprintf("give models.%s an 'upstream: { kind: %s, ... }', or name a model that has one", m.Name, mode.Upstream),
			"'%s: %s' is not wired: the upstream of model '%s' is of kind %s", d.ModeKey, at.Value, m.Name, m.Upstream.Kind)
	}
}

// mode is how the component reaches a model, by its setting, whose value is at.
func (c *check) mode(n *yaml.Node, d *component.Descriptor) (m component.Mode, at *yaml.Node) {
	if d.ModeKey == "" {
		return m, nil
	}
	_, with := lookup(n, "with")
	if with == nil || with.Kind != yaml.MappingNode {
		return m, nil
	}
	if _, at = lookup(with, d.ModeKey); at == nil {
		return m, nil
	}
	return d.Modes[c.f.resolve(at, at.Value)], at
}

// modeSettings holds the settings of a stage to its mode.
func (c *check) modeSettings(n *yaml.Node, d *component.Descriptor, mode component.Mode) {
	f := c.f
	with := f.get(n, "with")
	for _, name := range mode.Estimates {
		if k, _ := lookup(with, name); k != nil {
			f.warnf(f.at(k), "estimate", "bound what is really used: its turns in 'with', its time by 'timeout' or 'budget: { wall: ... }'",
				"'%s' is held against what the program reckons its calls would cost: an estimate, of which nothing is billed", name)
		}
	}
	output := f.get(n, "output")
	if output == nil || f.get(output, "schema") == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(mode.WithSchema)) {
		least := mode.WithSchema[name]
		v := f.get(with, name)
		if v == nil {
			continue
		}
		if given, err := strconv.Atoi(v.Value); err == nil && given > 0 && given < least {
			f.errorf(f.at(v), "setting", "leave it out, or give at least "+strconv.Itoa(least),
				"'%s' of %s: output that fits a schema takes at least %d, this is %d", name, d.ID(), least, given)
		}
	}
}

// ofOtherMode says whether a setting is read in another mode alone than the one
// that the file names.
func (c *check) ofOtherMode(n *yaml.Node, d *component.Descriptor, key string) bool {
	mode, at := c.mode(n, d)
	if at == nil || contains(mode.Settings, key) {
		return false
	}
	for _, m := range d.Modes {
		if contains(m.Settings, key) {
			return true
		}
	}
	return false
}

// refuseUnseen refuses bounds on what is not seen of a component that reaches a
// model by itself.
func (c *check) refuseUnseen(n *yaml.Node, s *Stage) {
	budget := c.f.get(n, "budget")
	if budget == nil {
		return
	}
	for _, name := range []string{"calls", "turns", "tokens", "usd"} {
		if k, _ := lookup(budget, name); k != nil {
			c.f.errorf(c.f.at(k), "budget", "bound 'wall', or what "+s.Name+" has for it in 'with'", "the calls of stage '%s' go past the gateway, so that its %s can't be bounded there", s.ID, name)
		}
	}
}
