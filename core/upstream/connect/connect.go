// Package connect opens the upstream that a pipeline file names: its kind, its
// replicas, what stands in for it, and the bounds around all of them.
//
// What never enters: any server's protocol, and the scripted model, which is
// no server.
package connect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/anthropic"
	"github.com/penstock-dev/penstock/core/upstream/bedrock"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
	"github.com/penstock-dev/penstock/core/upstream/openai"
	"github.com/penstock-dev/penstock/core/upstream/pool"
)

// Kinds are the kinds of upstream that can be opened.
func Kinds() []string {
	return []string{anthropic.Kind, bedrock.Kind, openai.KindLMDeploy, openai.KindOpenAI, openai.KindSGLang, openai.KindVLLM}
}

// Config is one upstream. With holds the keys of an upstream that aren't
// fields here; see Settings.
type Config struct {
	Kind   string
	URL    string
	APIKey string
	Model  string // its name at the upstream
	// Capture is exact, reported or text; OwnFormat says that the model has a
	// format of ours, not `format: upstream`.
	Capture   string
	OwnFormat bool
	Context   int
	Prices    *cost.Prices // nil where they aren't known
	With      map[string]any
	// NoProbe asks no server for anything, to check a configuration.
	NoProbe bool
	Log     *slog.Logger
}

// Settings are the further keys of an upstream.
type Settings struct {
	URLs           []string          `json:"urls"`        // replicas, beside url
	Concurrency    int               `json:"concurrency"` // generations at once on each replica
	Tries          int               `json:"tries"`       // of one request where it can't have run
	MaxWait        Duration          `json:"max_wait"`    // longest Retry-After that is waited for
	Ready          Duration          `json:"ready"`       // to wait for a server to be up
	ConnectTimeout Duration          `json:"connect_timeout"`
	FirstByte      Duration          `json:"first_byte_timeout"`
	Stall          Duration          `json:"stall_timeout"`
	MaxTokens      int               `json:"max_tokens"` // where neither request nor context bounds a reply
	ThinkingBudget int               `json:"thinking_budget"`
	Bearer         bool              `json:"bearer"` // anthropic: the key as Authorization
	Region         string            `json:"region"` // bedrock, as are the next three
	AccessKeyID    string            `json:"access_key_id"`
	SecretKey      string            `json:"secret_access_key"`
	SessionToken   string            `json:"session_token"`
	Headers        map[string]string `json:"headers"` // sent on top
	Fallback       []Fallback        `json:"fallback"`
}

// Fallback is an upstream that stands in for the one before it. Its model is
// that of the first one unless it has its own; so are its prices, unless it has
// its own or its model has another name.
type Fallback struct {
	Kind    string       `json:"kind"`
	URL     string       `json:"url"`
	APIKey  string       `json:"api_key"`
	Model   string       `json:"model"`
	Context int          `json:"context"`
	Prices  *cost.Prices `json:"prices"`
	Settings
}

// Duration is written with its unit, such as "30s".
type Duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("%s is not a duration, want for example \"30s\"", b)
	}
	v, err := time.ParseDuration(text)
	if err != nil || v <= 0 {
		return fmt.Errorf("%q is not a duration, want for example \"30s\"", text)
	}
	*d = Duration(v)
	return nil
}

// Open opens an upstream and, unless NoProbe is set, asks each of its servers
// whether it can do what is wanted. Errors name the key, or the server with
// what it lacks.
func Open(ctx context.Context, c Config) (upstream.Upstream, error) {
	s, err := settings(c.With)
	if err != nil {
		return nil, fmt.Errorf("upstream %s: %w", c.Kind, err)
	}
	list, err := openList(ctx, c, s)
	if err != nil {
		return nil, err
	}
	if len(list) == 1 {
		return list[0], nil
	}
	f, err := pool.NewFailover(c.Log, list...)
	if err != nil {
		return nil, errors.Join(err, closeAll(list))
	}
	return f, nil
}

// Check says what is wrong with a configuration, without asking any server.
func Check(c Config) error {
	c.NoProbe = true
	u, err := Open(context.Background(), c)
	if err != nil {
		return err
	}
	return u.Close()
}

// Secrets are the keys of a configuration, and what may be one among its
// headers, which must not be written anywhere.
func Secrets(c Config) []string {
	var out []string
	add := func(key string, s Settings) {
		if key != "" {
			out = append(out, key)
		}
		for _, secret := range []string{s.AccessKeyID, s.SecretKey, s.SessionToken} {
			if secret != "" {
				out = append(out, secret)
			}
		}
		out = append(out, exchange.LongValues(s.header())...)
	}
	s, err := settings(c.With)
	add(c.APIKey, s)
	if err == nil {
		for _, f := range s.Fallback {
			add(f.APIKey, f.Settings)
		}
	}
	return out
}

func (s *Settings) header() http.Header {
	h := http.Header{}
	for name, value := range s.Headers {
		h.Set(name, value)
	}
	return h
}

