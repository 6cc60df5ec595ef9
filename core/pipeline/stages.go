package pipeline

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/component"
)

var stageID = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// The time that a stage has when the file doesn't say.
const (
	invokerTimeout = 30 * time.Minute
	judgerTimeout  = 2 * time.Minute
)

// defaultRepair is how often an agent is told what is wrong with its output.
const defaultRepair = 2

// placed is a stage with its node, and its place among all stages of the file.
type placed struct {
	stage *Stage
	node  *yaml.Node
}

// stages checks every stage in the order in which they run, and the reward.
func (c *check) stages() {
	f := c.f
	list := f.get(f.root, "stages")
	if list == nil || len(list.Content) == 0 {
		if _, given := lookup(f.root, "stages"); (given == nil || list != nil) && !f.opts.NoStages && !f.meant[f.root]["stages"] {
			at := f.root
			if list != nil {
				at = list
			}
			f.errorf(f.at(at), "missing-key", "stages: [{id: solve, uses: invoker/NAME, ...}]", "the pipeline has no stages")
		}
		return
	}
	c.ids = map[*yaml.Node]string{}
	sc := newScope(c.taskType())
	sc.broken = map[string]bool{}
	c.stageIDs(list, map[string]*yaml.Node{}, sc)
	c.p.Stages = c.body(list, sc)
	sc.self = ""
	c.needs(sc)
	c.reward(sc)
	c.converters()
	c.unread()
	c.loops()
}

// body checks a list of stages. Each sees those before it.
func (c *check) body(list *yaml.Node, sc *scope) []*Stage {
	var out []*Stage
	for _, n := range list.Content {
		id := c.ids[n]
		delete(sc.later, id)
		if !sc.again {
			delete(sc.vars, id)
		}
		sc.self = id
		place := len(c.flat)
		c.flat = append(c.flat, placed{nil, n})
		s, ok := c.stage(n, id, sc)
		c.flat[place].stage = s
		if id != "" {
			sc.vars[id] = anyType
			if ok {
				sc.vars[id] = c.stageType(s, c.passed[id])
			}
		}
		out = append(out, s)
	}
	return out
}

// stageIDs checks the ids, those within loops included, and notes those that
// can be used.
func (c *check) stageIDs(list *yaml.Node, first map[string]*yaml.Node, sc *scope) {
	f := c.f
	for _, n := range list.Content {
		if v := f.get(n, "id"); v != nil {
			if id := v.Value; c.goodID(v, id, first[id]) {
				first[id] = v
				c.ids[n] = id
				sc.later[id] = true
			} else {
				sc.broken[id], sc.broken[sanitized(id)] = true, true
			}
		} else {
			sc.broken[nameless] = true
		}
		_, loop := lookup(n, "loop")
		_, inner := lookup(loop, "stages")
		switch {
		case inner == nil:
		case f.bad[loop] || f.bad[inner]:
			findStage(inner, "", func(id string) { sc.broken[id] = true })
		default:
			c.stageIDs(inner, first, sc)
		}
	}
}

func (c *check) goodID(v *yaml.Node, id string, first *yaml.Node) bool {
	f := c.f
	why := reserved(id)
	switch {
	case !stageID.MatchString(id):
		f.errorf(f.at(v), "stage-id", "write it as "+sanitized(id), "a stage id is made of a-z, 0-9 and _, and begins with a letter; this is '%s'", id)
	case why != "":
		f.errorf(f.at(v), "stage-id", "write another, such as "+id+"_1", "'%s' can't be a stage id: it is %s", id, why)
	case first != nil:
		f.errorf(f.at(v), "stage-id", "give one of them another id", "the stage id '%s' is given twice, first at %s", id, f.place(first))
	default:
		return true
	}
	return false
}

var notInID = regexp.MustCompile(`[^a-z0-9_]+`)

