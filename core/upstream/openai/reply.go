package openai

import (
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// reply reads the events of /v1/chat/completions, whose text the server has
// parsed already.
type reply struct {
	*progress
	parts int // ended so far
	open  chat.PartType
	call  int    // the server's index of the open call
	id    string // of the open call
	calls int    // the highest index so far, plus one
}

func (d *reply) event(data []byte, c *upstream.Chunk) error {
	v := gjson.ParseBytes(data)
	if err := d.progress.open(v, data); err != nil {
		return err
	}
	d.usage(v.Get("usage"))
	choice := v.Get("choices.0")
	if err := d.reported(v, choice, c); err != nil {
		return err
	}
	if !choice.Exists() {
		return nil
	}
	if err := d.message(choice.Get("delta"), c); err != nil {
		return err
	}
	if reason := choice.Get("finish_reason").String(); reason != "" {
		d.end(c)
		d.ends(reason, matched(choice))
	}
	return nil
}

// reported takes the ids that stand beside a message, in the words of any
// engine.
func (d *reply) reported(v, choice gjson.Result, c *upstream.Chunk) error {
	if !d.want {
		return nil
	}
	for _, ids := range []gjson.Result{v.Get("prompt_token_ids"), choice.Get("prompt_token_ids")} {
		if err := d.prompt(ids, c); err != nil {
			return err
		}
	}
	pairs := choice.Get("output_token_logprobs") // LMDeploy
	if !pairs.IsArray() {
		pairs = choice.Get("meta_info.output_token_logprobs") // SGLang
		if w := choice.Get("meta_info.weight_version").String(); w != "" {
			c.WeightVersion = w
		}
	}
	if !pairs.IsArray() {
		return d.tokens(choice.Get("token_ids"), choice.Get("logprobs"), c)
	}
	ids := choice.Get("output_ids")
	if !ids.IsArray() {
		ids = choice.Get("response_token_ids")
	}
	return d.pairs(ids, pairs, c)
}

// pairs takes [logprob, id] pairs and holds them against a list of ids, where
// there is one.
func (d *reply) pairs(ids, pairs gjson.Result, c *upstream.Chunk) error {
	g := &generation{progress: d.progress, growth: fresh}
	var list []int32
	var err error
	if ids.IsArray() {
		if list, err = integers(nil, ids.Raw); err != nil {
			return d.errorf("output_ids: %v", err)
		}
	} else {
		pairs.ForEach(func(_, p gjson.Result) bool {
			list = append(list, int32(p.Get("1").Int()))
			return true
		})
	}
	return g.take(list, pairs, c)
}

// message takes what a delta, or a whole message, holds.
func (d *reply) message(m gjson.Result, c *upstream.Chunk) error {
	thought := m.Get("reasoning_content").String()
	if thought == "" {
		if r := m.Get("reasoning"); r.Type == gjson.String {
			thought = r.Str
		}
	}
	d.text(c, chat.Reasoning, chat.DeltaReasoning, thought)
	d.text(c, chat.Text, chat.DeltaText, m.Get("content").String())
	d.text(c, chat.Text, chat.DeltaText, m.Get("refusal").String())
	calls := m.Get("tool_calls")
	if !calls.IsArray() {
		return nil
	}
	var err error
	calls.ForEach(func(_, call gjson.Result) bool {
		err = d.fragment(call, c)
		return err == nil
	})
	return err
}

// text adds to a part of this type, opening one where it must.
func (d *reply) text(c *upstream.Chunk, t chat.PartType, as chat.DeltaType, text string) {
	if text == "" {
		return
	}
	if d.open != t {
		d.end(c)
		d.open = t
	}
	d.add(c, chat.Delta{Type: as, Text: text})
}

// fragment takes a piece of a call. A call begins where its index is new, or,
// of servers that write none, its id.
func (d *reply) fragment(call gjson.Result, c *upstream.Chunk) error {
	index, id := d.call, call.Get("id").String()
	if v := call.Get("index"); v.Exists() {
		index = int(v.Int())
	} else if d.open != chat.ToolCall || id != "" && id != d.id {
		index = d.calls
	}
	if d.open != chat.ToolCall || index != d.call {
		if index < d.calls {
			return d.errorf("went on with tool call %d after another had begun", index)
		}
		name := call.Get("function.name").String()
		if name == "" {
			return d.errorf("began tool call %d without a name", index)
		}
		d.end(c)
		d.open, d.call, d.id, d.calls = chat.ToolCall, index, id, index+1
		d.add(c, chat.Delta{Type: chat.DeltaCallStart, ID: id, Name: name})
	}
	if args := call.Get("function.arguments"); args.IsObject() {
		d.add(c, chat.Delta{Type: chat.DeltaCallArgs, Text: args.Raw})
	} else if text := args.String(); text != "" {
		d.add(c, chat.Delta{Type: chat.DeltaCallArgs, Text: text})
	}
	return nil
}

func (d *reply) add(c *upstream.Chunk, delta chat.Delta) {
	delta.Part = d.parts
	c.Deltas = append(c.Deltas, delta)
}

// end closes the open part.
func (d *reply) end(c *upstream.Chunk) {
	if d.open != "" {
		d.add(c, chat.Delta{Type: chat.DeltaPartEnd})
		d.parts++
		d.open = ""
	}
}

// whole reads a reply that came in one piece.
func (p *progress) whole(body []byte) (upstream.Stream, error) {
	v := gjson.ParseBytes(body)
	if err := p.open(v, body); err != nil {
		return nil, err
	}
	d := &reply{progress: p}
	var c upstream.Chunk
	choice := v.Get("choices.0")
	p.usage(v.Get("usage"))
	if err := d.reported(v, choice, &c); err != nil {
		return nil, err
	}
	if err := d.message(choice.Get("message"), &c); err != nil {
		return nil, err
	}
	d.end(&c)
	if reason := choice.Get("finish_reason").String(); reason != "" {
		p.ends(reason, matched(choice))
	}
	if err := p.last(&c); err != nil {
		return nil, err
	}
	return &whole{c: c}, nil
}
