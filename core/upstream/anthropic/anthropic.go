package anthropic

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
)

// Kind is the upstream's kind, and Dialect the client dialect that it speaks.
const (
	Kind    = "anthropic"
	Dialect = "anthropic"
)

// version is what is asked for where no client did.
const version = "2023-06-01"

// Options are one server.
type Options struct {
	// Kind is what messages call the server; default Kind.
	Kind    string
	BaseURL string // default https://api.anthropic.com; with or without /v1
	APIKey  string
	// Bearer sends the key as Authorization rather than as x-api-key.
	Bearer bool
	// Model is the name at the server; it wins over Request.Model.
	Model   string
	Context int // in tokens, 0 if unknown
	// MaxTokens is for requests that set no bound, which the protocol needs;
	// default 8192.
	MaxTokens int
	// ThinkingBudget is in tokens, at least 1024, for requests that are
	// translated and ask for reasoning; 0 asks for none.
	ThinkingBudget int
	Header         http.Header // sent on top

	Connect time.Duration // see exchange.Options
	Headers time.Duration
	Stall   time.Duration
	// NoProbe leaves out all requests of New.
	NoProbe bool
	// Wrap stands around what sends requests, for a server that carries them
	// differently; Secrets are what it adds that no message may show.
	Wrap    func(http.RoundTripper) http.RoundTripper
	Secrets []string
	Log     *slog.Logger
}

type server struct {
	o    Options
	c    *exchange.Client
	api  string
	info upstream.Info
}

// New connects to a server, and checks the key by a list of its models, where
// it has one. No tokens are spent.
func New(ctx context.Context, o Options) (upstream.Upstream, error) {
	if o.Kind == "" {
		o.Kind = Kind
	}
	if o.BaseURL == "" {
		o.BaseURL = "https://api.anthropic.com"
	}
	if o.MaxTokens <= 0 {
		o.MaxTokens = 8192
	}
	if o.ThinkingBudget != 0 && o.ThinkingBudget < 1024 {
		return nil, fmt.Errorf("upstream %s: a thinking budget of %d tokens is below the least of 1024", o.Kind, o.ThinkingBudget)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	base, err := url.Parse(strings.TrimSuffix(strings.TrimRight(strings.TrimSpace(o.BaseURL), "/"), "/v1"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("upstream %s: url %q, want http:// or https:// and a host", o.Kind, o.BaseURL)
	}
	if base.User != nil || base.RawQuery != "" {
		return nil, fmt.Errorf("upstream %s: the url must hold no credentials and no query; use api_key", o.Kind)
	}
	s := &server{o: o, api: base.String() + "/v1"}
	s.connect(base.String())
	if !o.NoProbe {
		if err := s.probe(ctx); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *server) connect(root string) {
	h := s.o.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("Anthropic-Version", version)
	switch {
	case s.o.APIKey == "":
	case s.o.Bearer:
		h.Set("Authorization", "Bearer "+s.o.APIKey)
	default:
		h.Set("X-Api-Key", s.o.APIKey)
	}
	s.info = upstream.Info{
		Server: s.o.Kind + " at " + root, Model: s.o.Model, Context: s.o.Context, Parses: true, Dialect: Dialect,
		Refuses: []upstream.Refusal{upstream.RefusesOrphanChoice, upstream.RefusesUnsigned},
	}
	s.c = exchange.New(exchange.Options{
		Name: s.info.Server, Header: h, Secrets: append([]string{s.o.APIKey}, s.o.Secrets...), Wrap: s.o.Wrap,
		Connect: s.o.Connect, Headers: s.o.Headers, Stall: s.o.Stall,
	})
}

// probe asks for the models. Only an answer that refuses the key is an error,
// as compatible servers often have no list.
func (s *server) probe(ctx context.Context) error {
	_, err := s.c.Body(ctx, exchange.Request{Method: http.MethodGet, URL: s.api + "/models"})
	if refused, ok := err.(*upstream.StatusError); ok && refused.Status != 401 && refused.Status != 403 {
		s.o.Log.Debug("the server doesn't list its models", "server", s.info.Server, "status", refused.Status)
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for /v1/models: %w", err)
	}
	return nil
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

// Generate implements upstream.Upstream.
func (s *server) Generate(ctx context.Context, r *upstream.Request) (upstream.Stream, error) {
	request, raw, err := s.request(r, "/messages")
	if err != nil {
		return nil, err
	}
	d := &reply{s: s}
	if raw && !r.Raw.Stream {
		answer, err := s.c.Body(ctx, request)
		if err != nil {
			return nil, err
		}
		return d.whole(answer)
	}
	events, err := s.c.Events(ctx, request)
	if err != nil {
		return nil, err
	}
	return &stream{events: events, reply: d, raw: raw}, nil
}

// Count implements upstream.Counter.
func (s *server) Count(ctx context.Context, r *upstream.Request) (int, error) {
	request, _, err := s.request(r, "/messages/count_tokens")
	if err != nil {
		return 0, err
	}
	body, err := s.c.Body(ctx, request)
	if err != nil {
		return 0, err
	}
	n := gjson.GetBytes(body, "input_tokens")
	if n.Type != gjson.Number {
		return 0, fmt.Errorf("%s: count_tokens answered %s", s.info.Server, s.c.Excerpt(body))
	}
	return int(n.Int()), nil
}

// passed are the client's headers that the protocol knows.
var passed = []string{"Anthropic-Version", "Anthropic-Beta"}

// request is r for a path. raw says that it is the client's own.
func (s *server) request(r *upstream.Request, path string) (out exchange.Request, raw bool, err error) {
	out = exchange.Request{Method: http.MethodPost, URL: s.api + path, Header: http.Header{}}
	count := path != "/messages"
	if r.Raw == nil || r.Raw.Dialect != Dialect {
		out.Body, err = s.body(r, count)
		return out, false, err
	}
	if r.Raw.Query != "" {
		out.URL += "?" + r.Raw.Query
	}
	for _, name := range passed {
		if v := r.Raw.Header.Values(name); len(v) > 0 {
			out.Header[name] = v
		}
	}
	out.Body, err = s.splice(r, count)
	return out, true, err
}

// splice changes of the client's body what has to differ.
func (s *server) splice(r *upstream.Request, count bool) ([]byte, error) {
	had := gjson.ParseBytes(r.Raw.Body)
	var set []exchange.Field
	if want := s.model(r); had.Get("model").String() != want {
		set = append(set, exchange.Field{Name: "model", Value: exchange.AppendString(nil, want)})
	}
	if r.Raw.Changed.Messages {
		system, messages, err := conversation(r.Chat)
		if err != nil {
			return nil, err
		}
		set = append(set, exchange.Field{Name: "system", Value: system}, exchange.Field{Name: "messages", Value: messages})
	}
	if r.Raw.Changed.Tools {
		o := exchange.NewObject(1024)
		if err := tools(o, r.Chat); err != nil {
			return nil, err
		}
		written := gjson.ParseBytes(o.Bytes())
		for _, name := range []string{"tools", "tool_choice"} {
			f := exchange.Field{Name: name}
			if v := written.Get(name); v.Exists() {
				f.Value = []byte(v.Raw)
			}
			set = append(set, f)
		}
	}
	if !count {
		set = append(set, exchange.Sampling(had, r.Sampling, exchange.Names{MaxTokens: "max_tokens", Stop: "stop_sequences", TopK: true, Exact: r.Raw.Changed.Sampling})...)
	}
	return exchange.Splice(r.Raw.Body, set)
}
