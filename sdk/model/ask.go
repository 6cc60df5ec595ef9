//go:build !wasip1

package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// answerMax bounds an answer, in bytes.
const answerMax = 16 << 20

// client goes past any proxy: the gateway is on the loopback.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}}

const (
	// tries is how often a call is made that the upstream is too busy for, or that
	// it breaks at.
	tries = 4
	// longestWait bounds the time between these.
	longestWait = time.Minute
)

// firstWait is the time before the second try where the answer names none; it
// doubles from there. Tests wait less.
var firstWait = time.Second

// Ask makes one call of the model and returns the body of its answer. Path is a
// route of the gateway and says in which dialect body is, which asks for a whole
// answer. Where the upstream is too busy or broken, it is asked again, up to
// four times in all and when its Retry-After says. An answer that isn't the
// model's is a *StatusError.
func Ask(ctx context.Context, s Session, path string, body []byte) ([]byte, error) {
	if s.BaseURL == "" {
		return nil, ErrNone
	}
	for n := 0; ; n++ {
		answer, wait, err := once(ctx, s, path, body)
		var status *StatusError
		if !errors.As(err, &status) || !passing(status.Status) || n+1 == tries {
			return answer, err
		}
		if wait <= 0 {
			wait = firstWait << n
		}
		select {
		case <-time.After(min(wait, longestWait)):
		case <-ctx.Done():
			return nil, fmt.Errorf("ask the model: %w; before that, %s", ctx.Err(), status)
		}
	}
}

// passing tells whether what an answer says may be over soon: the upstream is
// too busy, or it broke. The SDKs of agent programs repeat the same ones, so that
// a judge or a single call doesn't end where an agent would have gone on.
func passing(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError && status != http.StatusNotImplemented
}

// once makes a call. Wait is what its Retry-After says.
func once(ctx context.Context, s Session, path string, body []byte) (answer []byte, wait time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.BaseURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, 0, fmt.Errorf("ask the model: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+s.Token)
	resp, err := client.Do(r)
	if err != nil {
		return nil, 0, fmt.Errorf("ask the model: %w", err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, answerMax+1))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("ask the model: %w", err)
	case len(answer) > answerMax:
		return nil, 0, fmt.Errorf("ask the model: the answer is over %d bytes", answerMax)
	case resp.StatusCode != http.StatusOK:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, time.Duration(seconds) * time.Second, &StatusError{resp.StatusCode, answer}
	}
	return answer, 0, nil
}
