// Package model lets a judger ask the model that its stage names:
//
//	s := r.Session()
//	body, err := model.Ask(ctx, s, "/v1/chat/completions", request)
//
// The call goes through the gateway in a session of the judge's own, so that it
// is recorded, counted and bounded. A WASM module has no network: there Ask
// fails.
package model

import (
	"errors"
	"fmt"
	"time"
)

// Session is the credential for one judgement. BaseURL is the gateway's root,
// without /v1, and Model the name to ask for. It is empty when the stage names
// no model.
type Session struct {
	ID       string    `json:"id"`
	BaseURL  string    `json:"base_url"`
	Token    string    `json:"token"`
	Model    string    `json:"model"`
	Deadline time.Time `json:"deadline"`
}

// ErrNone says that the stage names no model.
var ErrNone = errors.New("the stage names no model to ask")

// StatusError is an answer that is none of the model's.
type StatusError struct {
	Status int
	Body   []byte // of the answer, in the dialect that the path stands for
}

func (e *StatusError) Error() string {
	const most = 500
	body := string(e.Body)
	if len(body) > most {
		body = body[:most] + "…"
	}
	return fmt.Sprintf("the call was answered with HTTP status %d: %s", e.Status, body)
}
