package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// TextPath is the route of a Question: Chat Completions.
const TextPath = "/v1/chat/completions"

// Message is one of a Question. Role is system, user or assistant.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Question asks for a text. Zero values leave the choice to the model's entry.
type Question struct {
	Model       string
	Messages    []Message
	MaxTokens   int
	Temperature *float64
	// Schema is a JSON Schema that the server has to hold the text to; nil is
	// none.
	Schema json.RawMessage
}

// Body is the request for a Question's answer.
func (q Question) Body() ([]byte, error) {
	type format struct {
		Type   string `json:"type"`
		Schema struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	request := struct {
		Model       string    `json:"model"`
		Messages    []Message `json:"messages"`
		MaxTokens   int       `json:"max_tokens,omitempty"`
		Temperature *float64  `json:"temperature,omitempty"`
		Format      *format   `json:"response_format,omitempty"`
	}{Model: q.Model, Messages: q.Messages, MaxTokens: q.MaxTokens, Temperature: q.Temperature}
	if q.Schema != nil {
		request.Format = &format{Type: "json_schema"}
		request.Format.Schema.Name, request.Format.Schema.Schema = "output", q.Schema
	}
	return chat.Marshal(request)
}

// ErrNoText is the error of a reply without a text.
var ErrNoText = errors.New("the reply holds no text")

// Reply is the text in the answer to a Question. What is no whole answer is an
// error and never passes for one: what the model refused or a filter withheld,
// silence, and a reply that was cut, whose text is there as far as it came.
func Reply(answer []byte) (string, error) {
	var a struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
				Refusal string `json:"refusal"`
			} `json:"message"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return "", fmt.Errorf("the answer is no JSON: %w", err)
	}
	if len(a.Choices) == 0 {
		return "", errors.New("the answer holds no reply")
	}
	c := a.Choices[0]
	switch {
	case c.Message.Refusal != "":
		return "", fmt.Errorf("the model refused: %s", c.Message.Refusal)
	case c.Finish == "content_filter":
		return "", errors.New("the reply was withheld by the provider's filter")
	case c.Finish == "length":
		return c.Message.Content, errors.New("the reply was cut at its most tokens")
	case strings.TrimSpace(c.Message.Content) == "":
		return "", ErrNoText
	}
	return c.Message.Content, nil
}
