package redact

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

const known = "known-s3cret-value"

// fill sets every text of a value, one at a time, and calls check after each.
// Where JSON goes, it is a string of JSON.
func fill(t *testing.T, path string, v reflect.Value, check func(path string)) {
	switch {
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{"a":["x ` + known + `"]}`))
		check(path)
		v.SetZero()
	case v.Kind() == reflect.String:
		v.SetString("x " + known + " y")
		check(path)
		v.SetString("")
	case v.Type() == reflect.TypeFor[[]byte]():
		v.SetBytes([]byte("x " + known))
		check(path)
		v.SetZero()
	case v.Type() == reflect.TypeFor[time.Time]():
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, path+"."+v.Type().Field(i).Name, v.Field(i), check)
			}
		}
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() >= reflect.Bool && v.Type().Elem().Kind() <= reflect.Float64:
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, path, v.Elem(), check)
		v.SetZero()
	case v.Kind() == reflect.Slice && v.Type().Elem() == reflect.TypeFor[chat.Part]() && strings.Count(path, "Content") > 1:
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, path+"[1]", v.Index(1), check)
		v.SetZero()
	case v.Kind() == reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"x-other": "x " + known}))
		check(path)
		v.SetZero()
	}
}

// TestNoFieldOfACallIsLeftOut puts a secret into every text of a record. A
// field that is new in trace.Call has to be redacted too.
func TestNoFieldOfACallIsLeftOut(t *testing.T) {
	r := New(Options{Values: []string{known}})
	ours := map[string]bool{} // what penstock itself writes
	for _, f := range []string{
		"ID", "Session", "Dialect", "ModelEntry", "ModelServed", "Engine", "Format", "Template", "Capture", "Tokenizer",
		"Parent", "Lineage", "Kind", "Fork", "Replays", "Status", "Rendered", "Redactions", "CostBasis",
	} {
		ours["."+f] = true
	}
	var c trace.Call
	seen := 0
	fill(t, "", reflect.ValueOf(&c).Elem(), func(path string) {
		top, _, _ := strings.Cut(path[1:], ".")
		top, _, _ = strings.Cut(top, "[")
		switch last := path[strings.LastIndexByte(path, '.'):]; {
		case ours["."+top], last == ".Role", last == ".Mode", last == ".Type" && !strings.Contains(path, "Tools"), last == ".Point", last == ".Action",
			last == ".Finish" && path != ".Finish":
			return
		}
		seen++
		before, err := json.Marshal(&c)
		require.NoError(t, err)
		out := r.Call(&c)
		require.NotSame(t, &c, out, path)
		assert.NotEmpty(t, out.Redactions, path)
		assert.NotContains(t, dump(out), known, path)
		after, err := json.Marshal(&c)
		require.NoError(t, err)
		assert.Equal(t, string(before), string(after), "%s: the call itself changed", path)
	})
	assert.Greater(t, seen, 60)
}

// dump shows all of a value, unlike JSON.
func dump(v any) string {
	var b strings.Builder
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			b.WriteString(v.String() + "\n")
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i))
			}
		case reflect.Map:
			for _, k := range v.MapKeys() {
				walk(v.MapIndex(k))
			}
		case reflect.Slice:
			if v.Type().Elem().Kind() == reflect.Uint8 {
				b.WriteString(string(v.Bytes()) + "\n")
				return
			}
			for i := range v.Len() {
				walk(v.Index(i))
			}
		}
	}
	walk(reflect.ValueOf(v))
	return b.String()
}

func ids(text string) []int32 {
	out := make([]int32, len(text))
	for i := range text {
		out[i] = int32(text[i])
	}
	return out
}

func TestTokensThatSpellASecretAreGone(t *testing.T) {
	r := New(Options{Values: []string{known}})
	raw := "a " + known + " <call> b"
	c := &trace.Call{
		ID: "s-1.1", Rendered: "prompt", PromptIDs: ids("prompt"), SampledIDs: ids(raw), Logprobs: make([]float64, len(raw)), Raw: raw,
		Spans:    []format.Span{{Start: strings.Index(raw, "<"), End: strings.Index(raw, ">") + 1}},
		Warnings: []trace.Warning{{Kind: "w", Span: format.Span{Start: len(raw) - 1, End: len(raw)}}},
	}
	out := r.Call(c)
	assert.Equal(t, "a [redacted:value] <call> b", out.Raw)
	assert.Equal(t, "<call>", out.Raw[out.Spans[0].Start:out.Spans[0].End])
	assert.Equal(t, "b", out.Raw[out.Warnings[0].Span.Start:out.Warnings[0].Span.End])
	assert.Equal(t, trace.WarnRedacted, out.Warnings[1].Kind)
	assert.Nil(t, out.PromptIDs)
	assert.Nil(t, out.SampledIDs)
	assert.Nil(t, out.Logprobs)
	assert.Equal(t, []trace.Redaction{{Field: "/raw", Offset: 2, Length: 16, Kind: "value"}}, out.Redactions)
	assert.Len(t, c.SampledIDs, len(raw), "the call itself goes on as it is")

	prompt := &trace.Call{Rendered: "has " + known, PromptIDs: ids("has " + known), SampledIDs: ids("x"), Raw: "x"}
	out = r.Call(prompt)
	assert.Nil(t, out.PromptIDs)
	assert.Len(t, out.Warnings, 1)

	body := &trace.Call{Rendered: "clean", PromptIDs: ids("clean"), SampledIDs: ids("x"), Raw: "x", Envelope: json.RawMessage(`{"metadata":{"user_id":"` + known + `"}}`)}
	out = r.Call(body)
	assert.Equal(t, ids("clean"), out.PromptIDs, "what the model never saw costs no ids")
	assert.Empty(t, out.Warnings)
	assert.Equal(t, "/envelope", out.Redactions[0].Field)

	// Without the rendered text the conversation decides.
	unseen := &trace.Call{PromptIDs: ids("?"), Chat: &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: known}}}}}}
	out = r.Call(unseen)
	assert.Nil(t, out.PromptIDs)
	assert.Equal(t, "/chat/messages/0/parts/0/text", out.Redactions[0].Field)
}

func TestSecretHeadersGoWhateverTheyHold(t *testing.T) {
	c := &trace.Call{Headers: map[string]string{"authorization": "Basic x", "user-agent": "agent/1", "x-note": known}}
	out := New(Options{Values: []string{known}}).Call(c)
	assert.Equal(t, map[string]string{"authorization": "[redacted:header]", "user-agent": "agent/1", "x-note": "[redacted:value]"}, out.Headers)
	assert.Equal(t, "Basic x", c.Headers["authorization"])
	require.Len(t, out.Redactions, 2)
	assert.Equal(t, "/headers/authorization", out.Redactions[0].Field)
}

// TestStoreHoldsNoSecret reads back a session whose second turn met a secret.
func TestStoreHoldsNoSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	s, err := trace.Open(path, trace.StoreOptions{})
	require.NoError(t, err)
	defer s.Close()
	calls := Calls(s, New(Options{Values: []string{known}}))
	ctx := t.Context()
	require.NoError(t, calls.PutSession(ctx, &trace.Session{ID: "s-1"}))
	prompt, parent := "", ""
	for i, text := range []string{"hello", "the key is " + known, "go on", "end"} {
		prompt += text + "|"
		msg := func(text string) json.RawMessage { return json.RawMessage(`{"role":"user","content":"` + text + `"}`) }
		c := &trace.Call{
			ID: "s-1." + string(rune('1'+i)), Session: "s-1", Seq: i + 1, Parent: parent, Extends: i > 0, Kind: trace.Main, Lineage: "s-1/main0",
			Messages: []json.RawMessage{msg(prompt)}, Status: trace.CallOK, Rendered: prompt, PromptIDs: ids(prompt), SampledIDs: ids("ok|"), Raw: "ok|",
			Chat: &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: prompt}}}}},
		}
		parent, prompt = c.ID, prompt+"ok|"
		require.NoError(t, calls.PutCall(ctx, c))
		require.NoError(t, calls.SetDelivered(ctx, c.ID))
	}
	got, err := calls.Calls(ctx, "s-1")
	require.NoError(t, err)
	require.Len(t, got, 4)
	assert.Equal(t, ids("hello|"), got[0].PromptIDs)
	for _, c := range got[1:] {
		assert.Empty(t, c.PromptIDs)
		assert.Empty(t, c.SampledIDs)
		require.Len(t, c.Warnings, 1)
		assert.Equal(t, trace.WarnRedacted, c.Warnings[0].Kind)
		assert.NotContains(t, dump(c), known)
		for _, red := range c.Redactions {
			if red.Field == "/messages/0" {
				assert.Equal(t, Mark(red.Kind), string(c.Messages[0][red.Offset:red.Offset+red.Length]))
			}
		}
	}
	assert.Same(t, s, Calls(s, nil))
}

// BenchmarkCall is the cost of a call in which there is nothing to find.
func BenchmarkCall(b *testing.B) {
	text := string(sample(b)[:1000])
	c := &trace.Call{Rendered: strings.Repeat(text, 120), Raw: text, Chat: &chat.Conversation{}}
	for range 120 {
		c.Chat.Messages = append(c.Chat.Messages, chat.Message{Parts: []chat.Part{{Text: text}}})
		c.Messages = append(c.Messages, json.RawMessage(jsonForms(text)[0]))
	}
	r := New(Options{Values: secrets(10)})
	b.ReportAllocs()
	for b.Loop() {
		if r.Call(c) != c {
			b.Fatal("the sample holds a secret")
		}
	}
}