func sanitized(id string) string {
	s := strings.Trim(notInID.ReplaceAllString(strings.ToLower(id), "_"), "_")
	if !stageID.MatchString(s) {
		return "solve"
	}
	return s
}

// stage checks one stage. It is false when too much is wrong for others to
// read what it writes.
func (c *check) stage(n *yaml.Node, id string, sc *scope) (*Stage, bool) {
	f := c.f
	s := &Stage{ID: id, OnError: OnErrorFail, Retry: Retry{Attempts: 1}}
	if f.bad[n] {
		return s, false
	}
	c.common(n, s, sc)
	defer func() { c.contained = false }()
	switch does := c.does(n); does {
	case "":
		return s, false
	case "loop":
		return s, c.loop(n, s, sc)
	case "run":
		return s, c.run(n, s, sc)
	}
	uses := f.get(n, "uses")
	kind, name, slash := strings.Cut(uses.Value, "/")
	if !contains(stageKinds, kind) || !slash {
		c.wrongKind(uses, kind, name, slash, "a stage uses invoker/NAME, judger/NAME or converter/NAME", stageKinds)
		return s, false
	}
	s.Kind, s.Name = kind, name
	c.keysOfKind(n, s)
	c.stageHooks(n, s)
	d, ok := c.describe(uses, kind, name)
	s.Descriptor = d
	if ok || kind != component.Judger {
		c.sandbox(n, s)
	}
	if !ok {
		c.modelKey(n, s, uses, nil)
		return s, false
	}
	c.modelKey(n, s, uses, &d)
	if kind == component.Judger && !d.Want("model") {
		c.refuse(n, d.ID()+" calls no model", "budget")
	}
	c.ownFamily(n, s, sc)
	c.money(n, s)
	c.retry(n, s)
	set := c.settings(uses, n, d, c.grouped(n, uses, s, d, sc), id)
	s.Config, s.Input, s.takes = set.config, set.input, set.takes
	s.gives = c.givenBy(s)
	if kind != component.Invoker {
		s.Repair = 0
	}
	return s, true
}

// common reads the keys that every stage may have.
func (c *check) common(n *yaml.Node, s *Stage, sc *scope) {
	f := c.f
	if e := f.get(n, "if"); e != nil {
		s.If = c.expression(e, sc, reader{s.ID, "if"}, boolType)
		if s.If == nil {
			s.If = &Expr{source: "false"} // so that its output still is one that may be missing
		}
	}
	if e := f.text(n, "on_error"); e != "" {
		s.OnError = e
	}
	s.Timeout, s.Idle = f.duration(n, "timeout"), f.duration(n, "idle")
	s.Needs = f.texts(n, "needs")
	if b := f.get(n, "budget"); b != nil {
		s.Budget = Budget{Calls: f.integer(b, "calls"), Turns: f.integer(b, "turns"), Tokens: f.integer(b, "tokens"), Wall: f.duration(b, "wall")}
		if usd := f.numberPtr(b, "usd"); usd != nil {
			s.Budget.USD = *usd
		}
	}
	if o := f.get(n, "output"); o != nil {
		s.Output, s.output = c.outputSchema(o)
		s.Compat = c.compat(o, s.Output)
		s.Repair = defaultRepair
		if v := f.get(o, "repair"); v != nil {
			s.Repair = f.integer(o, "repair")
		}
	} else if k, _ := lookup(n, "output"); k != nil {
		s.Output = json.RawMessage("{}") // it was refused; what is in it isn't known
	}
}

// does is what the stage does, uses, run or loop, when it is one thing and
// can be read.
func (c *check) does(n *yaml.Node) string {
	f := c.f
	var given []*yaml.Node
	for _, name := range []string{"uses", "run", "loop"} {
		if k, _ := lookup(n, name); k != nil {
			given = append(given, k)
		}
	}
	switch {
	case len(given) == 0:
		f.errorf(f.at(n), "uses", "uses: invoker/NAME, judger/NAME or converter/NAME", "the stage does nothing: it needs 'uses'")
	case len(given) > 1:
		f.errorf(f.at(given[1]), "uses", "make two stages of it", "a stage has one of uses, run and loop, this one has %s and %s", given[0].Value, given[1].Value)
	}
	if len(given) != 1 || f.get(n, given[0].Value) == nil {
		return ""
	}
	return given[0].Value
}

