//go:build !wasip1

package model

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// answerMax bounds an answer, in bytes.
const answerMax = 16 << 20

// client goes past any proxy: the gateway is on the loopback.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}}

// Ask makes one call of the model and returns the body of its answer. Path is a
// route of the gateway and says in which dialect body is, which asks for a whole
// answer. One that isn't the model's is a *StatusError.
func Ask(ctx context.Context, s Session, path string, body []byte) ([]byte, error) {
	if s.BaseURL == "" {
		return nil, ErrNone
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.BaseURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask the model: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+s.Token)
	resp, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask the model: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, answerMax+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the model: %w", err)
	case len(answer) > answerMax:
		return nil, fmt.Errorf("ask the model: the answer is over %d bytes", answerMax)
	case resp.StatusCode != http.StatusOK:
		return nil, &StatusError{resp.StatusCode, answer}
	}
	return answer, nil
}
