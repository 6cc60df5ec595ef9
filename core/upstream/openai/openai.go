package openai

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
)

// The kinds of server.
const (
	KindOpenAI   = "openai"
	KindVLLM     = "vllm"
	KindSGLang   = "sglang"
	KindLMDeploy = "lmdeploy"
)

// Dialect is the client dialect that chat endpoints share.
const Dialect = "openaichat"

// Options are one server and what is wanted of it.
type Options struct {
	Kind    string
	BaseURL string // with or without /v1 at its end
	APIKey  string
	// Model is the name at the server; it wins over Request.Model.
	Model string
	// Capture is exact, reported or text (also ""); the first two want ids.
	Capture string
	// OwnFormat says that prompts come rendered and replies stay text.
	OwnFormat bool
	// Context is in tokens; 0 takes what the server says.
	Context int
	// MaxTokens is how many tokens a completion may have when neither the
	// request nor the context says so, as servers stop early then; default
	// 4096.
	MaxTokens int
	Header    http.Header // sent on top

	Ready   time.Duration // to wait for a server that isn't up yet; default 30 s
	Connect time.Duration // see exchange.Options
	Headers time.Duration
	Stall   time.Duration
	// NoProbe leaves out all requests of New.
	NoProbe bool
	Log     *slog.Logger
}

// server is an upstream.
type server struct {
	o       Options
	c       *exchange.Client
	api     string // ends in /v1 or what the user gave
	root    string // api without /v1
	ids     bool
	engine  bool // takes what engines add to the API
	company bool // is OpenAI itself
	info    upstream.Info
}

// New connects to a server and probes it. The error names the server, the
// endpoint and the field that it lacks (*CapabilityError), or why it can't be
// reached.
func New(ctx context.Context, o Options) (upstream.Upstream, error) {
	s, err := newServer(o)
	if err != nil {
		return nil, err
	}
	if !o.NoProbe {
		if err := s.probe(ctx); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	return s, nil
}

func newServer(o Options) (*server, error) {
	s := &server{o: o}
	switch o.Kind {
	case KindOpenAI:
	case KindVLLM, KindSGLang, KindLMDeploy:
		s.engine = true
	default:
		return nil, fmt.Errorf("upstream kind %q, want openai, vllm, sglang or lmdeploy", o.Kind)
	}
	switch o.Capture {
	case "", "text":
	case "reported":
		s.ids = true
	case "exact":
		if s.ids = true; !o.OwnFormat {
			return nil, errors.New("capture exact needs a format that renders here, not at the upstream")
		}
	default:
		return nil, fmt.Errorf("capture %q, want exact, reported or text", o.Capture)
	}
	s.engine = s.engine || s.ids
	if o.MaxTokens <= 0 {
		s.o.MaxTokens = 4096
	}
	if o.Log == nil {
		s.o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Ready <= 0 {
		s.o.Ready = 30 * time.Second
	}
	base, err := url.Parse(strings.TrimRight(strings.TrimSpace(o.BaseURL), "/"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("upstream %s: url %q, want http:// or https:// and a host", o.Kind, o.BaseURL)
	}
	if base.User != nil || base.RawQuery != "" {
		return nil, fmt.Errorf("upstream %s: the url must hold no credentials and no query; use api_key", o.Kind)
	}
	if base.Path == "" {
		base.Path = "/v1"
	}
	s.api = base.String()
	s.root = strings.TrimSuffix(s.api, "/v1")
	s.company = base.Hostname() == "api.openai.com"
	s.connect()
	return s, nil
}

func (s *server) connect() {
	h := s.o.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if s.o.APIKey != "" {
		h.Set("Authorization", "Bearer "+s.o.APIKey)
	}
	s.info = upstream.Info{Server: s.o.Kind + " at " + s.root, Model: s.o.Model, Context: s.o.Context, Parses: !s.o.OwnFormat}
	s.info.Refuses = s.refuses()
	if !s.o.OwnFormat && !s.ids {
		s.info.Dialect = Dialect
	}
	s.c = exchange.New(exchange.Options{
		Name: s.info.Server, Header: h, Secrets: []string{s.o.APIKey},
		Connect: s.o.Connect, Headers: s.o.Headers, Stall: s.o.Stall,
	})
}

func (s *server) refuses() []upstream.Refusal {
	r := []upstream.Refusal{upstream.RefusesServerTools, upstream.RefusesCacheControl}
	if s.o.OwnFormat {
		return append(r, upstream.RefusesLongMaxTokens)
	}
	r = append(r, upstream.RefusesEmptyTools, upstream.RefusesOrphanChoice)
	if s.o.Kind == KindOpenAI {
		r = append(r, upstream.RefusesToolImages)
	} else {
		r = append(r, upstream.RefusesLongMaxTokens)
	}
	if s.company {
		r = append(r, upstream.RefusesReasoning, upstream.RefusesTopK)
	}
	return r
}

// Kind implements upstream.Upstream.
func (s *server) Kind() string { return s.o.Kind }

// Close implements upstream.Upstream.
func (s *server) Close() error { return s.c.Close() }

// Info implements upstream.Describer.
func (s *server) Info() upstream.Info { return s.info }

func (s *server) model(r *upstream.Request) string {
	if s.o.Model != "" {
		return s.o.Model
	}
	return r.Model
}

// header is what routes a request to where its session's cache is.
func (s *server) header(r *upstream.Request) http.Header {
	h := http.Header{}
	if r.AffinityKey == "" || s.company {
		return h
	}
	h.Set("X-Session-Id", r.AffinityKey)
	if s.o.Kind == KindSGLang {
		h.Set("X-Smg-Routing-Key", r.AffinityKey)
	}
	return h
}

// Generate implements upstream.Upstream.
func (s *server) Generate(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	switch {
	case !s.o.OwnFormat && r.Raw != nil && r.Raw.Dialect == s.info.Dialect:
		return s.pass(ctx, r)
	case !s.o.OwnFormat:
		return s.chat(ctx, r)
	case s.o.Kind == KindSGLang || s.o.Kind == KindLMDeploy:
		return s.generate(ctx, r)
	default:
		return s.complete(ctx, r)
	}
}

// post is a request of r to url.
func (s *server) post(r *upstream.Request, url string, body []byte) exchange.Request {
	return exchange.Request{Method: http.MethodPost, URL: url, Header: s.header(r), Body: body}
}
