package pipeline

import (
	"slices"

	"github.com/penstock-dev/penstock/sdk/component"
)

// loops warns of loops that can't get anywhere: of passes that don't learn what
// was wrong with the one before, and of verdicts that nobody thought of. What a
// file with errors reads isn't known.
func (c *check) loops() {
	if slices.ContainsFunc(c.f.found, func(d Diagnostic) bool { return d.Severity == Error }) {
		return
	}
	for _, p := range c.flat {
		if p.stage.Loop == nil {
			continue
		}
		c.unlearned(p)
		c.unhandled(p)
	}
}

// unlearned warns of a stage whose output ends a loop, which nobody else in it
// reads: a model that makes the same thing again would be told the same again.
func (c *check) unlearned(loop placed) {
	body := loop.stage.Loop.Stages
	for _, s := range body {
		model, _ := c.asks(s)
		if s.ID == "" || s.Kind == KindRun || !c.reader(s.ID, func(r Read) bool { return r.Stage == loop.stage.ID && r.Where == "until" }) {
			continue
		}
		learns := c.reader(s.ID, func(r Read) bool {
			return r.Stage != s.ID && slices.ContainsFunc(body, func(b *Stage) bool { return b.ID != "" && b.ID == r.Stage })
		})
		makers := slices.ContainsFunc(body, func(b *Stage) bool { by, _ := c.asks(b); return b != s && by != "" })
		if learns || !makers || model == "" && s.Kind != component.Judger || c.saidUnread(s) {
			continue
		}
		at := c.f.at(loop.node)
		for _, q := range c.flat {
			if q.stage == s {
				at = c.f.at(c.f.get(q.node, "uses"))
			}
		}
		c.f.warnf(at, "unread", "tell a stage of the loop what was found, such as in its prompt: ${{ "+s.ID+".output?.findings ?? [] | join('; ') }}",
			"no stage of the loop reads what '%s' wrote, so that the next pass would not know what to do better", s.ID)
	}
}

// reader says whether somebody reads of a stage for whom yes holds.
func (c *check) reader(stage string, yes func(Read) bool) bool {
	return slices.ContainsFunc(c.reads, func(r Read) bool { return r.From == stage && yes(r) })
}

// saidUnread says whether unread warns of the stage's findings.
func (c *check) saidUnread(s *Stage) bool {
	return slices.ContainsFunc(c.ownOutput(s), func(f Field) bool { return f.Name == "findings" }) && !c.isRead(s.ID, "findings")
}

// unhandled warns where a loop goes on for several values of what ends it, and
// no expression tells these apart: one that stands for "can't say" would be
// taken for a no.
func (c *check) unhandled(loop placed) {
	for _, s := range loop.stage.Loop.Stages {
		for _, field := range c.ownOutput(s) {
			path := s.ID + ".output." + field.Name
			if !c.reader(s.ID, func(r Read) bool { return r.Stage == loop.stage.ID && r.Where == "until" && r.Value == path }) {
				continue
			}
			var rest []string
			for _, o := range c.compared {
				if o.path == path {
					rest = slices.Clone(o.enum)
				}
			}
			for _, o := range c.compared {
				if o.path == path {
					rest = slices.DeleteFunc(rest, func(v string) bool { return v == o.value })
				}
			}
			if len(rest) < 2 {
				continue
			}
			at := c.f.at(c.f.get(c.f.get(loop.node, "loop"), "until"))
			c.f.warnf(at, "unhandled", "end the loop for one of them as well, or compare it where it matters, such as: if: \"${{ "+path+" == '"+rest[len(rest)-1]+"' }}\"",
				"the loop takes %s of %s alike, and nothing tells them apart", quoteAll(rest, " and "), path)
		}
	}
}
