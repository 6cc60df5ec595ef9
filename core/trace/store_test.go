package trace

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

func openStore(t testing.TB, o StoreOptions) (*Store, string) {
	path := filepath.Join(t.TempDir(), "trace", "penstock.db")
	s, err := Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s, path
}

// maker makes values at random, with what is hard to keep: text that isn't
// UTF-8, numbers without a short form, absent and empty fields.
type maker struct{ *rand.Rand }

func (m maker) value(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(m.Int64N(1<<33), m.Int64N(1e9)).UTC()))
		return
	case json.RawMessage:
		if m.IntN(3) > 0 {
			v.SetBytes([]byte(m.json()))
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(m.text())
		if v.Type() != reflect.TypeFor[string]() {
			v.SetString("word") // one of a fixed set, such as a role
		}
	case reflect.Bool:
		v.SetBool(m.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(int32(m.Uint32())))
	case reflect.Float64:
		v.SetFloat(m.NormFloat64() * math.Pow(10, float64(m.IntN(40)-20)))
	case reflect.Uint8:
		v.SetUint(uint64(m.IntN(256)))
	case reflect.Pointer:
		if m.IntN(2) == 0 && depth < 6 {
			v.Set(reflect.New(v.Type().Elem()))
			if m.IntN(4) > 0 {
				m.value(v.Elem(), depth+1)
			}
		}
	case reflect.Slice:
		if n := m.IntN(4); n > 0 && depth < 6 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				m.value(v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		if n := m.IntN(3); n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				k, x := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				m.value(k, depth+1)
				m.value(x, depth+1)
				v.SetMapIndex(k, x)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			m.value(v.Field(i), depth+1)
		}
	}
}

func (m maker) text() string {
	samples := []string{"", "a", "<tool_call>&\u2028", "\xff\xfe", "\x00", "\x00YQ", "é\r\n\t", "日本語", strings.Repeat("long ", 300), "\xe6\x97"}
	return samples[m.IntN(len(samples))] + samples[m.IntN(len(samples))]
}

func (m maker) json() string {
	samples := []string{`{}`, `{"b": 1,  "a":null}`, `{"n":12345678901234567890.10}`, `"\u00e9\ud800"`, "[1 ,\n2]", `{"x":"` + strings.Repeat("y", 800) + `"}`}
	return samples[m.IntN(len(samples))]
}

func (m maker) call(session string, seq int) *Call {
	c := &Call{}
	m.value(reflect.ValueOf(c).Elem(), 0)
	c.Session, c.Seq = session, seq
	c.ID = fmt.Sprintf("%s.%d", session, seq)
	c.Lineage, c.Kind = session+"/main0", Main
	c.Delivered = false
	c.Logprobs = nil
	if m.IntN(2) == 0 && len(c.SampledIDs) > 0 {
		c.Logprobs = make([]float64, len(c.SampledIDs))
		for i := range c.Logprobs {
			c.Logprobs[i] = -m.ExpFloat64()
		}
		c.Logprobs[0] = math.NaN()
	}
	if c.Chat != nil {
		for i := range c.Chat.Messages {
			if c.Chat.Messages[i].Parts == nil {
				c.Chat.Messages[i].Parts = []chat.Part{{Type: chat.Text, Text: "x"}}
			}
		}
	}
	return c
}

// equalCalls compares calls; NaN is equal to itself here.
func equalCalls(t *testing.T, want, got *Call) {
	t.Helper()
	require.Equal(t, len(want.Logprobs), len(got.Logprobs))
	for i := range want.Logprobs {
		require.Equal(t, math.Float64bits(want.Logprobs[i]), math.Float64bits(got.Logprobs[i]))
	}
	w, g := *want, *got
	w.Logprobs, g.Logprobs = nil, nil
	w.Stored = 0    // is for whoever stores the call
	w.Rendered = "" // is for whoever sees the call before the store, which doesn't keep it
	require.Equal(t, normal(w), normal(g))
}

// normal makes empty slices and maps nil, at any depth.
func normal(c Call) Call {
	v := reflect.ValueOf(&c).Elem()
	clean(v)
	return c
}

func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			clean(v.Elem())
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.SetZero()
		}
		for i := range v.Len() {
			clean(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				clean(v.Field(i))
			}
		}
	}
}

func TestCallReadsBackAsWritten(t *testing.T) {
	s, path := openStore(t, StoreOptions{})
	ctx := context.Background()
	m := maker{rand.New(rand.NewPCG(1, 2))}
	var want []*Call
	for seq := 1; seq <= 120; seq++ {
		c := m.call("s-1", seq)
		c.Parent = ""
		if seq > 1 && m.IntN(5) > 0 {
			p := want[m.IntN(len(want))]
			if m.IntN(2) == 0 {
				p = want[len(want)-1]
			}
			c.Parent = p.ID
			m.extend(c, p)
		}
		require.NoError(t, s.PutCall(ctx, c))
		assert.Positive(t, c.Stored)
		want = append(want, c)
	}
	again, err := Open(path, StoreOptions{ReadOnly: true})
	require.NoError(t, err)
	defer again.Close()
	for _, store := range []*Store{s, again} {
		got, err := store.Calls(ctx, "s-1")
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i := range want {
			got[i].Lineage, got[i].Kind = want[i].Lineage, want[i].Kind
			equalCalls(t, want[i], got[i])
		}
	}
}

