package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/anthropic"
	"github.com/penstock-dev/penstock/core/upstream/openai"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// told is a streamed reply of a provider, event by event: reasoning, text and a
// call. says is what each event adds to these.
type told struct {
	events, says []string
	finish       int    // the event that gives the reason to stop
	whole        string // the same as one body
}

func (p *told) add(event, says string) {
	p.events, p.says = append(p.events, event), append(p.says, says)
}

func (p *told) text() string { return strings.Join(p.events, "") }

// messagesReply is one of Anthropic's.
func messagesReply() *told {
	p := &told{}
	add := func(kind, fields, says string) {
		p.add(fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, fields), says)
	}
	add("message_start", `,"message":{"id":"msg_theirs","type":"message","role":"assistant","model":"theirs","content":[],"stop_reason":null,"usage":{"input_tokens":7,"output_tokens":1}}`, "")
	add("ping", "", "")
	add("content_block_start", `,"index":0,"content_block":{"type":"thinking","thinking":"","signature":""}`, "")
	add("content_block_delta", `,"index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}`, "Hm.")
	add("content_block_delta", `,"index":0,"delta":{"type":"signature_delta","signature":"c2ln"}`, "")
	add("content_block_stop", `,"index":0`, "")
	add("content_block_start", `,"index":1,"content_block":{"type":"text","text":""}`, "")
	add("content_block_delta", `,"index":1,"delta":{"type":"text_delta","text":"one "}`, "one ")
	add("content_block_stop", `,"index":1`, "")
	add("content_block_start", `,"index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"add","input":{}}`, "")
	add("content_block_delta", `,"index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}`, `{"a":`)
	add("content_block_delta", `,"index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}`, "1}")
	add("content_block_stop", `,"index":2`, "")
	p.finish = len(p.events)
	add("message_delta", `,"delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}`, "")
	add("message_stop", "", "")
	p.whole = `{"id":"msg_theirs","type":"message","role":"assistant","model":"theirs","content":[{"type":"thinking","thinking":"Hm.","signature":"c2ln"},` +
		`{"type":"text","text":"one "},{"type":"tool_use","id":"toolu_1","name":"add","input":{"a":1}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":9}}`
	return p
}

