package gemini

import (
	"strconv"

	"github.com/penstock-dev/penstock/core/wire/callargs"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// Reply implements wire.Dialect. Empty texts have no part.
func (dialect) Reply(r *chat.Reply) []byte {
	b := append([]byte(nil), `{"candidates":[{"content":{"role":"model","parts":[`...)
	n := 0
	for _, p := range r.Parts {
		if p.Type != chat.ToolCall && p.Text == "" && p.Signature == "" {
			continue
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = appendPart(b, p)
	}
	b = append(b, `]},"finishReason":"`...)
	b = append(b, finishReason(r.Finish)...)
	b = append(b, `","index":0}],"usageMetadata":`...)
	b = appendUsage(b, r.Usage)
	return append(appendIdentity(b, r), '}')
}

// appendPart appends a part of a reply or of a history.
func appendPart(b []byte, p chat.Part) []byte {
	signature := p.Signature
	switch p.Type {
	case chat.ToolCall:
		b = append(b, `{"functionCall":{"id":`...)
		b = sse.AppendString(b, p.ID)
		b = append(b, `,"name":`...)
		b = sse.AppendString(b, p.Name)
		b = append(b, `,"args":`...)
		b = append(appendArgs(b, p.Arguments), '}')
		if signature == "" {
			signature = mark(p.ID)
		}
	case chat.Reasoning:
		b = append(b, `{"thought":true,"text":`...)
		b = sse.AppendString(b, p.Text)
	default:
		b = append(b, `{"text":`...)
		b = sse.AppendString(b, p.Text)
	}
	if signature != "" {
		b = append(b, `,"thoughtSignature":`...)
		b = sse.AppendString(b, signature)
	}
	return append(b, '}')
}

// appendArgs appends arguments, which must be an object here.
func appendArgs(b, args []byte) []byte {
	text := callargs.Text(args)
	if v := rawjson.Of([]byte(text)); v.Kind() == '{' && rawjson.Valid([]byte(text), maxDepth) {
		return append(b, v.Raw()...)
	}
	b = append(b, `{"`+rawKey+`":`...)
	return append(sse.AppendString(b, text), '}')
}

func finishReason(f chat.Finish) string {
	switch f {
	case chat.FinishLength:
		return "MAX_TOKENS"
	case chat.FinishRefusal:
		return "SAFETY"
	}
	return "STOP"
}

func appendUsage(b []byte, u chat.Usage) []byte {
	b = append(b, `{"promptTokenCount":`...)
	b = strconv.AppendInt(b, int64(u.Input), 10)
	b = append(b, `,"candidatesTokenCount":`...)
	b = strconv.AppendInt(b, int64(u.Output), 10)
	b = append(b, `,"totalTokenCount":`...)
	b = strconv.AppendInt(b, int64(u.Input+u.Output), 10)
	b = append(b, `,"cachedContentTokenCount":`...)
	b = strconv.AppendInt(b, int64(u.Cached), 10)
	return append(b, '}')
}

func appendIdentity(b []byte, r *chat.Reply) []byte {
	b = append(b, `,"modelVersion":`...)
	b = sse.AppendString(b, r.Model)
	b = append(b, `,"responseId":`...)
	return sse.AppendString(b, r.ID)
}
