package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/agent"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/sdk/invoker"
)

const (
	// answerMax bounds the body of a call's answer, in bytes.
	answerMax = 16 << 20
	// callTries is how often a call is made that the upstream is too busy for.
	callTries = 4
	// longestWait bounds the time between these.
	longestWait = time.Minute
)

// makeCall makes the call that a plan has instead of a program, in the stage's
// session, and tells of its end as a program's is told: the answer is its
// output, the HTTP status its exit code.
func (v *invocation) makeCall(ctx context.Context, deadline time.Time) (*agent.Exit, error) {
	c := v.plan.Call
	switch {
	case len(v.plan.Argv) > 0:
		return nil, errors.New("plan: it has both a program and a call")
	case v.session == nil:
		return nil, errors.New("plan: it calls a model, but the stage names none")
	case !strings.HasPrefix(c.Path, "/"):
		return nil, fmt.Errorf("plan: %q is no route of the gateway", c.Path)
	}
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	exit := &agent.Exit{Started: time.Now()}
	status, body, err := v.post(limited, c)
	exit.Ended = time.Now()
	switch {
	// Asked of the clock: at its deadline the session ends calls too.
	case err != nil && !time.Now().Before(deadline), status >= http.StatusBadRequest && !time.Now().Before(deadline):
		exit.TimedOut, exit.Code = true, -1
	case err != nil && ctx.Err() != nil:
		exit.Cancelled, exit.Code = true, -1
	case err != nil:
		return nil, fmt.Errorf("call the model: %w", err)
	case status != http.StatusOK:
		exit.Code = status
	}
	exit.Stdout = string(body)
	exit.OutputErr = run.Replace(filepath.Join(v.dir, "stdout"), func(f *os.File) error {
		w := v.Redact.Writer(f)
		if _, err := w.Write(body); err != nil {
			return err
		}
		return w.Close()
	})
	return exit, nil
}

// post makes the call, again where the upstream says that it is too busy.
func (v *invocation) post(ctx context.Context, c *invoker.ModelCall) (status int, body []byte, err error) {
	for n := 1; ; n++ {
		var wait time.Duration
		status, wait, body, err = v.postOnce(ctx, c)
		if err != nil || n == callTries || status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
			return status, body, err
		}
		if wait <= 0 {
			wait = time.Second << (n - 1)
		}
		select {
		case <-time.After(min(wait, longestWait)):
		case <-ctx.Done():
			return 0, body, ctx.Err()
		}
	}
}

// caller makes the calls; the gateway is on the loopback, past any proxy.
var caller = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}}

func (v *invocation) postOnce(ctx context.Context, c *invoker.ModelCall) (status int, wait time.Duration, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, v.session.Root()+c.Path, bytes.NewReader(c.Body))
	if err != nil {
		return 0, 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+v.session.Token())
	resp, err := caller.Do(r)
	if err != nil {
		return 0, 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, answerMax+1))
	if err == nil && len(body) > answerMax {
		err = fmt.Errorf("the answer is over %d bytes", answerMax)
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return resp.StatusCode, time.Duration(seconds) * time.Second, body, err
}
