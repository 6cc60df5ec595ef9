package openaichat

import (
	"strconv"

	"github.com/penstock-dev/penstock/core/wire/callargs"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// Reply implements wire.Dialect. The content is null beside calls when there
// is no text.
func (d dialect) Reply(r *chat.Reply) []byte {
	size := 512
	for _, p := range r.Parts {
		size += 128 + len(p.Text) + len(p.Text)/8 + 2*len(p.Arguments)
	}
	calls := chat.Calls(r.Parts)
	b := appendHead(make([]byte, 0, size), "chat.completion", r, d.now().Unix())
	b = append(b, `"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	if text := joined(r.Parts, chat.Text); text != "" || len(calls) == 0 {
		b = sse.AppendString(b, text)
	} else {
		b = append(b, `null`...)
	}
	b = append(b, `,"refusal":null`...)
	if thought := joined(r.Parts, chat.Reasoning); thought != "" {
		b = append(b, `,"reasoning_content":`...)
		b = sse.AppendString(b, thought)
	}
	if len(calls) > 0 {
		b = append(b, `,"tool_calls":[`...)
		for i, p := range calls {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendCall(b, p, callargs.Text(p.Arguments))
		}
		b = append(b, ']')
	}
	b = append(b, `},"logprobs":null,"finish_reason":"`...)
	b = append(b, finishReason(r.Finish, len(calls) > 0)...)
	b = append(b, `"}],"usage":`...)
	return append(appendUsage(b, r.Usage), '}')
}

// joined is the text of all parts of type t.
func joined(parts []chat.Part, t chat.PartType) string {
	var b []byte
	for _, p := range parts {
		if p.Type == t {
			b = append(b, p.Text...)
		}
	}
	return string(b)
}

// appendHead opens a completion or a chunk of one.
func appendHead(b []byte, object string, r *chat.Reply, created int64) []byte {
	b = append(b, `{"id":`...)
	b = sse.AppendString(b, r.ID)
	b = append(b, `,"object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, created, 10)
	b = append(b, `,"model":`...)
	b = sse.AppendString(b, r.Model)
	return append(b, `,"system_fingerprint":null,`...)
}

// appendCall appends a call of a message.
func appendCall(b []byte, p chat.Part, args string) []byte {
	b = append(b, `{"id":`...)
	b = sse.AppendString(b, p.ID)
	b = append(b, `,"type":"function","function":{"name":`...)
	b = sse.AppendString(b, p.Name)
	b = append(b, `,"arguments":`...)
	b = sse.AppendString(b, args)
	return append(b, `}}`...)
}

// finishReason is tool_calls exactly when there are calls and the reply
// wasn't cut.
func finishReason(f chat.Finish, calls bool) string {
	switch {
	case f == chat.FinishLength:
		return "length"
	case f == chat.FinishRefusal:
		return "content_filter"
	case calls && f != chat.FinishStopSequence:
		return "tool_calls"
	}
	return "stop"
}

func appendUsage(b []byte, u chat.Usage) []byte {
	b = append(b, `{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Input), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Output), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Input+u.Output), 10)
	b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Cached), 10)
	return append(b, `}}`...)
}