// completionsReply is one of OpenAI's.
func completionsReply() *told {
	p := &told{}
	add := func(delta, finish, says string) {
		p.add(`data: {"id":"chatcmpl-theirs","object":"chat.completion.chunk","model":"theirs","choices":[{"index":0,"delta":`+delta+`,"finish_reason":`+finish+"}]}\n\n", says)
	}
	add(`{"role":"assistant","content":""}`, "null", "")
	add(`{"reasoning_content":"Hm."}`, "null", "Hm.")
	add(`{"content":"one "}`, "null", "one ")
	add(`{"tool_calls":[{"index":0,"id":"toolu_1","type":"function","function":{"name":"add","arguments":""}}]}`, "null", "")
	add(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}`, "null", `{"a":`)
	add(`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`, "null", "1}")
	p.finish = len(p.events)
	add(`{}`, `"tool_calls"`, "")
	p.add("data: [DONE]\n\n", "")
	p.whole = `{"id":"chatcmpl-theirs","object":"chat.completion","model":"theirs","choices":[{"index":0,"message":{"role":"assistant","content":"one ","reasoning_content":"Hm.",` +
		`"tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":9}}`
	return p
}

// way is a client of one dialect before a provider of the same or of the other.
type way struct {
	client   spoken
	provider string
	reply    *told
	passed   bool
}

func (w way) String() string { return w.client.name + " to " + w.provider }

func ways() []way {
	var out []way
	for _, d := range dialects[:2] {
		out = append(out, way{d, "anthropic", messagesReply(), d.name == "anthropic"}, way{d, "openaichat", completionsReply(), d.name == "openaichat"})
	}
	return out
}

// before starts a gateway before the provider, which behaves as serve does.
func (w way) before(t *testing.T, stall time.Duration, serve http.HandlerFunc) (*bench, *gateway.Session) {
	t.Helper()
	server := httptest.NewServer(serve)
	var up upstream.Upstream
	var err error
	if w.provider == "anthropic" {
		up, err = anthropic.New(t.Context(), anthropic.Options{BaseURL: server.URL, NoProbe: true, Stall: stall})
	} else {
		up, err = openai.New(t.Context(), openai.Options{Kind: openai.KindOpenAI, BaseURL: server.URL, NoProbe: true, Stall: stall})
	}
	require.NoError(t, err)
	b := start(t, nil, func(_ *gateway.Options, m *gateway.Model) {
		m.Upstream, m.Capture, m.Tokenizer, m.Format, m.FormatName = up, gateway.CaptureText, nil, nil, "upstream"
	})
	s := b.session(t)
	t.Cleanup(func() {
		assert.NoError(t, up.Close())
		server.CloseClientConnections()
		server.Close()
	})
	return b, s
}

// sayings joins what the parts of a record say, in the order of the parts.
func sayings(r *chat.Reply) (out string) {
	if r == nil {
		return ""
	}
	for _, p := range r.Parts {
		args := string(p.Arguments)
		if p.ArgumentsRaw { // they were cut
			_ = json.Unmarshal(p.Arguments, &args)
		} else if args == "{}" {
			args = "" // none had come yet
		}
		out += p.Text + args
	}
	return out
}

// keptOf checks that the record has all of the provider's bytes and words that
// came, save those that would end the reply.
func (w way) keptOf(t *testing.T, at int, a answer, c *trace.Call) {
	t.Helper()
	assert.Equal(t, strings.Join(w.reply.says[:at], ""), sayings(c.Parsed))
	came := strings.Join(w.reply.events[:min(at, w.reply.finish)], "")
	if !w.passed {
		assert.Empty(t, c.RawReply)
		assert.NotContains(t, a.body, "theirs", "it is translated")
		return
	}
	assert.Equal(t, came, string(c.RawReply))
	if a.status == 200 {
		assert.True(t, strings.HasPrefix(a.body, came), "the client got what came as it came: %s", a.body)
	}
}

// TestProviderCutAtEveryEvent: as TestServerCutAtEveryEvent, for replies that are
// passed on and for those that are translated.
func TestProviderCutAtEveryEvent(t *testing.T) {
	for name, end := range map[string]func(http.ResponseWriter, *http.Request){"broken": cutConnection, "ended": nil} {
		for _, w := range ways() {
			for at := range w.reply.events {
				t.Run(fmt.Sprintf("%s/%s/%d", name, w, at), func(t *testing.T) {
					b, s := w.before(t, time.Minute, writing(strings.Join(w.reply.events[:at], ""), end))
					path, body := w.client.request(true)
					a := send(t, s, "POST", path, body)
					c := b.store.only(t)
					if end == nil && w.provider == "openaichat" && at > w.reply.finish { // all but [DONE]
						require.NoError(t, a.err)
						assert.Equal(t, trace.CallOK, c.Status)
						assert.Equal(t, w.passed, !strings.Contains(a.body, w.client.end), "what is passed on has no more than what came")
						assert.Equal(t, "tool_calls", string(c.Served.Finish))
						return
					}
					isCutReply(t, w.client, true, a, c)
					w.keptOf(t, at, a, c)
					assert.False(t, b.store.wasDelivered(c.ID))
				})
			}
		}
	}
}

// TestProviderBodyCut: a body that breaks off anywhere is no reply.
func TestProviderBodyCut(t *testing.T) {
	for _, w := range ways() {
		if !w.passed { // else it is asked for a stream
			continue
		}
		for at := 0; at < len(w.reply.whole); at += 37 {
			for _, declared := range []bool{true, false} { // how long it would be
				b, s := w.before(t, time.Minute, func(rw http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					rw.Header().Set("Content-Type", "application/json")
					if declared {
						rw.Header().Set("Content-Length", fmt.Sprint(len(w.reply.whole)))
					}
					_, _ = io.WriteString(rw, w.reply.whole[:at])
				})
				path, body := w.client.request(false)
				a := send(t, s, "POST", path, body)
				isCutReply(t, w.client, false, a, b.store.only(t))
			}
		}
	}
}

// TestProviderFaults: as TestServerFaults, for replies that are passed on and for
// those that are translated.
func TestProviderFaults(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 64<<10/16)
	refused := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"type":"error","error":{"message":"no such luck","type":"x"}}`)
		}
	}
	silence := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, w := range ways() {
		words := map[string]int{"anthropic": 8, "openaichat": 3}[w.provider] // the events up to the text
		half := strings.Join(w.reply.events[:words], "")
		failing := map[string]string{
			"anthropic":  "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"out of memory\"}}\n\n",
			"openaichat": "data: {\"error\":{\"message\":\"out of memory\",\"code\":529}}\n\n",
		}[w.provider]
		overloaded := map[string]int{"anthropic": 529, "openaichat": 503}[w.client.name]
		for _, c := range []struct {
			name   string
			serve  http.HandlerFunc
			status int    // of the answer; 200 where it had begun
			kind   string // of the record's error, "" for none
			after  string
			at     int // how many events count
		}{
			{"429", refused(429, "Retry-After", "3"), 429, "rate_limited", "3", 0},
			{"429 without Retry-After", refused(429), 429, "rate_limited", "1", 0},
			{"500", refused(500), 502, "upstream", "", 0},
			{"529", refused(529), overloaded, "overloaded", "", 0},
			{"stall ahead of the first event", writing("", silence), 502, "upstream", "", 0},
			{"stall", writing(half, silence), 200, "upstream", "", words},
			{"garbage for an event", writing(half+"data: {\"choices\":[{]\n\n"+w.reply.events[words], nil), 200, "upstream", "", words},
			{"garbage for a stream", writing("\x00\xff\x17 no events\n\n\n", nil), 502, "upstream", "", 0},
			{"an error for an event", writing(half+failing, nil), 200, "overloaded", "", words},
			{"no stream", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>busy</html>") }, 502, "upstream", "", 0},
			{"a line of 64 KB", writing(strings.ReplaceAll(w.reply.text(), "one ", long), nil), 200, "", "", len(w.reply.events)},
		} {
			t.Run(c.name+"/"+w.String(), func(t *testing.T) {
				b, s := w.before(t, patience(c.name), c.serve)
				path, body := w.client.request(true)
				a := send(t, s, "POST", path, body)
				rec := b.store.only(t)
				assert.Equal(t, c.status, a.status, a.body)
				assert.Equal(t, c.status, rec.HTTPStatus)
				assert.Equal(t, c.after, a.header.Get("Retry-After"))
				if c.kind == "" {
					require.NoError(t, a.err)
					assert.Contains(t, a.body, w.client.end)
					assert.Contains(t, a.body, long)
					assert.Equal(t, trace.CallOK, rec.Status)
					assert.Equal(t, long, rec.Served.Parts[1].Text)
					return
				}
				assert.Equal(t, trace.CallError, rec.Status)
				require.NotNil(t, rec.Error)
				assert.Equal(t, c.kind, rec.Error.Kind)
				assert.NotContains(t, a.body, w.client.end)
				w.keptOf(t, c.at, a, rec)
				if a.status != 200 {
					assert.Equal(t, w.client.name == "anthropic", decoded(t, a.body)["type"] == "error", "the shape is that of the dialect")
					return
				}
				assert.Error(t, a.err, "the connection is broken, not ended")
				list := eventsOf(t, a)
				assert.NotEmpty(t, at(list[len(list)-1].data, "error", "message"), "%v", list[len(list)-1])
			})
		}
	}
}

// TestProviderClientLeavesAtEveryEvent: as TestClientLeavesAtEveryEvent, for
// replies that are passed on and for those that are translated.
func TestProviderClientLeavesAtEveryEvent(t *testing.T) {
	for _, w := range ways() {
		for leave := range w.reply.events {
			t.Run(fmt.Sprint(w, "/", leave), func(t *testing.T) {
				left, there := make(chan struct{}), make(chan struct{})
				b, s := w.before(t, time.Minute, func(rw http.ResponseWriter, r *http.Request) {
					writing(strings.Join(w.reply.events[:leave], ""), func(rw http.ResponseWriter, _ *http.Request) {
						close(there)
						<-left
						for _, e := range w.reply.events[leave:] {
							_, _ = io.WriteString(rw, e)
							_ = http.NewResponseController(rw).Flush()
						}
					})(rw, r)
				})
				path, body := w.client.request(true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.BaseURL()+path, strings.NewReader(body))
				require.NoError(t, err)
				r.Header.Set("Content-Type", "application/json")
				got := make(chan string)
				go func() {
					res, err := http.DefaultClient.Do(r)
					if err != nil {
						got <- ""
						return
					}
					text, _ := io.ReadAll(res.Body)
					res.Body.Close()
					got <- string(text)
				}()
				<-there
				cancel()
				seen := <-got
				time.Sleep(20 * time.Millisecond) // until the server has seen it
				close(left)
				c := b.store.only(t)
				assert.NotContains(t, seen, w.client.end)
				assert.Equal(t, trace.CallOK, c.Status, "%+v", c.Error)
				require.NotNil(t, c.Served)
				require.Len(t, c.Served.Parts, 3)
				assert.Equal(t, `Hm.one {"a":1}`, sayings(c.Served))
				assert.Equal(t, chat.FinishToolCalls, c.Served.Finish)
				if w.passed {
					assert.Equal(t, w.reply.text(), string(c.RawReply))
				} else {
					assert.Empty(t, c.RawReply)
				}
				assert.True(t, c.ClientGone)
				assert.False(t, b.store.wasDelivered(c.ID))
			})
		}
	}
}