func settings(with map[string]any) (s Settings, err error) {
	if len(with) == 0 {
		return s, nil
	}
	data, err := json.Marshal(with)
	if err != nil {
		return s, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return s, s.check()
}

func (s *Settings) check() error {
	if s.Concurrency < 0 || s.Tries < 0 || s.MaxTokens < 0 || s.ThinkingBudget < 0 {
		return errors.New("concurrency, tries, max_tokens and thinking_budget can't be negative")
	}
	for i := range s.Fallback {
		f := &s.Fallback[i]
		if len(f.Fallback) > 0 {
			return fmt.Errorf("fallback %d: a fallback has no fallback of its own; add it to the list", i+1)
		}
		if err := f.check(); err != nil {
			return fmt.Errorf("fallback %d: %w", i+1, err)
		}
	}
	return nil
}

// openList opens the upstream and its stand-ins, a pool for each.
func openList(ctx context.Context, c Config, s Settings) (list []upstream.Upstream, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(list))
		}
	}()
	p, err := openPool(ctx, c, s)
	if err != nil {
		return nil, err
	}
	list = append(list, p)
	for i, f := range s.Fallback {
		next := c
		next.Kind, next.URL, next.APIKey, next.Context = f.Kind, f.URL, f.APIKey, f.Context
		if f.Model != "" && f.Model != c.Model {
			next.Model, next.Prices = f.Model, nil
		}
		if f.Prices != nil {
			next.Prices = f.Prices
		}
		if p, err = openPool(ctx, next, f.Settings); err != nil {
			return list, fmt.Errorf("fallback %d: %w", i+1, err)
		}
		list = append(list, p)
	}
	return list, nil
}

func openPool(ctx context.Context, c Config, s Settings) (upstream.Upstream, error) {
	urls := slices.Clone(s.URLs)
	if c.URL != "" || len(urls) == 0 {
		urls = append([]string{c.URL}, urls...)
	}
	var replicas []upstream.Upstream
	for _, url := range urls {
		u, err := openServer(ctx, c, s, url)
		if err != nil {
			return nil, errors.Join(err, closeAll(replicas))
		}
		replicas = append(replicas, u)
	}
	return pool.New(pool.Options{
		Concurrency: s.Concurrency, Tries: s.Tries, MaxWait: time.Duration(s.MaxWait), Prices: c.Prices, Log: c.Log,
	}, replicas...)
}

func openServer(ctx context.Context, c Config, s Settings, url string) (upstream.Upstream, error) {
	connect, first, stall := time.Duration(s.ConnectTimeout), time.Duration(s.FirstByte), time.Duration(s.Stall)
	messages := c.Kind == anthropic.Kind || c.Kind == bedrock.Kind
	switch {
	case !slices.Contains(Kinds(), c.Kind):
		return nil, fmt.Errorf("there is no upstream of kind %q; there are %s and script", c.Kind, strings.Join(Kinds(), ", "))
	case messages && c.OwnFormat:
		return nil, fmt.Errorf("upstream %s renders and parses by itself: write 'format: upstream'", c.Kind)
	case messages && c.Capture != "" && c.Capture != "text":
		return nil, fmt.Errorf("upstream %s gives no token ids: capture %s can't be had, only text", c.Kind, c.Capture)
	case !messages && url == "":
		return nil, fmt.Errorf("upstream %s needs a url", c.Kind)
	case !messages && s.ThinkingBudget > 0:
		return nil, fmt.Errorf("upstream %s has no thinking_budget, only anthropic and bedrock have", c.Kind)
	case c.Kind != anthropic.Kind && s.Bearer:
		return nil, fmt.Errorf("upstream %s has no bearer, only anthropic has", c.Kind)
	case c.Kind != bedrock.Kind && s.Region+s.AccessKeyID+s.SecretKey+s.SessionToken != "":
		return nil, fmt.Errorf("upstream %s has no region, access_key_id, secret_access_key and session_token, only bedrock has", c.Kind)
	case messages:
		o := anthropic.Options{
			BaseURL: url, APIKey: c.APIKey, Bearer: s.Bearer, Model: c.Model, Context: c.Context,
			MaxTokens: s.MaxTokens, ThinkingBudget: s.ThinkingBudget, Header: s.header(),
			Connect: connect, Headers: first, Stall: stall, NoProbe: c.NoProbe, Log: c.Log,
		}
		if c.Kind == anthropic.Kind {
			return anthropic.New(ctx, o)
		}
		return bedrock.New(ctx, bedrock.Options{Region: s.Region, Server: o, Credentials: bedrock.Credentials{
			AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretKey, SessionToken: s.SessionToken, APIKey: c.APIKey,
		}})
	}
	return openai.New(ctx, openai.Options{
		Kind: c.Kind, BaseURL: url, APIKey: c.APIKey, Model: c.Model, Capture: c.Capture, OwnFormat: c.OwnFormat,
		Context: c.Context, MaxTokens: s.MaxTokens, Header: s.header(), Ready: time.Duration(s.Ready),
		Connect: connect, Headers: first, Stall: stall, NoProbe: c.NoProbe, Log: c.Log,
	})
}

func closeAll(list []upstream.Upstream) error {
	var errs []error
	for _, u := range list {
		errs = append(errs, u.Close())
	}
	return errors.Join(errs...)
}
