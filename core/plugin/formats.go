package plugin

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// pinner is an instance that can hold streams. What pin returns is bound to
// one life of the plugin: when that ends, so does the stream.
type pinner interface {
	pin(ctx context.Context) (instance, error)
}

// remoteFormat is a format behind a transport. It renders like any call, and
// parses on a stream.
type remoteFormat struct {
	format.Format
	remote
}

func newRemoteFormat(ctx context.Context, r remote) (any, error) {
	f, err := format.Remote(ctx, r.instance.call)
	if err != nil {
		return nil, err
	}
	return remoteFormat{f, r}, nil
}

// Open implements format.Format.
func (f remoteFormat) Open(ctx context.Context, o *format.ParseOptions) (format.Parser, error) {
	stream := f.instance
	if p, ok := f.instance.(pinner); ok {
		var err error
		if stream, err = p.pin(ctx); err != nil {
			return nil, err
		}
	}
	// The parser's methods take no context, and one that the caller gives up
	// must still be closed.
	p := &remoteParser{remote: remote{f.key, stream}, ctx: context.WithoutCancel(ctx)}
	in, err := chat.Marshal(o)
	if err == nil {
		err = p.ask(p.ctx, format.MethodOpen, in, &p.handle)
	}
	if err != nil {
		_ = stream.close(p.ctx)
		return nil, err
	}
	return p, nil
}

// remoteParser parses one reply. After its first failure it stays failed.
type remoteParser struct {
	remote
	ctx    context.Context
	handle struct {
		Stream string `json:"stream"`
	}
	part []byte // the start of a rune whose end is still to come
	err  error
}

// Feed implements format.Parser. A rune is fed whole, as an event's text is
// JSON and has no place for half of one.
func (p *remoteParser) Feed(dst []format.Event, chunk []byte) []format.Event {
	if len(p.part) > 0 {
		chunk = append(p.part, chunk...)
		p.part = nil
	}
	cut := wholeRunes(chunk)
	if cut < len(chunk) {
		p.part = append([]byte(nil), chunk[cut:]...)
	}
	if cut == 0 {
		return dst
	}
	return p.events(dst, format.MethodFeed, chunk[:cut])
}

// Finish implements format.Parser.
func (p *remoteParser) Finish(dst []format.Event) []format.Event {
	if len(p.part) > 0 {
		dst = p.events(dst, format.MethodFeed, p.part)
		p.part = nil
	}
	return p.events(dst, format.MethodFinish, nil)
}

// Err implements format.Parser.
func (p *remoteParser) Err() error { return p.err }

// Close implements format.Parser.
func (p *remoteParser) Close() error {
	if p.instance == nil {
		return nil
	}
	if p.err == nil {
		if in, err := json.Marshal(p.handle); err == nil {
			_, _ = p.instance.call(p.ctx, format.MethodClose, in) // the stream's end closes it too
		}
	}
	err := p.instance.close(p.ctx)
	p.instance = nil
	return err
}

func (p *remoteParser) events(dst []format.Event, method string, data []byte) []format.Event {
	if p.err != nil || p.instance == nil {
		return dst
	}
	var in []byte
	in, p.err = json.Marshal(struct {
		Stream string `json:"stream"`
		Data   []byte `json:"data,omitempty"`
	}{p.handle.Stream, data})
	var out struct {
		Events []format.Event `json:"events"`
	}
	if p.err == nil {
		p.err = p.ask(p.ctx, method, in, &out)
	}
	return append(dst, out.Events...)
}

// wholeRunes is the length of b without the unfinished rune at its end.
func wholeRunes(b []byte) int {
	for i := 1; i <= min(utf8.UTFMax-1, len(b)); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}