// keysOfKind refuses keys that mean nothing for a kind, and fills in times.
func (c *check) keysOfKind(n *yaml.Node, s *Stage) {
	switch s.Kind {
	case component.Invoker:
		if s.Timeout == 0 {
			s.Timeout = invokerTimeout
		}
	case component.Judger:
		c.refuse(n, "only a stage with an invoker has an agent", "idle")
		if s.Timeout == 0 {
			s.Timeout = judgerTimeout
		}
	case component.Converter:
		c.refuse(n, "a converter is written once, at the end of the run", "idle", "budget", "retry", "output")
	}
	if g := c.f.get(n, "scope"); s.Kind != component.Judger && g != nil && g.Value == "group" {
		c.refuse(n, "only a judger sees a group", "scope")
	}
}

// money holds a budget in US dollars against the prices of every model that the
// stage can reach.
func (c *check) money(n *yaml.Node, s *Stage) {
	f := c.f
	v := f.get(f.get(n, "budget"), "usd")
	if v == nil || s.Kind != component.Invoker && s.Model == "" {
		return
	}
	const otherwise = ", or bound calls, turns, tokens or wall instead"
	refuse := func(hint, text string, args ...any) {
		f.errorf(f.at(v), "prices", hint, "stage '%s' has a budget in USD, but %s", s.ID, fmt.Sprintf(text, args...))
	}
	m := c.p.Models[s.Model]
	switch {
	case s.Budget.USD == 0:
		f.errorf(f.at(v), "wrong-kind", "leave it out for no bound", "'usd' is 0, want more")
	case s.Direct: // which was said
	case s.Model == "":
		refuse("give it a 'model', or bound wall instead", "names no model, whose calls could be counted")
	case m == nil: // which was said
	case m.Prices == nil:
		refuse(fmt.Sprintf("add 'prices: { input: 3, output: 15 }' under models.%s, in USD for a million tokens", m.Name)+otherwise,
			"its model '%s' has no prices, so that nothing could be counted", m.Name)
	default:
		list, _ := m.Upstream.With["fallback"].([]any)
		for i, item := range list {
			stand, _ := item.(map[string]any)
			if stand["model"] != nil && stand["model"] != m.Model && stand["prices"] == nil {
				refuse(fmt.Sprintf("add 'prices: { input: 3, output: 15 }' to models.%s.upstream.fallback[%d]", m.Name, i)+otherwise,
					"model '%s' may be stood in for by '%v', which has no prices", m.Name, stand["model"])
			}
		}
	}
}

func (c *check) retry(n *yaml.Node, s *Stage) {
	r := c.f.get(n, "retry")
	if r == nil {
		return
	}
	s.Retry.Attempts = max(1, c.f.integer(r, "attempts"))
	s.Retry.On = c.f.texts(r, "on")
	if len(s.Retry.On) > 0 || c.f.get(r, "on") != nil {
		return
	}
	s.Retry.On = []string{"agent_no_activity", "sandbox_lost", "infra_error"}
	if s.Kind == component.Judger {
		s.Retry.On = []string{"judge_error"}
	}
}

