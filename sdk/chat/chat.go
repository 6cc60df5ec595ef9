// Package chat is the canonical conversation: the one form in the middle that
// every client dialect, every format and every upstream is translated to and
// from. It holds messages, parts, tools, choices, sampling, replies and
// deltas, and the JSON form that plugins see.
//
// What never enters: anything that only one dialect, format or engine knows,
// and any I/O. JSON that merely passes through (arguments, schemas) is kept
// as the bytes that came in: key order, nulls, big integers and escapes.
package chat

import (
	"bytes"
	"encoding/json"
)

// Role says who a message is from.
type Role string

// The roles of a conversation. A developer message of some dialects is
// System; each tool result is a message of its own with role Tool.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool"
)

// PartType says what a part of a message is.
type PartType string

// The types of part.
const (
	Text       PartType = "text"
	Reasoning  PartType = "reasoning"
	Image      PartType = "image"
	ToolCall   PartType = "tool_call"
	ToolResult PartType = "tool_result"
)

// Part is one piece of a message. Which fields are used depends on Type:
//
//	text         Text
//	reasoning    Text, Signature; Data for a redacted block
//	image        MediaType and Data (base64), or URL
//	tool_call    ID, Name, Arguments
//	tool_result  ID (of the call it answers), Name, Content, IsError
type Part struct {
	Type      PartType `json:"type"`
	Text      string   `json:"text,omitempty"`
	Signature string   `json:"signature,omitempty"`
	MediaType string   `json:"media_type,omitempty"`
	Data      string   `json:"data,omitempty"`
	URL       string   `json:"url,omitempty"`
	ID        string   `json:"id,omitempty"`
	Name      string   `json:"name,omitempty"`
	// Arguments is the JSON value that the model or the client wrote. It is
	// usually an object; text that isn't JSON at all is held as a JSON string
	// with ArgumentsRaw set.
	Arguments    json.RawMessage `json:"arguments,omitempty"`
	ArgumentsRaw bool            `json:"arguments_raw,omitempty"`
	Content      []Part          `json:"content,omitempty"`
	IsError      bool            `json:"is_error,omitempty"`
}

// Message is one entry of a conversation.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
}

// Tool is a tool that the model is offered. Parameters is its JSON Schema as
// it came in; Raw is the whole definition as the client wrote it. Type is
// empty for a function; a tool that the provider runs itself keeps its
// dialect's type name.
type Tool struct {
	Type        string          `json:"type,omitempty"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Raw         json.RawMessage `json:"-"`
}

// ChoiceMode says whether the model must call a tool.
type ChoiceMode string

// The modes of a tool choice.
const (
	ChoiceAuto     ChoiceMode = "auto"
	ChoiceNone     ChoiceMode = "none"
	ChoiceRequired ChoiceMode = "required"
	ChoiceNamed    ChoiceMode = "named"
)

// Choice is a tool choice. Name is set with ChoiceNamed only.
type Choice struct {
	Mode            ChoiceMode `json:"mode"`
	Name            string     `json:"name,omitempty"`
	DisableParallel bool       `json:"disable_parallel,omitempty"`
}

// Sampling is how tokens are drawn. A nil field was not given.
type Sampling struct {
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
	TopK        *int     `json:"top_k,omitempty"`
	MaxTokens   *int     `json:"max_tokens,omitempty"`
	Seed        *int64   `json:"seed,omitempty"`
	Stop        []string `json:"stop,omitempty"`
}

// Over returns s with every field that over sets taken from over.
func (s Sampling) Over(over Sampling) Sampling {
	if over.Temperature != nil {
		s.Temperature = over.Temperature
	}
	if over.TopP != nil {
		s.TopP = over.TopP
	}
	if over.TopK != nil {
		s.TopK = over.TopK
	}
	if over.MaxTokens != nil {
		s.MaxTokens = over.MaxTokens
	}
	if over.Seed != nil {
		s.Seed = over.Seed
	}
	if over.Stop != nil {
		s.Stop = over.Stop
	}
	return s
}

// Conversation is everything that a model is asked with.
type Conversation struct {
	Messages   []Message `json:"messages"`
	Tools      []Tool    `json:"tools,omitempty"`
	ToolChoice *Choice   `json:"tool_choice,omitempty"`
	Sampling   Sampling  `json:"sampling"`
	// Thinking is nil when the client did not say, else whether it wants
	// reasoning.
	Thinking *bool `json:"thinking,omitempty"`
}

// Finish says why a reply ended.
type Finish string

// The reasons for which a reply ends. FinishStopSequence is a stop that the
// client asked for.
const (
	FinishStop         Finish = "stop"
	FinishLength       Finish = "length"
	FinishToolCalls    Finish = "tool_calls"
	FinishStopSequence Finish = "stop_sequence"
	FinishRefusal      Finish = "refusal"
	FinishError        Finish = "error"
)

// Usage counts tokens. Cached, read from a cache, and CacheWrite, written into
// one, are parts of Input.
type Usage struct {
	Input      int `json:"input"`
	Output     int `json:"output"`
	Cached     int `json:"cached,omitempty"`
	CacheWrite int `json:"cache_write,omitempty"`
}

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, Output: u.Output + v.Output,
		Cached: u.Cached + v.Cached, CacheWrite: u.CacheWrite + v.CacheWrite,
	}
}

// Reply is one answer of a model. Parts come in the order in which they were
// generated: reasoning, text and tool calls.
type Reply struct {
	ID           string `json:"id,omitempty"`
	Model        string `json:"model,omitempty"`
	Parts        []Part `json:"parts"`
	Finish       Finish `json:"finish"`
	StopSequence string `json:"stop_sequence,omitempty"`
	Usage        Usage  `json:"usage"`
}

// Calls returns the tool calls among the parts of a reply or a message.
func Calls(parts []Part) []Part {
	var out []Part
	for _, p := range parts {
		if p.Type == ToolCall {
			out = append(out, p)
		}
	}
	return out
}

// PlainText joins the text parts, without separators.
func PlainText(parts []Part) string {
	if len(parts) == 1 && parts[0].Type == Text {
		return parts[0].Text
	}
	var b []byte
	for _, p := range parts {
		if p.Type == Text {
			b = append(b, p.Text...)
		}
	}
	return string(b)
}

// DeltaType says what a delta adds to a reply.
type DeltaType string

// The types of delta. A part is opened by its first delta and closed by
// PartEnd; the deltas of one part follow each other.
const (
	DeltaText      DeltaType = "text"       // Text
	DeltaReasoning DeltaType = "reasoning"  // Text
	DeltaSignature DeltaType = "signature"  // Text, of the open reasoning part
	DeltaRedacted  DeltaType = "redacted"   // Text: the Data of a redacted reasoning part
	DeltaCallStart DeltaType = "call_start" // ID, Name
	DeltaCallArgs  DeltaType = "call_args"  // Text: the next bytes of the arguments' JSON
	DeltaPartEnd   DeltaType = "part_end"
)

// Delta is one step of a streamed reply. Part is the index, from 0, of the
// part of the reply that it belongs to.
type Delta struct {
	Type DeltaType `json:"type"`
	Part int       `json:"part"`
	Text string    `json:"text,omitempty"`
	ID   string    `json:"id,omitempty"`
	Name string    `json:"name,omitempty"`
}

// Marshal is json.Marshal without HTML escaping, so that raw values keep
// their own spelling of <, > and &.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
