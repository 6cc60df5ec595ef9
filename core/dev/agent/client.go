package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	idleLimit     = 5 * time.Minute // without a byte of the reply
	longestWait   = 60 * time.Second
	maxErrorBytes = 64 << 10
)

// client calls the Messages API.
type client struct {
	base    string // without /v1
	key     string
	http    *http.Client
	retries int           // tries after the first
	backoff time.Duration // before the second try; doubles
	warn    func(string)  // told of each retry
}

// apiError is an error of the API. Status is 0 when it came within a stream.
type apiError struct {
	Status     int           `json:"-"`
	Kind       string        `json:"type"`
	Message    string        `json:"message"`
	retryAfter time.Duration // negative: not said
	final      bool          // the server asks not to try again
}

func (e *apiError) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("API error: %s: %s", e.Kind, e.Message)
	}
	return fmt.Sprintf("API error: %d %s: %s", e.Status, e.Kind, e.Message)
}

func (e *apiError) retryable() bool {
	if e.final || e.retryAfter > longestWait {
		return false
	}
	switch e.Status {
	case 0:
		return e.Kind == "overloaded_error" || e.Kind == "api_error" || e.Kind == "rate_limit_error" || e.Kind == "timeout_error"
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return e.Status >= 500
}

// cutError is a connection that failed, before or within a reply.
type cutError struct{ err error }

func (e *cutError) Error() string { return "connection to the API: " + e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }

// request is the body of one call.
type request struct {
	Model     string            `json:"model"`
	MaxTokens int               `json:"max_tokens"`
	System    string            `json:"system,omitempty"`
	Messages  []json.RawMessage `json:"messages"`
	Tools     []tool            `json:"tools,omitempty"`
	Stream    bool              `json:"stream"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// send makes a call, again and again where that can help, and returns the
// whole reply. A reply that is cut is thrown away and asked for again.
func (c *client) send(ctx context.Context, r *request) (*reply, error) {
	body, err := marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	for try := 0; ; try++ {
		reply, err := c.once(ctx, body)
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		pause, again := c.again(err, try)
		if !again {
			return nil, err
		}
		c.warn(fmt.Sprintf("%v; trying again in %s", err, pause.Round(time.Millisecond)))
		if !sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

func (c *client) again(err error, try int) (time.Duration, bool) {
	if try >= c.retries {
		return 0, false
	}
	pause := min(c.backoff<<min(try, 10), longestWait)
	pause += time.Duration(rand.Int64N(int64(pause)/4 + 1))
	var api *apiError
	var cut *cutError
	switch {
	case errors.As(err, &api):
		if api.retryAfter >= 0 {
			pause = api.retryAfter
		}
		return pause, api.retryable()
	case errors.As(err, &cut):
		return pause, true
	}
	return 0, false
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (c *client) once(ctx context.Context, body []byte) (*reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.AfterFunc(idleLimit, cancel)
	defer idle.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	req.Header.Set("User-Agent", "penstock-dev-agent")
	req.Header.Set("X-Api-Key", c.key)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &cutError{err}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, readError(resp)
	}
	return readReply(resp.Body, func() { idle.Reset(idleLimit) })
}

func readReply(body io.Reader, alive func()) (*reply, error) {
	stream := newEvents(body)
	var b builder
	for {
		data, err := stream.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the reply ended before its last event")
			}
			return nil, &cutError{err}
		}
		alive()
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, &cutError{fmt.Errorf("an event is not JSON: %w", err)}
		}
		if e.Type == "error" && e.Error != nil {
			e.Error.retryAfter = -1
			return nil, e.Error
		}
		if err := b.add(&e); err != nil {
			return nil, &cutError{err}
		}
		if b.ended {
			return &b.reply, nil
		}
	}
}

func readError(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	var body struct{ Error apiError }
	if err := json.Unmarshal(data, &body); err != nil || body.Error.Message == "" {
		body.Error = apiError{Kind: "http_error", Message: strings.TrimSpace(string(data))}
	}
	e := body.Error
	e.Status, e.retryAfter = resp.StatusCode, -1
	e.final = resp.Header.Get("X-Should-Retry") == "false"
	if s, err := strconv.ParseFloat(resp.Header.Get("Retry-After"), 64); err == nil && s >= 0 {
		e.retryAfter = time.Duration(min(s, 1e6) * float64(time.Second))
	}
	return &e
}