// needs checks that `needs` names earlier stages only.
func (c *check) needs(sc *scope) {
	f := c.f
	place := map[string]int{}
	ids := make([]string, len(c.flat))
	wants := make([][]string, len(c.flat))
	for i, p := range c.flat {
		ids[i], wants[i] = p.stage.ID, p.stage.Needs
		if ids[i] != "" {
			place[ids[i]] = i
		}
	}
	for i, p := range c.flat {
		v := f.get(p.node, "needs")
		if v == nil {
			continue
		}
		for _, item := range v.Content {
			j, known := place[item.Value]
			switch {
			case f.bad[item], !known && sc.reported(item.Value):
			case !known:
				f.errorf(f.at(item), "needs", suggest("earlier stages: ", item.Value, named(ids[:i])), "there is no stage '%s'", item.Value)
			case j == i:
				f.errorf(f.at(item), "needs", "", "stage '%s' needs itself: a cycle", item.Value)
			case j > i:
				if way := leads(item.Value, ids[i], wants, place); way != nil {
					f.errorf(f.at(item), "needs", "", "'needs' names earlier stages only, and this is a cycle: %s -> %s", ids[i], strings.Join(way, " -> "))
					continue
				}
				f.errorf(f.at(item), "needs", fmt.Sprintf("move stage '%s' above this one", item.Value), "'needs' names earlier stages only, '%s' comes later", item.Value)
			}
		}
	}
}

func named(ids []string) []string {
	var out []string
	for _, id := range ids {
		if id != "" {
			out = append(out, id)
		}
	}
	return out
}

// leads is the way from one stage to another over `needs`, nil if there is
// none.
func leads(from, to string, wants [][]string, place map[string]int) []string {
	seen := map[string]bool{}
	var walk func(id string) []string
	walk = func(id string) []string {
		if id == to {
			return []string{id}
		}
		i, known := place[id]
		if seen[id] || !known {
			return nil
		}
		seen[id] = true
		for _, next := range wants[i] {
			if way := walk(next); way != nil {
				return append([]string{id}, way...)
			}
		}
		return nil
	}
	return walk(from)
}

// reward compiles the reward, or makes it that of the only judger.
func (c *check) reward(sc *scope) {
	f := c.f
	var judges []*Stage
	var at []*yaml.Node
	for _, p := range c.flat {
		if p.stage.Kind == component.Judger {
			judges = append(judges, p.stage)
			at = append(at, p.node)
		}
	}
	want := numberType.orNull("")
	if v := f.get(f.root, "reward"); v != nil {
		c.p.Reward = c.expression(v, sc, reader{"", "reward"}, want)
		return
	}
	if _, given := lookup(f.root, "reward"); given != nil || len(judges) == 0 {
		return
	}
	if len(judges) > 1 {
		ids := make([]string, len(judges))
		for i, s := range judges {
			ids[i] = s.ID
		}
		f.errorf(f.at(at[1]), "reward", fmt.Sprintf(`add reward: "${{ %s.output.reward }}"`, ids[0]),
			"several stages judge (%s), so the file must say which 'reward' counts", strings.Join(ids, ", "))
		return
	}
	id := judges[0].ID
	if id == "" {
		return
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "${{ " + id + ".output?.reward }}", Line: at[0].Line, Column: at[0].Column}
	if f.origin[at[0]] != nil {
		f.origin[n] = f.origin[at[0]]
	}
	if c.p.Reward = c.expression(n, sc, reader{"", "reward"}, want); c.p.Reward != nil {
		c.p.Reward.where = "the only judger's verdict"
	}
}

// converters refuses those that need token ids where a model gives none.
func (c *check) converters() {
	for _, p := range c.flat {
		s := p.stage
		if s.Kind != component.Converter || !s.Descriptor.Want("ids") {
			continue
		}
		for _, q := range c.flat {
			from := q.stage
			m := c.p.Models[from.Model]
			if m == nil || m.Capture != "text" {
				continue
			}
			at := c.f.get(p.node, "uses")
			c.f.errorf(c.f.at(at), "capture", "set 'capture: reported' or 'exact' on the model, or use a converter that takes messages",
				"%s needs token ids, but model '%s' of stage '%s' has 'capture: text', which gives none", s.Uses(), m.Name, from.ID)
			break
		}
	}
}
