package engine

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/script"
	"github.com/penstock-dev/penstock/sdk/format"
)

// The kinds of server.
const (
	VLLM      = "vllm"
	SGLang    = "sglang"
	LMDeploy  = "lmdeploy"
	OpenAI    = "openai"
	Anthropic = "anthropic"
)

//go:embed format.yaml
var formatYAML []byte

// turnOpen opens a turn in prompts.
const turnOpen = "<|im_start|>"

// Options say what the stand-in is.
type Options struct {
	Kind   string
	Script *script.Script
	Model  string // its name; default stand-in
	// Markers are the strings that are single tokens; default those of the
	// stand-in's own format.
	Markers []string
	Context int    // in tokens; default 32768
	Key     string // that requests must have, "" for none
	Faults  []Fault
	// RetryAfter goes with a status that is a fault, in seconds, 0 for none.
	RetryAfter int
	// Without are the paths and fields that the server doesn't have, such as
	// "token_ids" or "/v1/completions".
	Without []string
	// Incremental is SGLang's --incremental-streaming-output.
	Incremental bool
	Log         *slog.Logger
}

// Engine is a stand-in, as an HTTP handler.
type Engine struct {
	o      Options
	model  upstream.Upstream
	probe  upstream.Upstream // see anything
	tok    token.Tokenizer
	format format.Format
	faults *faults

	mu   sync.Mutex
	seen []Seen
}

// Seen is a request to generate, as it arrived.
type Seen struct {
	Path   string
	Query  string
	Header http.Header
	Body   []byte
}

