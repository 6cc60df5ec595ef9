package gemini

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// contents collects the canonical messages of a request.
type contents struct {
	out []chat.Message
	// open are the calls that have no result yet, in order.
	open  []openCall
	calls int
}

// openCall is a call with the client's id for it, if it has one, and ours.
type openCall struct{ client, id, name string }

func (c *contents) system(v rawjson.Value) error {
	if v.Kind() == '"' {
		c.out = append(c.out, chat.Message{Role: chat.System, Parts: []chat.Part{{Type: chat.Text, Text: v.Text()}}})
		return nil
	}
	parts := []chat.Part{}
	for i, item := range v.Get("parts").Items() {
		text, err := rawjson.Required(item.Get("text"), "text")
		if err != nil {
			return rawjson.In(rawjson.Index("parts", i), err)
		}
		parts = append(parts, chat.Part{Type: chat.Text, Text: text})
	}
	if len(parts) > 0 {
		c.out = append(c.out, chat.Message{Role: chat.System, Parts: parts})
	}
	return nil
}

// add maps one item of contents. Results cut a user's parts into several
// messages.
func (c *contents) add(v rawjson.Value) error {
	if v.Kind() != '{' {
		return rawjson.Errorf("must be an object")
	}
	role := chat.User
	switch who := v.Get("role"); who.Text() {
	case "model":
		role = chat.Assistant
	case "user", "function", "":
	default:
		return rawjson.In("role", rawjson.Errorf("must be user or model, not %q", who.Text()))
	}
	list := v.Get("parts")
	if list.Given() && list.Kind() != '[' {
		return rawjson.In("parts", rawjson.Errorf("must be a list"))
	}
	parts := []chat.Part{}
	cut := false
	for i, item := range list.Items() {
		p, err := c.part(role, item)
		if err != nil {
			return rawjson.In(rawjson.Index("parts", i), err)
		}
		if p.Type != chat.ToolResult {
			parts = append(parts, p)
			continue
		}
		if len(parts) > 0 {
			c.out = append(c.out, chat.Message{Role: role, Parts: parts})
			parts = nil
		}
		cut = true
		c.out = append(c.out, chat.Message{Role: chat.ToolRole, Parts: []chat.Part{p}})
	}
	if len(parts) > 0 || !cut {
		c.out = append(c.out, chat.Message{Role: role, Parts: parts})
	}
	return nil
}

// part maps one part. What it is shows in which field it has.
func (c *contents) part(role chat.Role, v rawjson.Value) (p chat.Part, err error) {
	if v.Kind() != '{' {
		return p, rawjson.Errorf("must be an object")
	}
	var data rawjson.Value
	kind, thought := "", false
	for name, f := range v.Fields() {
		switch key := string(name); key {
		case "thought":
			thought = f.Kind() == 't' && string(f.Raw()) == "true"
		case "thoughtSignature", "thought_signature":
			p.Signature = f.Text()
		case "videoMetadata", "video_metadata", "partMetadata", "mediaResolution":
		default:
			if kind != "" {
				return p, rawjson.Errorf("has both %s and %s", kind, key)
			}
			kind, data = key, f
		}
	}
	switch kind {
	case "text":
		p.Type = chat.Text
		if thought {
			p.Type = chat.Reasoning
		}
		p.Text, err = data.Str()
	case "inlineData", "inline_data":
		p, err = media(data, "data")
	case "fileData", "file_data":
		p, err = media(data, "fileUri")
	case "functionCall", "function_call":
		kind = "functionCall"
		if role != chat.Assistant {
			return p, rawjson.Errorf("a functionCall can only be in content of the model")
		}
		err = c.call(&p, data)
	case "functionResponse", "function_response":
		kind = "functionResponse"
		if role == chat.Assistant {
			return p, rawjson.Errorf("a functionResponse can't be in content of the model")
		}
		p, err = c.result(data)
	case "":
		return p, rawjson.Errorf("has no data")
	default:
		return p, rawjson.Errorf("a part with %s can't be mapped", kind)
	}
	if err != nil {
		return p, rawjson.In(kind, err)
	}
	if p.Type == chat.Image && role == chat.Assistant {
		return p, rawjson.Errorf("%s can't be in content of the model", kind)
	}
	return p, nil
}

