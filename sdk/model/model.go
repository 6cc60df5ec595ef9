// Package model lets a judger ask the model that its stage names:
//
//	s := r.Session()
//	body, err := model.Question{Model: s.Model, Messages: []model.Message{{"user", "Is it good?"}}}.Body()
//	answer, err := model.Ask(ctx, s, model.TextPath, body)
//	text, err := model.Reply(answer)
//
// The call goes through the gateway in a session of the judge's own, so that it
// is recorded, counted and bounded. A WASM module has no network: there Ask
// fails.
package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	var known struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(e.Body, &known) == nil && known.Error.Message != "" {
		body = known.Error.Message
	}
	if len(body) > most {
		body = strings.ToValidUTF8(body[:most], "") + "…"
	}
	return strings.TrimSuffix(fmt.Sprintf("the call was answered with HTTP status %d: %s", e.Status, body), ": ")
}
