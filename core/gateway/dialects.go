package gateway

import (
	"strings"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/anthropic"
	"github.com/penstock-dev/penstock/core/wire/bedrock"
	"github.com/penstock-dev/penstock/core/wire/gemini"
	"github.com/penstock-dev/penstock/core/wire/openaichat"
	"github.com/penstock-dev/penstock/core/wire/responses"
)

// Dialect is one way in which clients speak, and where it is served.
type Dialect struct {
	wire.Dialect
	// Paths are the paths of its generations, where these are fixed. A
	// dialect that counts tokens does so at PATH/count_tokens.
	Paths []string
	// Match reads other paths, nil for none.
	Match func(path string) (Target, bool)
	// Header is a request header that its clients send and those of dialects
	// further down the table don't. It tells whose shape to use on routes
	// that are shared.
	Header string
	// Owns reports paths that only this dialect has, whether they are served or
	// not, so that its clients get errors in the shape that they read. nil is
	// what lies below Paths.
	Owns func(path string) bool
	// KeyParam is the name in the query under which its clients may send their
	// key.
	KeyParam string
	// Unframed is the same dialect for streams that weren't asked for as
	// server-sent events, nil where all are.
	Unframed wire.Dialect
	// ReplyID begins the ids of its replies.
	ReplyID string
	// StartEarly says that its clients take nothing but events of a begun
	// reply for a sign of life.
	StartEarly bool
}

// Target is what a path asks for, where it says more than the body.
type Target struct {
	Model  string // "" where the body names it
	Stream bool   // used with Model only
	Count  bool   // count tokens, generate nothing
}

// DefaultDialects are the dialects that are served.
func DefaultDialects() []Dialect {
	return []Dialect{
		{Dialect: anthropic.New(), Paths: []string{"/v1/messages"}, Header: "Anthropic-Version", ReplyID: "msg_"},
		{Dialect: bedrock.New(), Match: matchBedrock, ReplyID: "msg_bdrk_", StartEarly: true},
		{Dialect: bedrock.NewVertex(), Match: matchVertex, ReplyID: "msg_vrtx_"},
		{Dialect: gemini.New(), Match: matchGemini, Owns: ownsGemini, Header: "X-Goog-Api-Key", KeyParam: "key", Unframed: gemini.NewArray()},
		{Dialect: openaichat.New(), Paths: []string{"/v1/chat/completions"}, Header: "Authorization", ReplyID: "chatcmpl-"},
		{Dialect: responses.New(), Paths: []string{"/v1/responses"}, ReplyID: "resp_", StartEarly: true},
	}
}

func matchBedrock(path string) (Target, bool) {
	model, stream, ok := bedrock.Match(path)
	return Target{Model: model, Stream: stream}, ok
}

func matchVertex(path string) (Target, bool) {
	model, stream, count, ok := bedrock.MatchVertex(path)
	return Target{Model: model, Stream: stream, Count: count}, ok
}

// matchGemini reads /VERSION/models/MODEL:METHOD. Google's SDK says v1 from its
// third major version on, others v1beta.
func matchGemini(path string) (Target, bool) {
	version, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/models/")
	if !ok || version != "v1" && version != "v1beta" && version != "v1alpha" {
		return Target{}, false
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 1 {
		return Target{}, false
	}
	t := Target{Model: rest[:i]}
	switch rest[i+1:] {
	case "generateContent":
	case "streamGenerateContent":
		t.Stream = true
	case "countTokens":
		t.Count = true
	default:
		return Target{}, false
	}
	return t, true
}

// ownsGemini reports the versions of an API that only Google has, and methods
// of models.
func ownsGemini(path string) bool {
	return strings.HasPrefix(path, "/v1beta/") || strings.HasPrefix(path, "/v1alpha/") || isGeminiMethod(path)
}

// isGeminiMethod reports /VERSION/models/MODEL:METHOD for methods that Google
// has, served or not. Names of others have colons too, such as qwen3:8b.
func isGeminiMethod(path string) bool {
	_, rest, ok := strings.Cut(path, "/models/")
	if !ok {
		return false
	}
	method := rest[strings.LastIndexByte(rest, ':')+1:]
	switch {
	case len(method) == len(rest):
		return false
	case method == "predict", method == "predictLongRunning", method == "countTokens":
		return true
	}
	return strings.HasSuffix(method, "Content") || strings.HasSuffix(method, "Contents")
}

// countPath ends the fixed paths on which a dialect counts tokens.
const countPath = "/count_tokens"

// route finds the dialect of a path, nil for a path that no dialect has for
// itself.
func (g *Gateway) route(path string) (Target, *Dialect) {
	fixed, count := strings.CutSuffix(path, countPath)
	for i := range g.o.Dialects {
		d := &g.o.Dialects[i]
		_, counts := d.Dialect.(wire.TokenCounter)
		for _, p := range d.Paths {
			if p == fixed && (counts || !count) {
				return Target{Count: count}, d
			}
		}
		if d.Match != nil {
			if t, ok := d.Match(path); ok {
				return t, d
			}
		}
	}
	return Target{}, nil
}

// guess picks the dialect in which to answer on any other path.
func (g *Gateway) guess(in *inbound) *Dialect {
	for i := range g.o.Dialects {
		d := &g.o.Dialects[i]
		if d.Owns != nil && d.Owns(in.path) {
			return d
		}
		for _, p := range d.Paths {
			if strings.HasPrefix(in.path, p+"/") {
				return d
			}
		}
	}
	query := in.r.URL.Query()
	for i := range g.o.Dialects {
		d := &g.o.Dialects[i]
		if d.Header != "" && in.r.Header.Get(d.Header) != "" || d.KeyParam != "" && query.Get(d.KeyParam) != "" {
			return d
		}
	}
	return &g.o.Dialects[0]
}