// media maps an image; other media have no place.
func media(v rawjson.Value, field string) (p chat.Part, err error) {
	p.Type = chat.Image
	if p.MediaType, err = rawjson.Required(either(v, "mimeType", "mime_type"), "mimeType"); err != nil {
		return p, err
	}
	if !strings.HasPrefix(p.MediaType, "image/") {
		return p, rawjson.Errorf("media of type %q can't be mapped", p.MediaType)
	}
	if field == "data" {
		p.Data, err = rawjson.Required(v.Get("data"), "data")
	} else {
		p.URL, err = rawjson.Required(either(v, "fileUri", "file_uri"), field)
	}
	return p, err
}

func (c *contents) call(p *chat.Part, v rawjson.Value) (err error) {
	p.Type = chat.ToolCall
	if p.Name, err = rawjson.Required(v.Get("name"), "name"); err != nil {
		return err
	}
	c.calls++
	open := openCall{client: v.Get("id").Text(), name: p.Name}
	if id, ours := unmark(p.Signature); ours {
		p.ID, p.Signature = id, ""
	} else if p.ID = open.client; p.ID == "" {
		p.ID = "call_" + strconv.Itoa(c.calls)
	}
	open.id = p.ID
	c.open = append(c.open, open)
	switch args := v.Get("args"); args.Kind() {
	case 0, 'n':
		p.Arguments = json.RawMessage(`{}`)
	case '{':
		p.Arguments = args.Raw()
		if raw := args.Get(rawKey); raw.Kind() == '"' {
			p.Arguments, p.ArgumentsRaw = unwrapRaw(raw.Text())
		}
	default:
		return rawjson.In("args", rawjson.Errorf("must be an object"))
	}
	return nil
}

// unwrapRaw undoes appendArgs for arguments that aren't an object.
func unwrapRaw(text string) (args json.RawMessage, raw bool) {
	b := []byte(text)
	if v := rawjson.Of(b); v.Kind() != '"' && v.Kind() != '{' && rawjson.Valid(b, maxDepth) {
		return b, false
	}
	return sse.AppendString(nil, text), true
}

// result maps a functionResponse.
func (c *contents) result(v rawjson.Value) (p chat.Part, err error) {
	p.Type = chat.ToolResult
	if p.Name, err = rawjson.Required(v.Get("name"), "name"); err != nil {
		return p, err
	}
	p.ID = c.answered(v.Get("id").Text(), p.Name)
	response := v.Get("response")
	if response.Given() && response.Kind() != '{' {
		return p, rawjson.In("response", rawjson.Errorf("must be an object"))
	}
	text := string(response.Raw())
	n := 0
	for name, f := range response.Fields() {
		if n++; n > 1 {
			text, p.IsError = string(response.Raw()), false
			break
		}
		if f.Kind() == '"' && (string(name) == "output" || string(name) == "error") {
			text, p.IsError = f.Text(), string(name) == "error"
		}
	}
	if response.Given() {
		p.Content = []chat.Part{{Type: chat.Text, Text: text}}
	}
	for i, item := range v.Get("parts").Items() {
		image, err := media(either(item, "inlineData", "inline_data"), "data")
		if err != nil {
			return p, rawjson.In(rawjson.Index("parts", i), err)
		}
		p.Content = append(p.Content, image)
	}
	return p, nil
}

// answered is our id of the call that a result answers, and closes the call.
func (c *contents) answered(client, name string) string {
	for pass := range 2 {
		for i, o := range c.open {
			byID := client != "" && o.client == client
			if byID || pass == 1 && o.name == name && (client == "" || o.client == "") {
				c.open = append(c.open[:i:i], c.open[i+1:]...)
				return o.id
			}
		}
	}
	return client
}
