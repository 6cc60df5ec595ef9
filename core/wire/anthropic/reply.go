package anthropic

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// Reply implements wire.Dialect. Empty text parts have no block; a reply
// without any other part has the content [], as the provider's own.
func (dialect) Reply(r *chat.Reply) []byte {
	size := 512
	for _, p := range r.Parts {
		size += 128 + len(p.Text) + len(p.Text)/8 + len(p.Arguments)
	}
	b := appendHead(make([]byte, 0, size), r)
	b = append(b, `,"content":[`...)
	n := 0
	for _, p := range r.Parts {
		if p.Type == chat.Text && p.Text == "" {
			continue
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = appendBlock(b, p)
	}
	b = append(b, `],`...)
	b = appendStop(b, r, len(chat.Calls(r.Parts)) > 0)
	b = append(b, `,"usage":`...)
	b = appendUsage(b, r.Usage)
	return append(b, '}')
}

// appendHead opens a message object.
func appendHead(b []byte, r *chat.Reply) []byte {
	b = append(b, `{"id":`...)
	b = sse.AppendString(b, r.ID)
	b = append(b, `,"type":"message","role":"assistant","model":`...)
	return sse.AppendString(b, r.Model)
}

// appendBlock appends one content block of a reply or of a history.
func appendBlock(b []byte, p chat.Part) []byte {
	switch p.Type {
	case chat.Reasoning:
		if p.Data != "" {
			b = append(b, `{"type":"redacted_thinking","data":`...)
			b = sse.AppendString(b, p.Data)
			break
		}
		text, signature := sse.Clean(p.Text), p.Signature
		if signature == "" {
			signature = Signature(text)
		}
		b = append(b, `{"type":"thinking","thinking":`...)
		b = sse.AppendString(b, text)
		b = append(b, `,"signature":`...)
		b = sse.AppendString(b, signature)
	case chat.ToolCall:
		b = append(b, `{"type":"tool_use","id":`...)
		b = sse.AppendString(b, p.ID)
		b = append(b, `,"name":`...)
		b = sse.AppendString(b, p.Name)
		b = append(b, `,"input":`...)
		b = appendInput(b, p.Arguments)
	default:
		b = append(b, `{"type":"text","text":`...)
		b = sse.AppendString(b, p.Text)
	}
	return append(b, '}')
}

// appendInput appends arguments as the input of a tool_use. Absent ones and
// null are {}; what isn't an object or a list is wrapped (see the package),
// text that isn't JSON too.
func appendInput(b []byte, args []byte) []byte {
	if !utf8.Valid(args) {
		args = []byte(sse.Clean(string(args)))
	}
	v := rawjson.Of(args)
	if !v.Absent() && !rawjson.Valid(args, maxDepth) {
		return appendUnparsed(b, string(args))
	}
	switch v.Kind() {
	case 0, 'n':
		return append(b, `{}`...)
	case '{', '[':
		return append(b, v.Raw()...)
	case '"':
		return appendUnparsed(b, v.Text())
	default:
		return appendUnparsed(b, string(v.Raw()))
	}
}

// appendUnparsed wraps text that isn't arguments. Its length is counted as
// JavaScript does, in UTF-16.
func appendUnparsed(b []byte, text string) []byte {
	n := utf8.RuneCountInString(text)
	for _, r := range text {
		if utf16.RuneLen(r) == 2 {
			n++
		}
	}
	b = append(b, `{"`+unparsedKey+`":{"raw":`...)
	b = sse.AppendString(b, text)
	b = append(b, `,"len":`...)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, `}}`...)
}

// appendStop appends stop_reason and stop_sequence. A turn ends in tool_use
// exactly when it has calls and wasn't cut.
func appendStop(b []byte, r *chat.Reply, calls bool) []byte {
	reason := "end_turn"
	switch {
	case r.Finish == chat.FinishLength:
		reason = "max_tokens"
	case r.Finish == chat.FinishRefusal:
		reason = "refusal"
	case r.Finish == chat.FinishStopSequence:
		reason = "stop_sequence"
	case calls:
		reason = "tool_use"
	}
	b = append(b, `"stop_reason":"`...)
	b = append(b, reason...)
	b = append(b, `","stop_sequence":`...)
	if r.Finish == chat.FinishStopSequence {
		return sse.AppendString(b, r.StopSequence)
	}
	return append(b, `null`...)
}

// appendUsage appends counts. Here input_tokens leaves out what came from the
// cache or went into it. How long it stays there isn't known; five minutes are
// the provider's default.
func appendUsage(b []byte, u chat.Usage) []byte {
	b = append(b, `{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(max(u.Input-u.Cached-u.CacheWrite, 0)), 10)
	b = append(b, `,"cache_creation_input_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CacheWrite), 10)
	b = append(b, `,"cache_read_input_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Cached), 10)
	b = append(b, `,"cache_creation":{"ephemeral_5m_input_tokens":`...)
	b = strconv.AppendInt(b, int64(u.CacheWrite), 10)
	b = append(b, `,"ephemeral_1h_input_tokens":0},"output_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Output), 10)
	return append(b, `,"service_tier":"standard"}`...)
}
