package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-dev/penstock/core/upstream"
)

// Options say how to talk to one server. Zero durations get their defaults.
type Options struct {
	// Name is the server in messages, such as "vllm at http://10.0.0.7:8000".
	Name string
	// Header is sent with every request. The values of Secrets, and those of
	// Header that are long enough to be secrets, are cut out of every message.
	Header  http.Header
	Secrets []string

	// Wrap stands around what sends the requests; nil is nothing.
	Wrap func(http.RoundTripper) http.RoundTripper

	Connect time.Duration // to connect; default 10 s
	Headers time.Duration // until the answer begins; default 10 min
	Stall   time.Duration // without a byte, once it has begun; default 5 min
	MaxLine int           // most bytes of a line of a stream; default 64 MB
	MaxBody int           // most bytes of a whole body; default 64 MB
}

// Client talks to one server. It is safe for concurrent use.
type Client struct {
	o    Options
	http *http.Client
}

// New makes a client. No connection is opened.
func New(o Options) *Client {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&o.Connect, 10 * time.Second}, {&o.Headers, 10 * time.Minute}, {&o.Stall, 5 * time.Minute}} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	for _, n := range []*int{&o.MaxLine, &o.MaxBody} {
		if *n <= 0 {
			*n = 64 << 20
		}
	}
	o.Secrets = slices.Concat(o.Secrets, LongValues(o.Header))
	var transport http.RoundTripper = &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: o.Connect, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: o.Connect,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // bytes are passed on as they come
	}
	if o.Wrap != nil {
		transport = o.Wrap(transport)
	}
	return &Client{o: o, http: &http.Client{
		Transport: transport,
		// A redirect would take the key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// LongValues are the values of headers that are long enough to be secrets.
func LongValues(h http.Header) []string {
	var out []string
	for _, values := range h {
		for _, v := range values {
			if len(v) >= 12 {
				out = append(out, v)
			}
		}
	}
	return out
}

// Name is the server in messages.
func (c *Client) Name() string { return c.o.Name }

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Request is one request. Header comes on top of the client's own.
type Request struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte
}

// Body sends r and returns the whole body of a 2xx answer. Any other answer
// is an *upstream.StatusError; a request that can't have run fails with an
// *upstream.NotRunError.
func (c *Client) Body(ctx context.Context, r Request) ([]byte, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	defer a.close()
	body, err := io.ReadAll(io.LimitReader(a, int64(c.o.MaxBody)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: read the answer: %w", c.o.Name, err)
	}
	if len(body) > c.o.MaxBody {
		return nil, fmt.Errorf("%s: the answer is more than %d bytes", c.o.Name, c.o.MaxBody)
	}
	return body, nil
}

// Events sends r and returns the stream of a 2xx answer, whose errors are
// those of Body. Its owner has to close it.
func (c *Client) Events(ctx context.Context, r Request) (*Events, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	if kind := a.response.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		defer a.close()
		head := make([]byte, 512)
		n, _ := io.ReadFull(a, head)
		return nil, fmt.Errorf("%s: answered a stream with content type %q: %s", c.o.Name, kind, c.Excerpt(head[:n]))
	}
	return newEvents(c, a), nil
}

var (
	errHeaders = errors.New("the server did not begin to answer in time")
	errStall   = errors.New("the server fell silent in mid-answer")
)

// answer is a response whose body is read under a watch.
type answer struct {
	parent   context.Context
	ctx      context.Context
	cancel   context.CancelCauseFunc
	response *http.Response
	stall    time.Duration
	watch    *time.Timer
}

func (c *Client) do(parent context.Context, r Request) (*answer, error) {
	ctx, cancel := context.WithCancelCause(parent)
	var wrote atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("%s: %w", c.o.Name, err)
	}
	for _, h := range []http.Header{c.o.Header, r.Header} {
		for name, values := range h {
			req.Header[name] = values
		}
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	watch := time.AfterFunc(c.o.Headers, func() { cancel(fmt.Errorf("%w (%v)", errHeaders, c.o.Headers)) })
	response, err := c.http.Do(req)
	watch.Stop()
	if err != nil {
		err = fmt.Errorf("%s: %w", c.o.Name, c.cause(parent, ctx, err))
		cancel(nil)
		if !wrote.Load() && parent.Err() == nil {
			err = &upstream.NotRunError{Err: err}
		}
		return nil, err
	}
	a := &answer{parent: parent, ctx: ctx, cancel: cancel, response: response, stall: c.o.Stall}
	a.watch = time.AfterFunc(a.stall, func() { cancel(fmt.Errorf("%w (no byte for %v)", errStall, c.o.Stall)) })
	if response.StatusCode < 200 || response.StatusCode > 299 {
		defer a.close()
		return nil, c.refusal(a)
	}
	return a, nil
}

// cause is why a request failed: the end of its context, a wait that was too
// long, or what HTTP says, without the URL.
func (c *Client) cause(parent, ctx context.Context, err error) error {
	if parent.Err() != nil {
		return context.Cause(parent)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var refused interface{ Unwrap() error }
	if errors.As(err, &refused) && refused.Unwrap() != nil {
		err = refused.Unwrap() // a url.Error
	}
	return &hidden{c.hide(err.Error()), err}
}

// hidden is an error whose text was cleared of secrets.
type hidden struct {
	text string
	err  error
}

func (e *hidden) Error() string { return e.text }
func (e *hidden) Unwrap() error { return e.err }

// Read reads the body. Each byte sets the watch back.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.response.Body.Read(p)
	if n > 0 {
		a.watch.Reset(a.stall)
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	switch cause := context.Cause(a.ctx); {
	case a.parent.Err() != nil:
		return n, context.Cause(a.parent)
	case cause != nil:
		return n, cause
	}
	return n, fmt.Errorf("the connection was cut: %w", err)
}

// drain reads what little is left of a whole answer, so that its connection
// can be used again.
func (a *answer) drain() {
	a.stall = 200 * time.Millisecond
	a.watch.Reset(a.stall)
	_, _ = io.CopyN(io.Discard, a, 4096)
}

func (a *answer) close() {
	a.watch.Stop()
	a.cancel(nil)
	_ = a.response.Body.Close()
}
