package formats_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

// overBytes is a format behind its byte form, as a transport serves it.
func overBytes(t testing.TB, name string) (format.Format, component.Component, any) {
	t.Helper()
	for _, c := range component.Registered() {
		if c.Kind != component.Format || c.Name != name {
			continue
		}
		instance, err := c.Open(t.Context(), nil)
		require.NoError(t, err)
		f, err := format.Remote(t.Context(), func(ctx context.Context, method string, request []byte) ([]byte, error) {
			return c.Call(ctx, instance, method, doc.Bytes(request))
		})
		require.NoError(t, err)
		return f, c, instance
	}
	require.Fail(t, "no format "+name)
	return nil, component.Component{}, nil
}

// Behind the byte form a format parses and renders as it does directly. Ids
// are its own there, and are left out of the comparison.
func TestByteFormIsTheSame(t *testing.T) {
	withoutIDs := func(events []format.Event) []format.Event {
		for i := range events {
			events[i].ID = ""
		}
		return events
	}
	for _, c := range readCases(t) {
		direct := lookup(t, c.Format)
		if direct == nil {
			continue
		}
		remote, _, _ := overBytes(t, c.Format)
		assert.Equal(t, direct.Markers(), remote.Markers())
		o := format.ParseOptions{Tools: c.Tools, State: format.State{ReasoningOpen: c.ReasoningOpen}}
		want, err := cases.Parse(t.Context(), direct, o, []string{c.Text})
		require.NoError(t, err)
		got, err := cases.Parse(t.Context(), remote, o, cases.Bytes(c.Text))
		require.NoError(t, err)
		assert.Equal(t, withoutIDs(format.Join(want)), withoutIDs(format.Join(got)), c.ID)
	}
	chat := readChat(t, "testdata/chats/tool_results.json")
	for _, name := range names(t) {
		remote, _, _ := overBytes(t, name)
		want, err := open(t, name).Render(t.Context(), &format.RenderRequest{Chat: chat})
		require.NoError(t, err)
		got, err := remote.Render(t.Context(), &format.RenderRequest{Chat: chat})
		require.NoError(t, err)
		assert.Equal(t, want, got)
		want, err = open(t, name).Tail(t.Context(), &format.RenderRequest{Chat: chat}, 1, format.EndedLength)
		require.NoError(t, err)
		got, err = remote.Tail(t.Context(), &format.RenderRequest{Chat: chat}, 1, format.EndedLength)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

// Streams are told apart, end when they are closed, and a strange method or
// handle is an error.
func TestStreamsOfTheByteForm(t *testing.T) {
	remote, c, instance := overBytes(t, "hermes")
	o := &format.ParseOptions{Tools: tool("now", `{}`)}
	one, err := remote.Open(t.Context(), o)
	require.NoError(t, err)
	two, err := remote.Open(t.Context(), o)
	require.NoError(t, err)
	one.Feed(nil, []byte("<tool_call>{\"name\": \"now\""))
	assert.Equal(t, "plain", two.Finish(two.Feed(nil, []byte("plain")))[0].Text)
	assert.Len(t, format.Collect(one.Finish(one.Feed(nil, []byte("}")))).Calls, 1)
	require.NoError(t, two.Close())
	assert.Empty(t, two.Feed(nil, []byte("x")))
	assert.ErrorContains(t, two.Err(), "no open stream")

	_, err = c.Call(t.Context(), instance, "format_fold", doc.Bytes(`{}`))
	assert.ErrorContains(t, err, "format_fold")
	_, err = c.Call(t.Context(), instance, format.MethodRender, doc.Bytes(`{`))
	assert.ErrorContains(t, err, "render request")
	require.NoError(t, component.Close(instance))
	one.Feed(nil, []byte("x"))
	assert.Error(t, one.Err())
}

// A transport that dies is told by Err, once and for all.
func TestTransportThatDies(t *testing.T) {
	alive := true
	f, err := format.Remote(t.Context(), func(_ context.Context, method string, _ []byte) ([]byte, error) {
		switch {
		case !alive:
			return nil, errors.New("gone")
		case method == format.MethodMarkers:
			return []byte(`["a"]`), nil
		}
		return []byte(`{"stream":"1"}`), nil
	})
	require.NoError(t, err)
	p, err := f.Open(t.Context(), &format.ParseOptions{})
	require.NoError(t, err)
	alive = false
	assert.Empty(t, p.Finish(p.Feed(nil, []byte("x"))))
	assert.ErrorContains(t, p.Err(), "gone")
}

func TestEventJSON(t *testing.T) {
	for _, e := range []format.Event{
		{Kind: format.Content, Text: "x", Span: format.Span{Start: 1, End: 2}},
		{Kind: format.CallStart, Index: 0, ID: "a", Name: "b"},
		{Kind: format.CallEnd, Index: 3, Incomplete: true, Span: format.Span{Start: 0, End: 9}},
		{Kind: format.Warning, Text: "mended_json"},
	} {
		b, err := json.Marshal(e)
		require.NoError(t, err)
		var back format.Event
		require.NoError(t, json.Unmarshal(b, &back))
		assert.Equal(t, e, back, string(b))
	}
	var e format.Event
	assert.Error(t, json.Unmarshal([]byte(`{"kind":"tea"}`), &e))
}
