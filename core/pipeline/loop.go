package pipeline

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
)

// runOutput is the output of a stage that runs a program.
var runOutput = json.RawMessage(`{"type":"object","properties":{"exit_code":{"type":"integer"},"text":{"type":"string"}},` +
	`"required":["exit_code","text"],"additionalProperties":false}`)

// run checks a stage that runs a program without a model.
func (c *check) run(n *yaml.Node, s *Stage, sc *scope) bool {
	f := c.f
	s.Kind = KindRun
	s.Repair = 0
	v := f.get(n, "run")
	c.refuse(n, "a program that 'run' starts has no plugin and calls no model", "model", "with", "budget", "scope")
	if len(v.Content) == 0 {
		f.errorf(f.at(v), "run", "run: [make, test]", "the command line is empty")
		return false
	}
	c.retry(n, s)
	c.stageHooks(n, s)
	c.sandbox(n, s)
	if s.Timeout == 0 {
		s.Timeout = judgerTimeout
	}
	b := &builder{c: c, sc: sc, stage: s.ID, key: "run", d: component.Descriptor{Kind: "the", Name: "command line"}, ok: true}
	c.program(v, false)
	root, _ := b.list(v, listOf(stringType), nil)
	s.Run = &Template{root: root, where: where(f.at(v))}
	s.takes, s.gives = c.compiled(runInput), c.givenBy(s)
	return true
}

// refuse reports keys that mean nothing for a stage.
func (c *check) refuse(n *yaml.Node, why string, keys ...string) {
	for _, name := range keys {
		if k, v := lookup(n, name); k != nil && !c.f.bad[v] {
			c.f.errorf(c.f.at(k), "unknown-key", "remove it", "'%s' means nothing here: %s", name, why)
		}
	}
}

// loop checks a loop. Within a pass a stage sees those before it as they are;
// those after it, from the pass before, may be missing. So may all of them
// for what follows the loop.
func (c *check) loop(n *yaml.Node, s *Stage, sc *scope) bool {
	f := c.f
	s.Kind = KindLoop
	v := f.get(n, "loop")
	list := f.get(v, "stages")
	c.refuse(n, "a loop uses no plugin itself", "model", "with", "budget", "scope", "retry", "output", "idle", "sandbox")
	c.refuse(n, "a loop does nothing itself; hooks go to the stages in it", "hooks")
	if list == nil {
		return false
	}
	if len(list.Content) == 0 {
		f.errorf(f.at(list), "loop", "", "the loop has no stages")
		return false
	}
	inner := &scope{vars: map[string]*Type{}, later: sc.later, broken: sc.broken, again: true}
	for name, t := range sc.vars {
		inner.vars[name] = t
	}
	for _, b := range list.Content {
		if id := c.ids[b]; id != "" {
			delete(inner.later, id)
			inner.vars[id] = c.foreseen(b, id)
		}
	}
	s.Loop = &Loop{Stages: c.body(list, inner), Max: f.integer(v, "max"), Else: OnErrorFail}
	inner.self = s.ID
	if e := f.get(v, "until"); e != nil {
		s.Loop.Until = c.expression(e, inner, reader{s.ID, "until"}, boolType)
	}
	c.elseOf(v, s, sc)
	if !f.boolean(v, "allow_same_family") {
		c.families(list, s)
	}
	for i, b := range s.Loop.Stages {
		if b.Kind == component.Converter {
			f.errorf(f.at(f.get(list.Content[i], "uses")), "loop", "move it behind the loop", "a converter is written once, at the end of the run, and can't be in a loop")
		}
		if b.ID != "" {
			sc.vars[b.ID] = c.stageType(b, "stage '"+b.ID+"' is inside the loop '"+s.ID+"'")
		}
	}
	return true
}

