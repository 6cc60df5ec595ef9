package responses

import (
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/core/wire/callargs"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// reply is the whole response. Empty text parts have no item.
func (d dialect) reply(tools map[string]form, r *chat.Reply) []byte {
	return appendResponse(nil, r, d.now().Unix(), func(b []byte) []byte {
		return appendOutput(b, tools, r)
	})
}

// appendResponse appends a response that ended, with the items that output
// appends.
func appendResponse(b []byte, r *chat.Reply, created int64, output func(b []byte) []byte) []byte {
	status, details := "completed", "null"
	switch r.Finish {
	case chat.FinishLength:
		status, details = "incomplete", `{"reason":"max_output_tokens"}`
	case chat.FinishRefusal:
		status, details = "incomplete", `{"reason":"content_filter"}`
	}
	b = appendHead(b, r, created, status, "null", details)
	b = append(b, `,"output":[`...)
	b = output(b)
	b = append(b, `],"usage":`...)
	return append(appendUsage(b, r.Usage), '}')
}

// appendHead opens a response: all but output and usage. failure and details
// are JSON.
func appendHead(b []byte, r *chat.Reply, created int64, status, failure, details string) []byte {
	b = append(b, `{"id":`...)
	b = sse.AppendString(b, r.ID)
	b = append(b, `,"object":"response","created_at":`...)
	b = strconv.AppendInt(b, created, 10)
	b = append(b, `,"status":"`...)
	b = append(b, status...)
	b = append(b, `","background":false,"error":`...)
	b = append(b, failure...)
	b = append(b, `,"incomplete_details":`...)
	b = append(b, details...)
	b = append(b, `,"instructions":null,"max_output_tokens":null,"metadata":{},"model":`...)
	b = sse.AppendString(b, r.Model)
	return append(b, `,"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"service_tier":"default","store":false,"temperature":null,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":null,"truncation":"disabled","user":null`...)
}

func appendUsage(b []byte, u chat.Usage) []byte {
	b = append(b, `{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Input), 10)
	b = append(b, `,"input_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Cached), 10)
	b = append(b, `},"output_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Output), 10)
	b = append(b, `,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Input+u.Output), 10)
	return append(b, '}')
}

// appendOutput appends the items of a reply.
func appendOutput(b []byte, tools map[string]form, r *chat.Reply) []byte {
	n := 0
	for _, p := range r.Parts {
		if p.Type == chat.Text && p.Text == "" {
			continue
		}
		if n > 0 {
			b = append(b, ',')
		}
		b = newItem(tools, r.ID, n, p).append(b, true)
		n++
	}
	return b
}

// outItem is an item of the output. text is what streams: the text, the
// reasoning, the arguments or the input.
type outItem struct {
	kind   string
	id     string
	callID string
	form   form
	text   string
	seal   string
}

// newItem makes item n of a reply from a part.
func newItem(tools map[string]form, replyID string, n int, p chat.Part) *outItem {
	it := &outItem{callID: p.ID}
	prefix := ""
	switch p.Type {
	case chat.Reasoning:
		it.kind, prefix, it.text, it.seal = "reasoning", "rs_", sse.Clean(p.Text), p.Signature
		if p.Data != "" {
			it.seal = p.Data
		}
	case chat.ToolCall:
		f, special := tools[p.Name]
		if !special {
			f.name = p.Name
		}
		it.form, it.kind, prefix = f, "function_call", "fc_"
		if f.custom {
			it.kind, prefix, it.text = "custom_tool_call", "ctc_", customInput(p.Arguments)
		} else {
			it.text = callargs.Text(p.Arguments)
		}
	default:
		it.kind, prefix, it.text = "message", "msg_", sse.Clean(p.Text)
	}
	it.id = prefix + strings.TrimPrefix(replyID, "resp_") + "_" + strconv.Itoa(n)
	return it
}

// append appends the item; one that isn't done yet is empty.
func (it *outItem) append(b []byte, done bool) []byte {
	text, status := "", "in_progress"
	if done {
		text, status = it.text, "completed"
	}
	b = append(b, `{"id":`...)
	b = sse.AppendString(b, it.id)
	b = append(b, `,"type":"`...)
	b = append(b, it.kind...)
	b = append(b, '"')
	if it.kind == "reasoning" {
		return append(it.appendReasoning(b, done), '}')
	}
	b = append(b, `,"status":"`...)
	b = append(b, status...)
	b = append(b, '"')
	if it.kind == "message" {
		b = append(b, `,"role":"assistant","content":[`...)
		if done {
			b = appendText(b, text)
		}
		return append(b, `]}`...)
	}
	b = append(b, `,"call_id":`...)
	b = sse.AppendString(b, it.callID)
	b = append(b, `,"name":`...)
	b = sse.AppendString(b, it.form.name)
	if it.form.namespace != "" {
		b = append(b, `,"namespace":`...)
		b = sse.AppendString(b, it.form.namespace)
	}
	if it.form.custom {
		b = append(b, `,"input":`...)
	} else {
		b = append(b, `,"arguments":`...)
	}
	return append(sse.AppendString(b, text), '}')
}

func (it *outItem) appendReasoning(b []byte, done bool) []byte {
	b = append(b, `,"summary":[`...)
	if done && it.text != "" {
		b = appendSummary(b, it.text)
	}
	b = append(b, `],"encrypted_content":`...)
	switch {
	case !done:
		return append(b, `null`...)
	case it.seal != "":
		return sse.AppendString(b, it.seal)
	}
	return sse.AppendString(b, seal(it.text))
}

// appendText appends the part of a message.
func appendText(b []byte, text string) []byte {
	b = append(b, `{"type":"output_text","annotations":[],"logprobs":[],"text":`...)
	return append(sse.AppendString(b, text), '}')
}

// appendSummary appends the part of a reasoning item.
func appendSummary(b []byte, text string) []byte {
	b = append(b, `{"type":"summary_text","text":`...)
	return append(sse.AppendString(b, text), '}')
}
