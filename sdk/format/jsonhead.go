package format

import (
	"bytes"
	"slices"
)

// headState is the state of a call that is a JSON object: until its name and
// arguments are known, nothing is emitted.
type headState struct {
	step   func(*parser) bool // where a skipped or buffered value goes on
	from   int                // where the string that is read begins
	name   string
	id     string
	key    string
	begun  bool // the call was emitted
	args   bool // its arguments were read
	saved  []byte
	saveTo *[]byte
}

// startHead reads a call object at i.
func (p *parser) startHead(i int) {
	p.head = headState{saved: p.head.saved[:0]}
	p.scan = i + 1
	p.step = (*parser).stepKey
}

// headFail ends an object that isn't a call, or that is broken after it began.
func (p *parser) headFail(at int) bool {
	if p.head.begun {
		p.broken(at)
	} else {
		p.reject(at)
	}
	return true
}

// advance moves scan, and with it pos once the call is emitted.
func (p *parser) advance(i int) {
	p.scan = i
	if p.head.begun {
		p.pos = i
	}
}

// stepKey reads up to a key or the end of the object.
func (p *parser) stepKey() bool {
	i := p.scan
	for i < p.limit && (isSpace(p.buf[i]) || p.buf[i] == ',') {
		i++
	}
	p.advance(i)
	switch {
	case i == p.limit:
		return p.final && p.headFail(i)
	case p.buf[i] == '}':
		return p.endHead(i + 1)
	case p.buf[i] == '"' || p.buf[i] == '\'':
		p.head.from, p.scan = i, i+1
		p.step = (*parser).stepKeyEnd
		return true
	}
	return p.headFail(i)
}

// quoted reads on in the string that begins at head.from. It returns the end
// of the string, part when that isn't there yet.
func (p *parser) quoted() (int, match) {
	quote := p.buf[p.head.from]
	for i := p.scan; i < p.limit; i++ {
		switch p.buf[i] {
		case '\\':
			if i+1 == p.limit {
				p.scan = i
				return i, part
			}
			i++
		case quote:
			return i + 1, full
		}
	}
	p.scan = p.limit
	return p.limit, part
}

// unquote is the text of a string that was read up to end.
func (p *parser) unquote(end int) (string, bool) {
	l := loose{src: p.buf[p.head.from:end]}
	if !l.str(p.buf[p.head.from]) || len(l.out) < 2 {
		return "", false
	}
	return unescape(l.out[1 : len(l.out)-1])
}

func (p *parser) stepKeyEnd() bool {
	end, how := p.quoted()
	if how == part {
		return p.final && p.headFail(p.limit)
	}
	key, ok := p.unquote(end)
	if !ok {
		return p.headFail(end)
	}
	p.head.key = key
	p.advance(end)
	p.step = (*parser).stepColon
	return true
}

func (p *parser) stepColon() bool {
	i := space(p.buf[:p.limit], p.scan)
	p.advance(i)
	if i == p.limit {
		return p.final && p.headFail(i)
	}
	if p.buf[i] != ':' {
		return p.headFail(i)
	}
	p.advance(i + 1)
	p.step = (*parser).stepHeadValue
	return true
}

// stepHeadValue decides what to do with the value of a key.
func (p *parser) stepHeadValue() bool {
	i := space(p.buf[:p.limit], p.scan)
	p.advance(i)
	if i == p.limit {
		return p.final && p.headFail(i)
	}
	spec, c := p.g.json, p.buf[i]
	if spec.SingleKey && p.head.name == "" && !slices.Contains(spec.Name, p.head.key) {
		p.head.name = p.head.key
		return p.startArgs(i, c)
	}
	switch {
	case slices.Contains(spec.Name, p.head.key) && p.head.name == "":
		if c != '"' && c != '\'' {
			return p.headFail(i)
		}
		p.head.from, p.scan = i, i+1
		p.step = (*parser).stepNameEnd
		return true
	case spec.ID != "" && spec.ID == p.head.key && (c == '"' || c == '\'') && !p.head.begun:
		p.head.from, p.scan = i, i+1
		p.step = (*parser).stepIDEnd
		return true
	case slices.Contains(spec.Arguments, p.head.key) && !p.head.args:
		return p.startArgs(i, c)
	}
	return p.readInto(nil, (*parser).stepKey)
}