// foreseen is what is seen of a stage before its first pass is over.
func (c *check) foreseen(n *yaml.Node, id string) *Type {
	s := &Stage{ID: id, Kind: KindRun}
	if uses := c.f.get(n, "uses"); uses != nil {
		kind, name, _ := strings.Cut(uses.Value, "/")
		d, err := c.cat.Describe(kind, name)
		if err != nil {
			return anyType // reported when it is that stage's turn
		}
		s.Kind, s.Descriptor = kind, d
	}
	if o := c.f.get(n, "output"); o != nil {
		if schema := c.f.get(o, "schema"); schema != nil {
			if raw, err := c.f.toJSON(schema, nil); err == nil {
				s.Output = raw
			}
		}
	}
	return c.stageType(s, "stage '"+id+"' has not run in the first pass")
}

// families refuses a reviewer, which is a stage that gives findings, whose
// model is of the family whose work it looks at: models pass over the mistakes
// that they would make themselves.
func (c *check) families(list *yaml.Node, loop *Stage) {
	f := c.f
	for i, r := range loop.Loop.Stages {
		model, family := c.asks(r)
		if model == "" || r.Writes() == nil || c.typeOf(r.Writes()).field("findings") == nil {
			continue
		}
		at := f.at(list.Content[i])
		if v := f.get(list.Content[i], "model"); v != nil {
			at = f.at(v)
		}
		for _, s := range loop.Loop.Stages {
			by, its := c.asks(s)
			switch {
			case by == "" || s == r:
			case by == model:
				f.errorf(at, "family", "use a model of another family, or set 'allow_same_family: true' in the loop",
					"'%s' reviews the work of '%s' with the same model, %s", r.ID, s.ID, model)
			case family == "" || its == "":
				f.warnf(at, "family", "give both models a 'family'", "whether '%s' reviews the work of its own family can't be told: model '%s' or '%s' has no family", r.ID, model, by)
			case family == its:
				f.errorf(at, "family", "use a model of another family, or set 'allow_same_family: true' in the loop",
					"'%s' reviews the work of '%s' with a model of the same family, %s", r.ID, s.ID, family)
			}
		}
	}
}

// asks is the model that a stage asks, "" for none, and its family.
func (c *check) asks(s *Stage) (model, family string) {
	if s.Direct {
		return s.Uses(), s.family
	}
	if m := c.p.Models[s.Model]; m != nil {
		return m.Name, m.Family
	}
	return "", ""
}

// ownFamily warns of a judger whose model is of the family whose work it judges.
// Within a loop families says more.
func (c *check) ownFamily(n *yaml.Node, s *Stage, sc *scope) {
	model, family := c.asks(s)
	if s.Kind != component.Judger || model == "" || sc.again {
		return
	}
	at := c.f.at(c.f.get(n, "model"))
	for _, p := range c.flat[:len(c.flat)-1] { // the last is the judger itself
		by, its := c.asks(p.stage)
		if p.stage.Kind != component.Invoker || by == "" {
			continue
		}
		if by == model || its != "" && its == family {
			c.f.warnf(at, "family", "models pass over the mistakes that they would make themselves",
				"'%s' judges what '%s' did with a model of the same family", s.ID, p.stage.ID)
			return
		}
	}
}

func (c *check) elseOf(loop *yaml.Node, s *Stage, sc *scope) {
	f := c.f
	v := f.get(loop, "else")
	if v == nil {
		return
	}
	s.Loop.Else = v.Value
	switch v.Value {
	case OnErrorFail, OnErrorContinue:
		return
	case OnErrorPark:
		if !f.enabled["on_error: park"] {
			(&decoder{f: f}).notBuilt(v, "else: park")
		}
		return
	}
	var later []string
	seen := false
	for _, n := range f.get(f.root, "stages").Content {
		id := c.ids[n]
		if seen && id != "" {
			later = append(later, id)
		}
		seen = seen || id == s.ID
	}
	for i, id := range later {
		if id == v.Value {
			for _, between := range later[:i] {
				if c.passed == nil {
					c.passed = map[string]string{}
				}
				c.passed[between] = "stage '" + between + "' is passed over when the loop '" + s.ID + "' goes on with '" + id + "'"
			}
		}
	}
	if !contains(later, v.Value) && !sc.reported(v.Value) {
		f.errorf(f.at(v), "loop", suggest("it takes: ", v.Value, append([]string{OnErrorFail, OnErrorContinue, OnErrorPark}, later...)),
			"'else' is '%s', want fail, continue, park or a later stage", v.Value)
	}
}
