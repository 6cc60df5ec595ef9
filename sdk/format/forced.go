package format

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// Engines that hold a model to a tool choice do so with guided JSON, and then
// the reply is not written in the model's own way: with choice required it is
// an array of {name, parameters}, with a named tool the arguments alone. A
// parser understands that too where the request asked for it, and only there.

// forced is the grammar for requests that demand a call.
func (g *grammar) forced() *grammar {
	f := *g
	f.json = &JSONSpec{}
	if g.json != nil {
		*f.json = *g.json
	}
	f.json.Name = append(slices.Clone(f.json.Name), "name")
	f.json.Arguments = append(slices.Clone(f.json.Arguments), "parameters", "arguments")
	start := []marker{{[]byte("{"), markForced}, {[]byte("["), markForced}}
	content := slices.DeleteFunc(slices.Clone(g.inContent.markers), func(m marker) bool {
		return m.kind == markBare && len(m.text) == 1
	})
	f.inContent = newFinder(append(content, start...))
	f.jsonFirst = g.json != nil && g.calls.Bare == "start"
	return &f
}

// forces reports whether a request demands a call.
func forces(c *chat.Choice) bool {
	return c != nil && (c.Mode == chat.ChoiceRequired || c.Mode == chat.ChoiceNamed)
}

// forcedAt reads bare JSON at i, where a reply begins with it.
func (p *parser) forcedAt(i int) bool {
	if p.text.reasoning || p.text.last == Content || p.text.solid > p.pos || p.call.count > 0 {
		return false
	}
	p.flushText()
	p.call.mark, p.call.resume, p.call.wrapped, p.call.array = i, i+1, false, false
	p.look, p.step = i, (*parser).stepItem
	if p.named != "" && p.buf[i] == '{' && !p.g.jsonFirst {
		p.step = (*parser).stepNamed
	}
	return true
}

// maxHead bounds what is looked at to tell, in bytes.
const maxHead = 4 << 10

// stepNamed tells whether the object at look is the named tool's arguments, or
// a whole call that holds them, as models write it that nobody guides.
func (p *parser) stepNamed() bool {
	how := no
	if params := paramsOf(p.tools, p.named); !params.declared("name") || !params.declared("arguments") && !params.declared("parameters") {
		how = wholeCall(p.rest(p.look), p.named)
	}
	switch {
	case how == full:
		p.step = (*parser).stepItem
	case how == part && !p.final && p.limit-p.look < maxHead:
		return false
	default:
		p.namedBody(p.look)
	}
	return true
}

// wholeCall compares text with the beginning of a call of a tool: {"name":
// "NAME", "arguments": or "parameters" in its place. part is one that may
// become it.
func wholeCall(text []byte, name string) match {
	quoted, err := json.Marshal(name)
	if err != nil {
		return no
	}
	for _, want := range [][]string{{"{"}, {`"name"`}, {":"}, {string(quoted)}, {","}, {`"arguments"`, `"parameters"`}, {":"}} {
		text = text[space(text, 0):]
		how := no
		for _, w := range want {
			switch {
			case bytes.HasPrefix(text, []byte(w)):
				text, how = text[len(w):], full
			case how == no && strings.HasPrefix(w, string(text)):
				how = part
			}
			if how == full {
				break
			}
		}
		if how != full {
			return how
		}
	}
	return full
}

// namedBody reads the arguments of the named tool at i.
func (p *parser) namedBody(i int) {
	p.call.item = i
	p.head = headState{saved: p.head.saved[:0]}
	p.begin(p.named)
	p.startBody(i, (*parser).stepNamedEnd)
}

func (p *parser) stepNamedEnd() bool {
	p.goAfter(p.look)
	return true
}
