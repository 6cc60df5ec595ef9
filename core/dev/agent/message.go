package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// block is one content block of an assistant's message.
type block struct {
	Type      string
	Text      string // also of thinking
	Signature string
	Data      string
	ID        string
	Name      string
	Input     json.RawMessage
	// broken is the text of an input that is no JSON object.
	broken string
}

// MarshalJSON writes the block as it goes back in the next request.
func (b *block) MarshalJSON() ([]byte, error) {
	switch b.Type {
	case "thinking":
		return marshal(struct {
			Type      string `json:"type"`
			Thinking  string `json:"thinking"`
			Signature string `json:"signature"`
		}{b.Type, b.Text, b.Signature})
	case "redacted_thinking":
		return marshal(struct {
			Type string `json:"type"`
			Data string `json:"data"`
		}{b.Type, b.Data})
	case "tool_use":
		return marshal(struct {
			Type  string          `json:"type"`
			ID    string          `json:"id"`
			Name  string          `json:"name"`
			Input json.RawMessage `json:"input"`
		}{b.Type, b.ID, b.Name, b.Input})
	default:
		return marshal(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{b.Type, b.Text})
	}
}

// usage counts tokens as the API does: InputTokens leaves out what came from
// the cache or went into it.
type usage struct {
	InputTokens   int `json:"input_tokens"`
	CacheCreation int `json:"cache_creation_input_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
	OutputTokens  int `json:"output_tokens"`
}

func (u *usage) add(v usage) {
	u.InputTokens += v.InputTokens
	u.CacheCreation += v.CacheCreation
	u.CacheRead += v.CacheRead
	u.OutputTokens += v.OutputTokens
}

// reply is one message of the assistant.
type reply struct {
	ID         string
	Model      string
	Blocks     []*block
	StopReason string
	Usage      usage
}

func (r *reply) text() string {
	var b bytes.Buffer
	for _, x := range r.Blocks {
		if x.Type == "text" {
			b.WriteString(x.Text)
		}
	}
	return b.String()
}

func (r *reply) calls() []*block {
	var out []*block
	for _, x := range r.Blocks {
		if x.Type == "tool_use" {
			out = append(out, x)
		}
	}
	return out
}

// event is one event of the stream.
type event struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	ContentBlock struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		Data      string          `json:"data"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
	} `json:"content_block"`
	Delta struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage *struct {
		InputTokens   *int `json:"input_tokens"`
		CacheCreation *int `json:"cache_creation_input_tokens"`
		CacheRead     *int `json:"cache_read_input_tokens"`
		OutputTokens  *int `json:"output_tokens"`
	} `json:"usage"`
	Error *apiError `json:"error"`
}

// builder puts a reply together from events.
type builder struct {
	reply
	input []byte // of the open tool_use
	open  *block
	ended bool
}

// add takes one event. An error means that the stream can't be used.
func (b *builder) add(e *event) error {
	switch e.Type {
	case "message_start":
		b.ID, b.Model, b.Usage = e.Message.ID, e.Message.Model, e.Message.Usage
	case "content_block_start":
		c := e.ContentBlock
		b.open = &block{Type: c.Type, Text: c.Text + c.Thinking, Signature: c.Signature, Data: c.Data, ID: c.ID, Name: c.Name, Input: c.Input}
		b.input = nil
		b.Blocks = append(b.Blocks, b.open)
		if e.Index != len(b.Blocks)-1 {
			return fmt.Errorf("content block %d comes where %d is due", e.Index, len(b.Blocks)-1)
		}
	case "content_block_delta":
		if b.open == nil || e.Index != len(b.Blocks)-1 {
			return fmt.Errorf("a delta of content block %d, which is not open", e.Index)
		}
		b.open.Text += e.Delta.Text + e.Delta.Thinking
		b.open.Signature += e.Delta.Signature
		b.input = append(b.input, e.Delta.PartialJSON...)
	case "content_block_stop":
		b.close()
	case "message_delta":
		if e.Delta.StopReason != "" {
			b.StopReason = e.Delta.StopReason
		}
		if u := e.Usage; u != nil {
			set(&b.Usage.InputTokens, u.InputTokens)
			set(&b.Usage.CacheCreation, u.CacheCreation)
			set(&b.Usage.CacheRead, u.CacheRead)
			set(&b.Usage.OutputTokens, u.OutputTokens)
		}
	case "message_stop":
		b.ended = true
	}
	return nil
}

func set(to *int, v *int) {
	if v != nil {
		*to = *v
	}
}

func (b *builder) close() {
	if b.open != nil && b.open.Type == "tool_use" {
		in := bytes.TrimSpace(b.input)
		if len(in) == 0 {
			in = bytes.TrimSpace(b.open.Input)
		}
		switch {
		case len(in) == 0:
			in = []byte("{}")
		case in[0] != '{' || !json.Valid(in):
			b.open.broken, in = string(in), []byte("{}")
		}
		b.open.Input = in
	}
	b.open = nil
}

// marshal writes JSON without HTML escapes.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
