package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

func transport() *http.Transport {
	return &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, DisableCompression: true}
}

// serveProxy is the floor of a gateway: bytes in, bytes out.
func serveProxy(backend string) (ready, error) {
	to, err := url.Parse(backend)
	if err != nil {
		return ready{}, err
	}
	p := &httputil.ReverseProxy{
		FlushInterval: -1, Transport: transport(),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.Path = "/v1/chat/completions"
		},
	}
	at, err := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Else the server closes a body whose end the proxy is yet to read
		// when the answer is there already.
		_ = http.NewResponseController(w).EnableFullDuplex()
		p.ServeHTTP(w, r)
	}))
	return ready{URL: at}, err
}

// What follows is the floor of a gateway that translates: Messages in, Chat
// Completions out, with typed structs of the standard library. It checks
// nothing and records nothing.
type (
	inBlock struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		ToolUseID string          `json:"tool_use_id"`
		Content   json.RawMessage `json:"content"`
	}
	inRequest struct {
		Model     string          `json:"model"`
		MaxTokens int             `json:"max_tokens"`
		Stream    bool            `json:"stream"`
		System    json.RawMessage `json:"system"`
		Messages  []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
	}
	outFunction struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
	outCall struct {
		Index    int         `json:"index"`
		ID       string      `json:"id,omitempty"`
		Type     string      `json:"type,omitempty"`
		Function outFunction `json:"function"`
	}
	outMessage struct {
		Role       string    `json:"role"`
		Content    string    `json:"content"`
		ToolCalls  []outCall `json:"tool_calls,omitempty"`
		ToolCallID string    `json:"tool_call_id,omitempty"`
	}
	outDefinition struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	outTool struct {
		Type     string        `json:"type"`
		Function outDefinition `json:"function"`
	}
	outRequest struct {
		Model         string          `json:"model"`
		MaxTokens     int             `json:"max_tokens"`
		Stream        bool            `json:"stream"`
		StreamOptions map[string]bool `json:"stream_options,omitempty"`
		Messages      []outMessage    `json:"messages"`
		Tools         []outTool       `json:"tools,omitempty"`
	}
	outChunk struct {
		Choices []struct {
			Delta        outMessage `json:"delta"`
			FinishReason *string    `json:"finish_reason"`
		} `json:"choices"`
		Usage *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
	}
)

func blocksOf(raw json.RawMessage) (out []inBlock) {
	if len(raw) > 0 && raw[0] == '"' {
		var s string
		_ = json.Unmarshal(raw, &s)
		return []inBlock{{Type: "text", Text: s}}
	}
	_ = json.Unmarshal(raw, &out)
	return out
}

func textOf(raw json.RawMessage) (s string) {
	for _, b := range blocksOf(raw) {
		s += b.Text
	}
	return s
}

func translate(body []byte) ([]byte, error) {
	var in inRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	out := outRequest{Model: in.Model, MaxTokens: in.MaxTokens, Stream: in.Stream, StreamOptions: map[string]bool{"include_usage": true}}
	if len(in.System) > 0 {
		out.Messages = append(out.Messages, outMessage{Role: "system", Content: textOf(in.System)})
	}
	for _, m := range in.Messages {
		message := outMessage{Role: m.Role}
		for _, b := range blocksOf(m.Content) {
			switch b.Type {
			case "text":
				message.Content += b.Text
			case "tool_use":
				message.ToolCalls = append(message.ToolCalls, outCall{Index: len(message.ToolCalls), ID: b.ID, Type: "function", Function: outFunction{b.Name, string(b.Input)}})
			case "tool_result":
				out.Messages = append(out.Messages, outMessage{Role: "tool", ToolCallID: b.ToolUseID, Content: textOf(b.Content)})
			}
		}
		if message.Content != "" || message.ToolCalls != nil {
			out.Messages = append(out.Messages, message)
		}
	}
	for _, t := range in.Tools {
		out.Tools = append(out.Tools, outTool{"function", outDefinition{t.Name, t.Description, t.InputSchema}})
	}
	return json.Marshal(&out)
}

// stopReasons are the Messages words for those of Chat Completions.
var stopReasons = map[string]string{"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}

func serveTranslate(backend string) (ready, error) {
	client := &http.Client{Transport: transport()}
	at, err := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := bytes.NewBuffer(make([]byte, 0, max(int(r.ContentLength)+512, 4096)))
		_, _ = io.Copy(body, r.Body)
		sent, err := translate(body.Bytes())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		res, err := client.Post(backend+"/v1/chat/completions", "application/json", bytes.NewReader(sent))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		(&turning{w: w, index: -1, reason: "end_turn"}).turn(res.Body)
	}))
	return ready{URL: at}, err
}

// turning writes the events of one dialect as those of the other.
type turning struct {
	w      http.ResponseWriter
	buf    []byte
	index  int
	kind   string
	reason string
	used   object
}

func (t *turning) send(kind string, v object) {
	v["type"] = kind
	b, _ := json.Marshal(v)
	t.buf = append(append(append(append(append(t.buf[:0], "event: "...), kind...), "\ndata: "...), b...), "\n\n"...)
	_, _ = t.w.Write(t.buf)
}

func (t *turning) open(kind string, block object) {
	if t.index >= 0 {
		t.send("content_block_stop", object{"index": t.index})
	}
	t.index, t.kind = t.index+1, kind
	t.send("content_block_start", object{"index": t.index, "content_block": block})
}

func (t *turning) turn(from io.Reader) {
	t.w.Header().Set("Content-Type", "text/event-stream")
	t.send("message_start", object{"message": object{"id": "msg_0", "type": "message", "role": "assistant", "model": "mock", "content": []int{}, "usage": object{"input_tokens": 0, "output_tokens": 0}}})
	lines := bufio.NewReaderSize(from, 32<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if data, ok := strings.CutPrefix(string(line), "data: "); ok && !strings.HasPrefix(data, "[DONE]") {
			t.chunk([]byte(data))
			if lines.Buffered() == 0 {
				t.w.(http.Flusher).Flush()
			}
		}
		if err != nil {
			break
		}
	}
	if t.index >= 0 {
		t.send("content_block_stop", object{"index": t.index})
	}
	t.send("message_delta", object{"delta": object{"stop_reason": t.reason, "stop_sequence": nil}, "usage": t.used})
	t.send("message_stop", object{})
}

func (t *turning) chunk(data []byte) {
	var c outChunk
	if json.Unmarshal(data, &c) != nil {
		return
	}
	if c.Usage != nil {
		t.used = object{"input_tokens": c.Usage.Prompt, "output_tokens": c.Usage.Completion}
	}
	for _, choice := range c.Choices {
		if choice.Delta.Content != "" {
			if t.kind != "text" {
				t.open("text", object{"type": "text", "text": ""})
			}
			t.send("content_block_delta", object{"index": t.index, "delta": object{"type": "text_delta", "text": choice.Delta.Content}})
		}
		for _, call := range choice.Delta.ToolCalls {
			if call.ID != "" {
				t.open(call.ID, object{"type": "tool_use", "id": call.ID, "name": call.Function.Name, "input": object{}})
			}
			t.send("content_block_delta", object{"index": t.index, "delta": object{"type": "input_json_delta", "partial_json": call.Function.Arguments}})
		}
		if choice.FinishReason != nil {
			t.reason = stopReasons[*choice.FinishReason]
		}
	}
}
