package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// CapabilityError is a server that lacks what is wanted of it.
type CapabilityError struct {
	Server   string // what and where it is
	Endpoint string
	Field    string // of the answer, "" where the endpoint itself is missing
	Reason   string
}

func (e *CapabilityError) Error() string {
	s := e.Server + ": " + e.Endpoint
	if e.Field != "" {
		s += " does not give " + e.Field
	} else {
		s += " can't be used"
	}
	return s + ": " + e.Reason
}

func (s *server) lacks(endpoint, field, reason string) error {
	return &CapabilityError{s.info.Server, endpoint, field, reason}
}

// probe finds out what the server is, and whether it gives what is wanted.
func (s *server) probe(ctx context.Context) error {
	models, err := s.ready(ctx)
	if err != nil {
		return err
	}
	if err := s.known(models); err != nil {
		return err
	}
	s.info.Version = s.version(ctx)
	if s.ids || s.o.OwnFormat {
		return s.try(ctx)
	}
	return nil
}

// ready asks for the models until the server is up.
func (s *server) ready(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Ready)
	defer cancel()
	var last error
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		body, err := s.c.Body(ctx, exchange.Request{Method: http.MethodGet, URL: s.api + "/models"})
		if err == nil {
			return body, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if _, again := upstream.NotRun(err); !again && ctx.Err() == nil {
			return nil, s.noModels(err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, fmt.Errorf("%s was not ready in %v: %w", s.info.Server, s.o.Ready, last)
			}
			return nil, ctx.Err()
		}
	}
}

// noModels is the error of a server that doesn't list models. Of a server of
// no special kind that is nothing to speak of.
func (s *server) noModels(err error) error {
	var refused *upstream.StatusError
	if !errors.As(err, &refused) {
		return err
	}
	if s.o.Kind == KindOpenAI && (refused.Status == 404 || refused.Status == 405) {
		return nil
	}
	return s.lacks("/v1/models", "", fmt.Sprintf("answered %d: %s", refused.Status, refused.Message))
}

// known looks the model up in the list, and its context.
func (s *server) known(body []byte) error {
	var names []string
	gjson.GetBytes(body, "data").ForEach(func(_, m gjson.Result) bool {
		name := m.Get("id").Str
		names = append(names, name)
		if n := m.Get("max_model_len").Int(); n > 0 && s.info.Context == 0 && (name == s.o.Model || s.o.Model == "") {
			s.info.Context = int(n)
		}
		return true
	})
	if s.o.Model == "" || len(names) == 0 || slices.Contains(names, s.o.Model) {
		return nil
	}
	if s.o.Kind == KindOpenAI {
		s.o.Log.Warn("the server doesn't list the model", "server", s.info.Server, "model", s.o.Model)
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("%s has no model %q; it has %s", s.info.Server, s.o.Model, strings.Join(names[:min(len(names), 20)], ", "))
}

// version is the server's own, "" where it doesn't tell.
func (s *server) version(ctx context.Context) string {
	path := map[string]string{KindVLLM: "/version", KindSGLang: "/get_server_info"}[s.o.Kind]
	if path == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := s.c.Body(ctx, exchange.Request{Method: http.MethodGet, URL: s.root + path})
	if err != nil {
		s.o.Log.Debug("the server doesn't tell its version", "server", s.info.Server, "error", err)
		return ""
	}
	return gjson.GetBytes(body, "version").String()
}

// try generates one token and looks at what came.
func (s *server) try(ctx context.Context) error {
	one := 1
	r := &upstream.Request{WantIDs: s.ids, Sampling: chat.Sampling{MaxTokens: &one}}
	endpoint := "/v1/chat/completions"
	switch {
	case !s.o.OwnFormat:
		r.Chat = &chat.Conversation{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "Hi"}}}}}
	case s.o.Capture == "exact":
		r.PromptIDs = []int32{1, 2, 3}
	default:
		r.Prompt = "Hi"
	}
	if s.o.OwnFormat {
		endpoint = "/v1/completions"
		if s.o.Kind == KindSGLang || s.o.Kind == KindLMDeploy {
			endpoint = "/generate"
		}
	}
	got, err := s.sample(ctx, r)
	var lacks *CapabilityError
	var refused *upstream.StatusError
	switch {
	case err == nil:
	case errors.As(err, &lacks), ctx.Err() != nil:
		return err
	case errors.As(err, &refused):
		return s.lacks(endpoint, "", fmt.Sprintf("a request for one token was answered %d: %s", refused.Status, refused.Message))
	default:
		return s.lacks(endpoint, "", "a request for one token failed: "+err.Error())
	}
	return s.satisfied(endpoint, got)
}

// satisfied holds an answer against what the capture needs.
func (s *server) satisfied(endpoint string, got upstream.Chunk) error {
	if !s.ids {
		return nil
	}
	need := "capture " + s.o.Capture + " needs it"
	switch {
	case len(got.IDs) == 0:
		return s.lacks(endpoint, "token_ids", need)
	case len(got.PromptIDs) == 0 && s.o.Capture == "reported":
		return s.lacks(endpoint, "prompt_token_ids", need)
	}
	for _, lp := range got.Logprobs {
		if lp != lp {
			return s.lacks(endpoint, "logprobs", need)
		}
	}
	return nil
}

// sample is a whole generation in one chunk.
func (s *server) sample(ctx context.Context, r *upstream.Request) (upstream.Chunk, error) {
	var all upstream.Chunk
	out, err := s.Generate(ctx, r)
	if err != nil {
		return all, err
	}
	defer out.Close()
	for {
		c, err := out.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all.IDs, all.Logprobs = append(all.IDs, c.IDs...), append(all.Logprobs, c.Logprobs...)
		all.PromptIDs = append(all.PromptIDs, c.PromptIDs...)
	}
}

// Count implements upstream.Counter.
func (s *server) Count(ctx context.Context, r *upstream.Request) (int, error) {
	switch {
	case s.o.OwnFormat && r.PromptIDs != nil:
		return len(r.PromptIDs), nil
	case s.o.OwnFormat && s.o.Kind != KindOpenAI:
		ids, err := s.tokenize(ctx, r)
		return len(ids), err
	case s.o.Kind == KindVLLM:
		return s.countChat(ctx, r)
	}
	return 0, upstream.ErrNoCount
}
