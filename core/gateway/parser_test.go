package gateway_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/format"
)

// mortal is a parser whose transport dies at its n-th step.
type mortal struct {
	format.Parser
	left  int
	err   error
	alter func([]format.Event) []format.Event
}

func (p *mortal) step(dst []format.Event) []format.Event {
	if p.left--; p.left < 0 {
		p.err = errors.New("plugin process died")
		return append(dst, format.Event{Kind: format.Content, Text: "garbage of a dying process"})
	}
	if p.alter != nil {
		return p.alter(dst)
	}
	return dst
}

func (p *mortal) Feed(dst []format.Event, chunk []byte) []format.Event {
	return p.step(p.Parser.Feed(dst, chunk))
}
func (p *mortal) Finish(dst []format.Event) []format.Event { return p.step(p.Parser.Finish(dst)) }
func (p *mortal) Err() error                               { return p.err }

// dies makes the n-th step of the first parser die, and then that of the
// next ones too, if again is set.
func dies(n int, again int, alter func([]format.Event) []format.Event) setting {
	var opened atomic.Int32
	return func(o *gateway.Options, m *gateway.Model) {
		m.Format = toy{wrap: func(p format.Parser) format.Parser {
			if opened.Add(1) == 1 {
				return &mortal{Parser: p, left: n}
			}
			return &mortal{Parser: p, left: again, alter: alter}
		}}
	}
}

const never = 1 << 30

// TestParserDeath: wherever a format's transport dies, a fresh one takes over
// and the client sees nothing of it.
func TestParserDeath(t *testing.T) {
	const text = `<think>Hm, well.</think>text <call add>{"a":1}</call><call add>{"a":2}</call> after` + imEnd
	for _, size := range []int{3, 7, 1000} {
		steps := len(stream(text, size).list) + 1
		for n := range steps {
			t.Run(fmt.Sprintf("%d/%d", size, n), func(t *testing.T) {
				b := start(t, says(text, size), dies(n, never, nil))
				a := post(t, b.session(t), ask("hello", true, addTool))
				require.NoError(t, a.err)
				m := joined(t, eventsOf(t, a))
				assert.Equal(t, "Hm, well.", at(m, "content", 0, "thinking"))
				assert.Equal(t, "text ", at(m, "content", 1, "text"))
				assert.Equal(t, 1.0, at(m, "content", 2, "input", "a"))
				assert.Equal(t, 2.0, at(m, "content", 3, "input", "a"))
				assert.Equal(t, " after", at(m, "content", 4, "text"))
				assert.Len(t, m["content"], 5)
				c := b.store.only(t)
				assert.Equal(t, trace.CallOK, c.Status)
				require.Len(t, c.Spans, 2)
				for i, p := range c.Served.Parts {
					if p.ID != "" {
						assert.Equal(t, p.ID, at(m, "content", i, "id"))
					}
				}
			})
		}
	}
}

// TestParserDiesTwice: then the call is an error, with its raw text kept.
func TestParserDiesTwice(t *testing.T) {
	const text = "one two three" + imEnd
	for n := range 5 {
		b := start(t, says(text, 3), dies(n, 1, nil))
		a := post(t, b.session(t), ask("hello", true))
		c := b.store.only(t)
		assert.Equal(t, trace.CallError, c.Status, n)
		assert.Contains(t, c.Error.Message, "second time")
		assert.NotEmpty(t, c.Raw)
		if a.status == 200 {
			assert.Error(t, a.err)
			assert.NotContains(t, names(eventsOf(t, a)), "message_stop")
		}
		assert.NotContains(t, a.body, "garbage")
	}
}

// TestParserChangesItsMind: a repeated parse that gives something else is no
// continuation of what the client has.
func TestParserChangesItsMind(t *testing.T) {
	alter := func(events []format.Event) []format.Event {
		for i := range events {
			events[i].Text = "X" + events[i].Text
		}
		return events
	}
	b := start(t, says("one two three"+imEnd, 3), dies(2, never, alter))
	a := post(t, b.session(t), ask("hello", true))
	assert.Error(t, a.err)
	c := b.store.only(t)
	assert.Equal(t, trace.CallError, c.Status)
	assert.Contains(t, c.Error.Message, "repeated parse")
}

// TestParserBreaksOrder: events that can't be a reply are the format's
// error, not the client's.
func TestParserBreaksOrder(t *testing.T) {
	for name, bad := range map[string][]format.Event{
		"text within a call":   {{Kind: format.CallStart, Name: "add"}, {Kind: format.Content, Text: "x"}},
		"args without a call":  {{Kind: format.CallArgs, Text: "{}"}},
		"end without a call":   {{Kind: format.CallEnd}},
		"call within a call":   {{Kind: format.CallStart, Name: "a"}, {Kind: format.CallStart, Index: 1, Name: "b"}},
		"call that never ends": {{Kind: format.CallStart, Name: "add"}},
	} {
		sent := false
		alter := func(events []format.Event) []format.Event {
			if sent {
				return events[:0]
			}
			sent = true
			return append(events[:0], bad...)
		}
		b := start(t, says("x"+imEnd, 100), func(o *gateway.Options, m *gateway.Model) {
			m.Format = toy{wrap: func(p format.Parser) format.Parser { return &mortal{Parser: p, left: never, alter: alter} }}
		})
		assert.Equal(t, 500, post(t, b.session(t), ask("hello", false)).status, name)
		c := b.store.only(t)
		assert.Equal(t, trace.CallError, c.Status)
		assert.Equal(t, "x"+imEnd, c.Raw)
	}
}
