package trace

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// agentSession makes the calls of a session like a coding agent's: a system
// prompt and tools of 44 KB that all share, and messages of source code, up
// to 120 KB in all after n calls.
func agentSession(session string, n int) []*Call {
	r := rand.New(rand.NewPCG(7, uint64(len(session))))
	words := strings.Fields("func return if err != nil { } := range for the of request context value string int bytes " +
		"append len make map struct type package import test assert require handler writer reader session")
	prose := func(size int) string {
		var b strings.Builder
		for b.Len() < size {
			fmt.Fprintf(&b, "%s%d ", words[r.IntN(len(words))], r.IntN(300))
		}
		return b.String()[:size]
	}
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	var tools []chat.Tool
	var envelope strings.Builder
	fmt.Fprintf(&envelope, `{"model":"m","max_tokens":32000,"stream":true,"system":%s,"messages":[],"tools":[`, quoted(prose(14<<10)))
	for i := range 20 {
		t := chat.Tool{Name: fmt.Sprintf("tool%d", i), Description: prose(1000),
			Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":` + quoted(prose(400)) + `}}}`)}
		t.Raw = json.RawMessage(fmt.Sprintf(`{"name":%q,"description":%s,"input_schema":%s}`, t.Name, quoted(t.Description), t.Parameters))
		tools = append(tools, t)
		if i > 0 {
			envelope.WriteByte(',')
		}
		envelope.Write(t.Raw)
	}
	envelope.WriteString("]}")

	var out []*Call
	var messages []chat.Message
	var raws []json.RawMessage
	var ids []int32
	say := func(role chat.Role, text string) {
		messages = append(messages, chat.Message{Role: role, Parts: []chat.Part{{Type: chat.Text, Text: text}}})
		raws = append(raws, json.RawMessage(fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":%s}]}`, role, quoted(text))))
	}
	tokens := func(n int) {
		for range n {
			ids = append(ids, int32(r.ExpFloat64()*4000))
		}
	}
	step := (76 << 10) / n
	say(chat.User, prose(1000))
	tokens(11000)
	for i := range n {
		c := &Call{ID: fmt.Sprintf("%s.%d", session, i+1), Session: session, Seq: i + 1, Dialect: "anthropic",
			Method: "POST", Path: "/v1/messages", Stream: true, Headers: map[string]string{"User-Agent": "claude-cli/2.1.332 (external, sdk-cli)"},
			Envelope: json.RawMessage(envelope.String()), Messages: append([]json.RawMessage{}, raws...),
			Chat:    &chat.Conversation{Messages: append([]chat.Message{}, messages...), Tools: tools},
			Lineage: session + "/main0", Kind: Main, Extends: i > 0, PromptIDs: append([]int32{}, ids...),
			Status: CallOK, Finish: "stop", Received: time.Unix(1e9, 1).UTC(), Done: time.Unix(1e9, 2).UTC(), Capture: "exact"}
		if i > 0 {
			c.Parent = out[i-1].ID
		}
		before := len(ids)
		tokens(60)
		c.SampledIDs = append([]int32{}, ids[before:]...)
		for range c.SampledIDs {
			c.Logprobs = append(c.Logprobs, float64(float32(-r.ExpFloat64())))
		}
		c.Raw = prose(step / 3)
		c.Parsed = &chat.Reply{Parts: []chat.Part{{Type: chat.Text, Text: c.Raw}}, Finish: chat.FinishStop}
		c.Served = c.Parsed
		say(chat.Assistant, c.Raw)
		say(chat.User, prose(step-step/3))
		tokens(step / 5)
		out = append(out, c)
	}
	return out
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A session of 200 calls that grows to 120 KB: what a record costs.
func TestCostOfARecord(t *testing.T) {
	s, path := openStore(t, StoreOptions{})
	calls := agentSession("s-1", 200)
	ctx := context.Background()
	plain, sent := 0, 0
	for _, c := range calls {
		for _, m := range c.Messages {
			sent += len(m)
		}
		sent += len(c.Envelope)
	}
	for _, c := range []*Call{calls[0], calls[len(calls)-1]} { // calls grow evenly
		b, err := json.Marshal(c)
		require.NoError(t, err)
		plain += len(b) * len(calls) / 2
	}
	start := cpu()
	for _, c := range calls {
		require.NoError(t, s.PutCall(ctx, c))
	}
	used := cpu() - start
	require.NoError(t, s.write(ctx, func(t *tx) error { return nil }))
	size := 0
	for _, f := range []string{path, path + "-wal"} {
		if info, err := os.Stat(f); err == nil {
			size += int(info.Size())
		}
	}
	var bodies, blobs int
	require.NoError(t, s.readers.QueryRow("SELECT (SELECT sum(length(body)) FROM calls), (SELECT sum(length(data)) FROM blobs)").Scan(&bodies, &blobs))
	start = cpu()
	got, err := s.Calls(ctx, "s-1")
	require.NoError(t, err)
	read := cpu() - start
	equalCalls(t, calls[199], got[199])
	n := len(calls)
	t.Logf("%d calls, %d KB of request each on average: %d bytes a record (%d as JSON), %v CPU a record to write, %v to read; file and log %d KB",
		n, sent/n/1024, (bodies+blobs)/n, plain/n, used/time.Duration(n), read/time.Duration(n), size/1024)
	require.Less(t, (bodies+blobs)/n, 8<<10)
}

func BenchmarkPutCall(b *testing.B) {
	for _, durability := range []string{Normal, Fsync} {
		for _, writers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/%d", durability, writers), func(b *testing.B) {
				s, _ := openStore(b, StoreOptions{Durability: durability})
				b.ReportAllocs()
				var next, session atomic.Int64
				var wg sync.WaitGroup
				template := agentSession("s", 30)
				b.ResetTimer()
				for range writers {
					wg.Go(func() {
						for next.Add(1) <= int64(b.N) {
							id := fmt.Sprintf("s-%d", session.Add(1))
							for i, t := range template {
								c := *t
								c.Session, c.ID, c.Lineage = id, fmt.Sprintf("%s.%d", id, i+1), id+"/main0"
								if i > 0 {
									c.Parent = fmt.Sprintf("%s.%d", id, i)
								}
								if err := s.PutCall(context.Background(), &c); err != nil {
									b.Error(err)
								}
								if next.Add(1) > int64(b.N) {
									break
								}
							}
							s.index.forget(id)
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

func BenchmarkLink(b *testing.B) {
	calls := agentSession("s", 150)
	g := NewGraph("s")
	for _, c := range calls {
		g.Add(g.Link(c.Chat), c.Chat, c.Served, Node{Call: c.ID, PromptIDs: c.PromptIDs, SampledIDs: c.SampledIDs})
	}
	last := calls[149].Chat
	b.ReportAllocs()
	for b.Loop() {
		l := g.Link(last)
		if l.Parent == nil {
			b.Fatal("not linked")
		}
		g.Drop(l)
	}
}
