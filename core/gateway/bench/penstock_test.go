package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/redact"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream/openai"
	"github.com/penstock-dev/penstock/sdk/format"
)

// The sessions that are opened ahead, and for how many calls each is used.
const (
	sessions        = 100
	callsOfASession = 10
)

// serveUpstreamFormat is the gateway before a server that renders and parses:
// the request is decoded, linked, encoded as Chat Completions and sent; the
// reply is turned round and committed to the store.
func serveUpstreamFormat(backend string) (r ready, err error) {
	ctx := context.Background()
	up, err := openai.New(ctx, openai.Options{Kind: openai.KindVLLM, BaseURL: backend, NoProbe: true})
	if err != nil {
		return r, err
	}
	return openPenstock(ctx, &gateway.Model{
		Entry: "policy", Name: "mock", FormatName: "upstream", Upstream: up, Capture: gateway.CaptureText,
	}, nil)
}

// serveOwnFormat is the gateway with a format of its own, before an engine's
// Completions: here it renders the prompt and parses the reply too.
func serveOwnFormat(backend string) (r ready, err error) {
	f, err := ownFormat()
	if err != nil {
		return r, err
	}
	ctx := context.Background()
	up, err := openai.New(ctx, openai.Options{Kind: openai.KindVLLM, BaseURL: backend, OwnFormat: true, NoProbe: true})
	if err != nil {
		return r, err
	}
	return openPenstock(ctx, &gateway.Model{
		Entry: "policy", Name: "mock", Format: f, FormatName: "qwen3_coder", Upstream: up, Capture: gateway.CaptureText,
	}, nil)
}

func ownFormat() (format.Format, error) {
	name := filepath.Join("..", "..", "..", "plugins", "formats", "qwen3_coder.yaml")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	spec, err := format.ParseSpec(name, data)
	if err != nil {
		return nil, err
	}
	return format.New(spec)
}

func openPenstock(ctx context.Context, m *gateway.Model, secrets *redact.Redactor) (r ready, err error) {
	dir, err := os.MkdirTemp("", "trace-*")
	if err != nil {
		return r, err
	}
	st, err := trace.Open(filepath.Join(dir, "penstock.db"), trace.StoreOptions{})
	if err != nil {
		return r, err
	}
	g, err := gateway.New(gateway.Options{Calls: redact.Calls(st, secrets)})
	if err != nil {
		return r, err
	}
	r.URL = g.URL()
	for i := range sessions {
		s, err := g.Open(ctx, gateway.SessionSpec{Session: trace.Session{ID: fmt.Sprint("s-", i)}, Model: m})
		if err != nil {
			return r, err
		}
		r.Keys = append(r.Keys, s.Token())
	}
	return r, nil
}