func (p *parser) stepNameEnd() bool { return p.headString(&p.head.name) }

func (p *parser) stepIDEnd() bool { return p.headString(&p.head.id) }

// headString reads a string of the head to its end. An empty one is no name.
func (p *parser) headString(to *string) bool {
	end, how := p.quoted()
	if how == part {
		return p.final && p.headFail(p.limit)
	}
	text, ok := p.unquote(end)
	if !ok || text == "" {
		return p.headFail(end)
	}
	*to = text
	p.advance(end)
	p.step = (*parser).stepKey
	return true
}

// startArgs reads the arguments, whose first byte is c: as they come when the
// name is known, else into a buffer.
func (p *parser) startArgs(i int, c byte) bool {
	p.head.args = true
	if c == '{' && p.head.name != "" {
		if !p.begin(p.head.name) {
			p.reject(i)
			return true
		}
		p.head.begun = true
		p.advance(i)
		return p.readInto(&p.args, (*parser).stepKey)
	}
	return p.readInto(&p.head.saved, (*parser).stepKey)
}

// readInto reads one JSON value into dst, which may be nil, and goes on with
// next.
func (p *parser) readInto(dst *[]byte, next func(*parser) bool) bool {
	p.json.reset()
	p.head.saveTo, p.head.step = dst, next
	p.step = (*parser).stepJSON
	return true
}

// startBody reads a JSON body of arguments at i as it comes, and goes on with
// next.
func (p *parser) startBody(i int, next func(*parser) bool) {
	p.head = headState{saved: p.head.saved[:0], begun: true, args: true}
	p.advance(i)
	p.readInto(&p.args, next)
}

func (p *parser) stepJSON() bool {
	i, status := p.json.run(p.buf[:p.limit], p.scan, p.final, p.head.saveTo)
	p.advance(i)
	switch {
	case status == jsonMore && !p.final:
		return false
	case status == jsonEnd:
		if p.json.fixed && !(p.json.python && p.lit.check) {
			p.warn("mended_json", i, i)
		}
		p.look, p.step = i, p.head.step
		return true
	}
	return p.headFail(i)
}

// endHead ends the object: a call whose arguments didn't stream begins here.
func (p *parser) endHead(end int) bool {
	if !p.head.begun {
		args, ok := p.savedArgs()
		if p.head.name == "" || !ok || !p.begin(p.head.name) {
			p.reject(end)
			return true
		}
		p.args = append(p.args, args...)
	}
	p.goAfter(end)
	return true
}

// savedArgs are the arguments that were buffered: an object, one inside a JSON
// string, or nothing.
func (p *parser) savedArgs() ([]byte, bool) {
	saved := bytes.TrimSpace(p.head.saved)
	if !p.head.args || string(saved) == "null" || len(saved) == 0 {
		return []byte("{}"), !p.g.json.NeedArguments
	}
	if saved[0] == '"' {
		if out, ok := coerceContainer(nil, saved, typeObject); ok {
			return out, true
		}
		if string(saved) == `""` {
			return []byte("{}"), true
		}
	}
	return saved, saved[0] == '{' || !p.g.json.NeedArguments
}

// broken goes on behind JSON that broke after its call was emitted: at the
// next marker of the envelope, or the end of the text.
func (p *parser) broken(at int) {
	p.call.cut = true
	if at < p.limit {
		p.warn("broken_json", at, at)
	}
	p.look, p.step = at, (*parser).stepBroken
}

func (p *parser) stepBroken() bool {
	for i := p.look; ; i++ {
		for i < p.limit && !p.g.edge[p.buf[i]] {
			i++
		}
		p.look, p.pos = i, i
		if i == p.limit {
			if p.final {
				p.afterBroken(i)
			}
			return p.final
		}
		_, how := compareAny(p.rest(i), p.g.edges, p.final)
		if how == part && !p.final {
			return false
		}
		if how == full {
			p.afterBroken(i)
			return true
		}
	}
}

func (p *parser) afterBroken(i int) {
	if p.g.messages != nil && p.g.tagged == nil {
		p.endMessageCall(i)
		return
	}
	p.goAfter(i)
}