// extend makes c go on where p ended, in all or in part.
func (m maker) extend(c, p *Call) {
	switch m.IntN(3) {
	case 0:
		c.PromptIDs = append(append(append([]int32{}, p.PromptIDs...), p.SampledIDs...), c.PromptIDs...)
		c.Prompt = p.Prompt + p.Raw + c.Prompt
		c.Messages = append(append([]json.RawMessage{}, p.Messages...), c.Messages...)
	case 1:
		for range 5000 {
			c.PromptIDs = append(c.PromptIDs, int32(m.IntN(3e5)))
		}
		c.Prompt = strings.Repeat(m.text(), 1000)
	default:
		c.PromptIDs = append(append([]int32{}, p.PromptIDs...), 7)
	}
	if c.Chat != nil && p.Chat != nil {
		c.Chat.Messages = append(append([]chat.Message{}, p.Chat.Messages...), c.Chat.Messages...)
	}
}

func TestInvalidCallKeepsItsBody(t *testing.T) {
	s, _ := openStore(t, StoreOptions{})
	ctx := context.Background()
	c := &Call{ID: "s-1.1", Session: "s-1", Seq: 1, Body: []byte("{\"messages\": \xff not JSON"), Status: CallInvalid,
		Error: &Problem{Kind: "invalid", Message: "it is no JSON"}}
	require.NoError(t, s.PutCall(ctx, c))
	require.NoError(t, s.SetDelivered(ctx, c.ID))
	got, err := s.Call(ctx, c.ID)
	require.NoError(t, err)
	assert.Equal(t, c.Body, got.Body)
	assert.Equal(t, c.Error, got.Error)
	assert.True(t, got.Delivered)
	_, err = s.Call(ctx, "s-1.2")
	assert.ErrorIs(t, err, ErrNotFound)
	assert.ErrorIs(t, s.SetDelivered(ctx, "s-1.2"), ErrNotFound)
	assert.Error(t, s.PutCall(ctx, c), "a call is stored once")
}

func TestManyWritersAndReaders(t *testing.T) {
	s, path := openStore(t, StoreOptions{})
	reader, err := Open(path, StoreOptions{ReadOnly: true})
	require.NoError(t, err)
	defer reader.Close()
	assert.ErrorIs(t, reader.PutMeta(context.Background(), "k", nil), ErrReadOnly)
	ctx := context.Background()
	const sessions, calls = 6, 12
	var wg sync.WaitGroup
	for i := range sessions {
		id := fmt.Sprintf("s-%d", i)
		wg.Go(func() {
			for seq := 1; seq <= calls; seq++ {
				c := talk(id, seq)
				if assert.NoError(t, s.PutCall(ctx, c)) {
					got, err := reader.Calls(ctx, id)
					assert.NoError(t, err)
					assert.Len(t, got, seq, "what is acknowledged is there")
				}
			}
		})
	}
	wg.Wait()
}

// talk is call seq of a conversation that grows by two messages a call.
func talk(session string, seq int) *Call {
	c := &Call{ID: fmt.Sprintf("%s.%d", session, seq), Session: session, Seq: seq, Status: CallOK,
		Lineage: session + "/main0", Kind: Main, Raw: fmt.Sprint("answer ", seq), Finish: "stop",
		Received: time.Unix(1e9, 0).UTC(), Chat: &chat.Conversation{},
		Spans: []format.Span{{Start: 1, End: 2}},
	}
	if seq > 1 {
		c.Parent, c.Extends = fmt.Sprintf("%s.%d", session, seq-1), true
	}
	for i := range 2*seq - 1 {
		role, text := chat.User, fmt.Sprint("question ", session, i)
		if i%2 == 1 {
			role, text = chat.Assistant, fmt.Sprint("answer ", (i+1)/2)
		}
		m := chat.Message{Role: role, Parts: []chat.Part{{Type: chat.Text, Text: text}}}
		c.Chat.Messages = append(c.Chat.Messages, m)
		c.Messages = append(c.Messages, json.RawMessage(fmt.Sprintf(`{"role":%q,"content":%q}`, role, text)))
		for _, b := range []byte(text) {
			c.PromptIDs = append(c.PromptIDs, int32(b))
		}
	}
	for _, b := range []byte(c.Raw) {
		c.SampledIDs = append(c.SampledIDs, int32(b))
		c.Logprobs = append(c.Logprobs, -float64(b)/7)
	}
	return c
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	s, path := openStore(t, StoreOptions{})
	require.NoError(t, s.PutCall(context.Background(), talk("s-1", 1)))
	files, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	require.Len(t, files, 3, "database, WAL and its index")
	for _, f := range files {
		info, err := os.Stat(f)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), f)
	}
}

func TestOpenRefuses(t *testing.T) {
	s, path := openStore(t, StoreOptions{Durability: Fsync})
	require.NoError(t, s.write(context.Background(), func(t *tx) error {
		_, err := t.conn.ExecContext(context.Background(), "PRAGMA user_version = 99")
		return err
	}))
	for _, readOnly := range []bool{true, false} {
		_, err := Open(path, StoreOptions{ReadOnly: readOnly})
		assert.ErrorContains(t, err, "a newer penstock wrote it: its schema is 99")
	}
	_, err := Open(filepath.Join(t.TempDir(), "none.db"), StoreOptions{ReadOnly: true})
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(filepath.Join(t.TempDir(), "x.db"), StoreOptions{Durability: "maybe"})
	assert.ErrorContains(t, err, `durability "maybe"`)
	garbage := filepath.Join(t.TempDir(), "garbage.db")
	require.NoError(t, os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 500)), 0o600))
	_, err = Open(garbage, StoreOptions{})
	assert.ErrorContains(t, err, "file is not a database")
}

func TestClosedStoreIsOneFileAndRefusesWrites(t *testing.T) {
	s, path := openStore(t, StoreOptions{})
	require.NoError(t, s.PutCall(context.Background(), talk("s-1", 1)))
	_, err := s.Calls(context.Background(), "s-1")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	files, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	assert.Equal(t, []string{path}, files)
	assert.ErrorIs(t, s.PutMeta(context.Background(), "k", nil), ErrClosed)
}
