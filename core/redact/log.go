package redact

import (
	"context"
	"fmt"
	"log/slog"
)

// Handler is a handler of logs whose words are redacted before h gets them. r
// is asked for each record, since logs begin before secrets are known; it may
// return nil.
func Handler(h slog.Handler, r func() *Redactor) slog.Handler { return &handler{h, r} }

type handler struct {
	slog.Handler
	r func() *Redactor
}

func (h *handler) Handle(ctx context.Context, rec slog.Record) error {
	r := h.r()
	if r == nil {
		return h.Handler.Handle(ctx, rec)
	}
	out := slog.NewRecord(rec.Time, rec.Level, r.String(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(r.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	r := h.r()
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = r.attr(a)
	}
	return &handler{h.Handler.WithAttrs(out), h.r}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.r}
}

// attr redacts a value of a log. One that is no text becomes one if it says a
// secret.
func (r *Redactor) attr(a slog.Attr) slog.Attr {
	if r == nil {
		return a
	}
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(r.String(a.Value.String()))
	case slog.KindAny:
		if text := fmt.Sprintf("%+v", a.Value.Any()); r.Has(text) {
			a.Value = slog.StringValue(r.String(text))
		}
	case slog.KindGroup:
		group := a.Value.Group()
		out := make([]slog.Attr, len(group))
		for i := range group {
			out[i] = r.attr(group[i])
		}
		a.Value = slog.GroupValue(out...)
	}
	return a
}
