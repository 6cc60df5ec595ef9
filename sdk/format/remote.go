package format

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// CallFunc calls one method of a format's byte form.
type CallFunc func(ctx context.Context, method string, request []byte) ([]byte, error)

// Remote is the format on the other side of a transport. It asks for the
// markers at once. Calls get the ids that ParseOptions.NewID makes only where
// the format that runs is given it, so a remote format makes its own.
func Remote(ctx context.Context, call CallFunc) (Format, error) {
	r := &remote{call: call}
	if err := r.ask(ctx, MethodMarkers, struct{}{}, &r.markers); err != nil {
		return nil, fmt.Errorf("ask for markers: %w", err)
	}
	return r, nil
}

type remote struct {
	call    CallFunc
	markers []string
}

func (r *remote) ask(ctx context.Context, method string, request, reply any) error {
	b, err := chat.Marshal(request)
	if err != nil {
		return err
	}
	if b, err = r.call(ctx, method, b); err != nil {
		return err
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal(b, reply)
}

func (r *remote) Markers() []string { return r.markers }

func (r *remote) Render(ctx context.Context, q *RenderRequest) (*Rendered, error) {
	var out Rendered
	if err := r.ask(ctx, MethodRender, q, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

func (r *remote) Tail(ctx context.Context, q *RenderRequest, k int, ended Ended) (*Rendered, error) {
	var out Rendered
	if err := r.ask(ctx, MethodTail, tailRequest{q.Chat, k, ended}, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

func (r *remote) Open(ctx context.Context, o *ParseOptions) (Parser, error) {
	var s streamReply
	if err := r.ask(ctx, MethodOpen, o, &s); err != nil {
		return nil, err
	}
	return &remoteParser{ctx: ctx, remote: r, stream: s.Stream}, nil
}

// remoteParser holds the context of its Open, as the parser's methods take
// none. After the first failure it stays failed.
type remoteParser struct {
	ctx    context.Context
	remote *remote
	stream string
	err    error
}

func (p *remoteParser) events(dst []Event, method string, data []byte) []Event {
	if p.err != nil {
		return dst
	}
	var out eventsReply
	if p.err = p.remote.ask(p.ctx, method, streamRequest{p.stream, data}, &out); p.err != nil {
		return dst
	}
	return append(dst, out.Events...)
}

func (p *remoteParser) Feed(dst []Event, chunk []byte) []Event {
	return p.events(dst, MethodFeed, chunk)
}

func (p *remoteParser) Finish(dst []Event) []Event { return p.events(dst, MethodFinish, nil) }

func (p *remoteParser) Err() error { return p.err }

func (p *remoteParser) Close() error {
	return p.remote.ask(context.WithoutCancel(p.ctx), MethodClose, streamRequest{Stream: p.stream}, nil)
}