// New makes a stand-in. Its Close ends the script's log.
func New(o Options) (*Engine, error) {
	if !slices.Contains([]string{VLLM, SGLang, LMDeploy, OpenAI, Anthropic}, o.Kind) {
		return nil, fmt.Errorf("kind %q, want vllm, sglang, lmdeploy, openai or anthropic", o.Kind)
	}
	if o.Script == nil {
		return nil, errors.New("a stand-in needs a script")
	}
	if o.Model == "" {
		o.Model = "stand-in"
	}
	if o.Context <= 0 {
		o.Context = 32768
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	spec, err := format.ParseSpec("format.yaml", formatYAML)
	if err != nil {
		return nil, err
	}
	f, err := format.New(spec)
	if err != nil {
		return nil, err
	}
	if o.Markers == nil {
		o.Markers = f.Markers()
	}
	e := &Engine{o: o, tok: token.NewBytes(o.Markers), format: f, faults: newFaults(o.Faults)}
	e.model = script.New(o.Script, e.tok, script.Options{Log: o.Log})
	probe, err := script.Parse([]byte(anything))
	if err != nil {
		return nil, err
	}
	e.probe = script.New(probe, e.tok, script.Options{Log: o.Log})
	return e, nil
}

// anything is the script that answers a request for a single token which the
// script has no rule for: clients ask so to see what a server can do, and a
// model answers anything.
const anything = "penstock: script/v1\notherwise: { reply: Hello }\n"

// Close implements io.Closer.
func (e *Engine) Close() error { return e.model.Close() }

// Seen are the requests to generate so far, refused ones included.
func (e *Engine) Seen() []Seen {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

// Tokenizer is the one that the stand-in counts and decodes with.
func (e *Engine) Tokenizer() token.Tokenizer { return e.tok }

func (e *Engine) has(name string) bool { return !slices.Contains(e.o.Without, name) }

// ServeHTTP implements http.Handler.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
	if err != nil {
		e.fail(w, http.StatusBadRequest, "the request could not be read")
		return
	}
	path := r.URL.Path
	if !e.has(path) {
		http.NotFound(w, r)
		return
	}
	if !e.allowed(r) {
		e.fail(w, http.StatusUnauthorized, "Incorrect API key provided: "+key(r))
		return
	}
	if r.Method == http.MethodGet {
		e.get(w, r)
		return
	}
	if serve := e.side(path); serve != nil {
		serve(w, body)
		return
	}
	serve := e.route(path)
	if serve == nil || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	e.mu.Lock()
	e.seen = append(e.seen, Seen{path, r.URL.RawQuery, r.Header.Clone(), body})
	e.mu.Unlock()
	f := e.faults.next()
	if !f.before(w, r, e) {
		return
	}
	x := &exchange{e: e, w: w, r: r, body: body, fault: f}
	if err := serve(x); err != nil {
		x.refuse(err)
	}
}

func (e *Engine) route(path string) func(*exchange) error {
	routes := map[string]func(*exchange) error{}
	switch e.o.Kind {
	case Anthropic:
		routes["/v1/messages"] = (*exchange).messages
	case SGLang, LMDeploy:
		routes["/generate"] = (*exchange).generate
		fallthrough
	default:
		routes["/v1/completions"], routes["/v1/chat/completions"] = (*exchange).completions, (*exchange).chat
	}
	return routes[path]
}

// side is what serves a path that generates nothing.
func (e *Engine) side(path string) func(http.ResponseWriter, []byte) {
	switch {
	case e.o.Kind == Anthropic && path == "/v1/messages/count_tokens":
		return e.countMessages
	case path == "/tokenize" && (e.o.Kind == VLLM || e.o.Kind == SGLang), path == "/v1/encode" && e.o.Kind == LMDeploy:
		return e.tokenize
	}
	return nil
}

func key(r *http.Request) string {
	if k := r.Header.Get("X-Api-Key"); k != "" {
		return k
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func (e *Engine) allowed(r *http.Request) bool {
	if e.o.Key == "" {
		return true
	}
	if e.o.Kind == Anthropic {
		return key(r) == e.o.Key
	}
	return r.Header.Get("Authorization") == "Bearer "+e.o.Key
}

func (e *Engine) get(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/v1/models":
		m := map[string]any{"id": e.o.Model, "object": "model", "created": 1700000000, "owned_by": e.o.Kind}
		if e.o.Kind == VLLM || e.o.Kind == SGLang {
			m["max_model_len"] = e.o.Context
		}
		reply(w, map[string]any{"object": "list", "data": []any{m}, "has_more": false})
	case path == "/version" && e.o.Kind == VLLM:
		reply(w, map[string]any{"version": "0.0.0+stand-in"})
	case path == "/get_server_info" && e.o.Kind == SGLang:
		reply(w, map[string]any{"version": "0.0.0+stand-in"})
	case path == "/health":
		w.WriteHeader(http.StatusOK)
	default:
		http.NotFound(w, r)
	}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	b, _ := json.Marshal(v) // of maps of plain values
	_, _ = w.Write(b)       // the client may be gone
}

// fail answers an error in the server's own shape.
func (e *Engine) fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(e.errorBody(status, message))
}

func (e *Engine) errorBody(status int, message string) []byte {
	kinds := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
	}
	kind := kinds[status]
	if kind == "" {
		kind = "api_error"
	}
	var v any = map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status}}
	if e.o.Kind == Anthropic {
		v = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}}
	}
	b, _ := json.Marshal(v)
	return b
}

// tokenize answers with the ids of a prompt.
func (e *Engine) tokenize(w http.ResponseWriter, body []byte) {
	var in struct {
		Prompt, Input string
		Messages      json.RawMessage
	}
	if err := json.Unmarshal(body, &in); err != nil {
		e.fail(w, 400, err.Error())
		return
	}
	if in.Messages != nil {
		p, err := e.render(context.Background(), body)
		if err != nil {
			e.fail(w, 400, err.Error())
			return
		}
		reply(w, map[string]any{"count": len(p.IDs), "tokens": p.IDs, "max_model_len": e.o.Context})
		return
	}
	ids := e.tok.Encode([]int32{}, in.Prompt+in.Input, true)
	if e.o.Kind == LMDeploy {
		reply(w, map[string]any{"input_ids": ids, "length": len(ids)})
		return
	}
	reply(w, map[string]any{"tokens": ids, "count": len(ids), "max_model_len": e.o.Context})
}

func now() int64 { return time.Now().Unix() }
