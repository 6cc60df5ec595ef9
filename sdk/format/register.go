package format

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// The methods of a format in byte form. A parser is named by a stream handle,
// a string that format_open returns.
//
//	format_markers {}                        -> ["<tool_call>", ...]
//	format_render  {chat}                    -> Rendered
//	format_tail    {chat, message, ended}    -> Rendered
//	format_open    {tools, state, choice}    -> {stream}
//	format_feed    {stream, data}            -> {events}   data is base64
//	format_finish  {stream}                  -> {events}
//	format_close   {stream}                  -> {}
const (
	MethodMarkers = "format_markers"
	MethodRender  = "format_render"
	MethodTail    = "format_tail"
	MethodOpen    = "format_open"
	MethodFeed    = "format_feed"
	MethodFinish  = "format_finish"
	MethodClose   = "format_close"
)

var methods = []string{MethodMarkers, MethodRender, MethodTail, MethodOpen, MethodFeed, MethodFinish, MethodClose}

// Option describes a format further.
type Option func(*component.Descriptor)

// Summary says in a line what the format is.
func Summary(text string) Option { return func(d *component.Descriptor) { d.Summary = text } }

// Version is the format's own version.
func Version(v string) Option { return func(d *component.Descriptor) { d.Version = v } }

// Register adds a format to this program. C is a struct, the format's config.
func Register[C any](name string, open func(C) (Format, error), options ...Option) {
	d := component.Descriptor{Kind: component.Format, Name: name, Config: schema.Of[C](), Methods: methods}
	for _, o := range options {
		o(&d)
	}
	component.Register(component.Component{
		Descriptor: d,
		Open: func(_ context.Context, config json.RawMessage) (any, error) {
			var cfg C
			if err := schema.Decode(config, &cfg); err != nil {
				return nil, err
			}
			f, err := open(cfg)
			if err != nil {
				return nil, err
			}
			return &served{Format: f, streams: map[string]Parser{}}, nil
		},
		Call: call,
	})
}

// RegisterYAML registers every *.yaml file at the top of fsys, under its name
// and its aliases. It is called from init, so that a program of many formats
// starts fast: only name, summary and aliases are read there, the rest when the
// format is first opened. It panics on a file without a name of its own, as
// that is a mistake of the program's author; what else is wrong with a file is
// an error of whoever opens it.
func RegisterYAML(fsys fs.FS) {
	files, err := fs.Glob(fsys, "*.yaml")
	if err != nil {
		panic(fmt.Sprintf("list format files: %v", err))
	}
	for _, file := range files {
		data, err := fs.ReadFile(fsys, file)
		if err != nil {
			panic(fmt.Sprintf("read format file: %v", err))
		}
		s, err := newShelved(file, data)
		if err != nil {
			panic(err.Error())
		}
		shelve(s)
		open := sync.OnceValues(s.format)
		Register(s.Name, func(struct{}) (Format, error) { return open() }, Summary(s.Summary))
		for _, alias := range s.Aliases {
			Register(alias, func(struct{}) (Format, error) { return open() }, Summary("the same as "+s.Name+": "+s.Summary))
		}
	}
}

// served is an opened format with the parsers that transports hold by handle.
type served struct {
	Format
	mu      sync.Mutex
	next    int
	streams map[string]Parser
}

// Unwrap returns the format itself.
func (s *served) Unwrap() Format { return s.Format }

func (s *served) add(p Parser) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	h := strconv.Itoa(s.next)
	s.streams[h] = p
	return h
}

func (s *served) stream(h string) (Parser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.streams[h]
	if !ok {
		return nil, fmt.Errorf("there is no open stream %q", h)
	}
	return p, nil
}

// drop forgets a stream and returns it, nil when there is none.
func (s *served) drop(h string) Parser {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.streams[h]
	delete(s.streams, h)
	return p
}

// Close closes every parser that is still open.
func (s *served) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, p := range s.streams {
		errs = append(errs, p.Close())
	}
	clear(s.streams)
	if c, ok := s.Format.(interface{ Close() error }); ok {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

type (
	tailRequest struct {
		Chat    *chat.Conversation `json:"chat"`
		Message int                `json:"message"`
		Ended   Ended              `json:"ended"`
	}
	streamRequest struct {
		Stream string `json:"stream"`
		Data   []byte `json:"data,omitempty"`
	}
	streamReply struct {
		Stream string `json:"stream"`
	}
	eventsReply struct {
		Events []Event `json:"events"`
	}
)

// call is the byte form of a format's methods, for transports.
func call(ctx context.Context, instance any, method string, in doc.Doc) ([]byte, error) {
	s, ok := instance.(*served)
	if !ok {
		return nil, fmt.Errorf("this instance is no format")
	}
	raw, _ := in.Get("")
	switch method {
	case MethodMarkers:
		return chat.Marshal(s.Markers())
	case MethodRender:
		var r RenderRequest
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("read render request: %w", err)
		}
		return reply(s.Render(ctx, &r))
	case MethodTail:
		var r tailRequest
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("read tail request: %w", err)
		}
		return reply(s.Tail(ctx, &RenderRequest{Chat: r.Chat}, r.Message, r.Ended))
	case MethodOpen:
		var o ParseOptions
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, fmt.Errorf("read parse options: %w", err)
		}
		p, err := s.Open(ctx, &o)
		if err != nil {
			return nil, err
		}
		return chat.Marshal(streamReply{s.add(p)})
	case MethodFeed, MethodFinish, MethodClose:
		var r streamRequest
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("read stream request: %w", err)
		}
		return s.onStream(method, r)
	}
	return nil, fmt.Errorf("a format has no method %q", method)
}

func (s *served) onStream(method string, r streamRequest) ([]byte, error) {
	if method == MethodClose {
		if p := s.drop(r.Stream); p != nil {
			if err := p.Close(); err != nil {
				return nil, err
			}
		}
		return []byte("{}"), nil
	}
	p, err := s.stream(r.Stream)
	if err != nil {
		return nil, err
	}
	events := []Event{}
	if method == MethodFeed {
		events = p.Feed(events, r.Data)
	} else {
		events = p.Finish(events)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return chat.Marshal(eventsReply{events})
}

func reply(r *Rendered, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return chat.Marshal(r)
}
