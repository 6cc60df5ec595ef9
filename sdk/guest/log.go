//go:build wasip1

package guest

import (
	"context"
	"log/slog"
	"unsafe"
)

// init makes slog's default logger write to the host's log.
func init() { slog.SetDefault(slog.New(newHandler())) }

// handler writes records as JSON lines to the log import.
type handler struct {
	slog.Handler
	level *int32
}

type sink struct{ level *int32 }

func newHandler() handler {
	level := new(int32)
	return handler{slog.NewJSONHandler(sink{level}, &slog.HandlerOptions{Level: slog.LevelDebug}), level}
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	*h.level = int32(r.Level)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.level}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.level}
}

func (s sink) Write(p []byte) (int, error) {
	n := len(p)
	if n > 0 && p[n-1] == '\n' {
		p = p[:n-1]
	}
	if len(p) > 0 {
		logWrite(*s.level, unsafe.Pointer(unsafe.SliceData(p)), uint32(len(p)))
	}
	return n, nil
}
