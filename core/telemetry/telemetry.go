// Package telemetry tells others how a run goes: spans to an OpenTelemetry
// collector, metrics to Prometheus. It stands beside the store and the log of
// events, reads what these are given, already redacted, and changes nothing.
//
// What never enters: anything that a run needs. Without settings there is no
// Telemetry at all, and a collector that is gone costs spans and nothing else.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
)

// Options say what is told to whom.
type Options struct {
	// OTLP is the root of a collector that takes OTLP over HTTP, such as
	// http://localhost:4318; "" sends no spans. Its headers, such as
	// credentials, come from OTEL_EXPORTER_OTLP_HEADERS.
	OTLP string
	// Content puts what was said into spans: messages, tools, tool calls.
	Content bool
	// Semconv is the version of the conventions that names follow: v1.41, the
	// default, or genai-0.1.
	Semconv string
	// Prometheus collects metrics.
	Prometheus bool

	Run, Pipeline, Version string
	Log                    *slog.Logger
}

// Store is where sessions and calls are committed, as the gateway knows it.
type Store interface {
	PutSession(ctx context.Context, s *trace.Session) error
	PutCall(ctx context.Context, c *trace.Call) error
	SetDelivered(ctx context.Context, call string) error
	Calls(ctx context.Context, session string) ([]*trace.Call, error)
}

// Telemetry makes spans and metrics of one run. A nil one does nothing.
type Telemetry struct {
	spans   *spans
	metrics *metrics
}

// New makes what the options ask for; nil if that is nothing.
func New(ctx context.Context, o Options) (*Telemetry, error) {
	if o.OTLP == "" && !o.Prometheus {
		return nil, nil
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t := &Telemetry{}
	var err error
	if o.OTLP != "" {
		if t.spans, err = newSpans(ctx, o); err != nil {
			return nil, fmt.Errorf("send spans to %s: %w", o.OTLP, err)
		}
	}
	if o.Prometheus {
		if t.metrics, err = newMetrics(); err != nil {
			return nil, errors.Join(fmt.Errorf("collect metrics: %w", err), t.Close(ctx))
		}
	}
	return t, nil
}

// Metrics serves the metrics; nil if none are collected.
func (t *Telemetry) Metrics() http.Handler {
	if t == nil || t.metrics == nil {
		return nil
	}
	return t.metrics.handler
}

// Event takes an event of the run.
func (t *Telemetry) Event(e run.Event) {
	if t == nil {
		return
	}
	if t.spans != nil {
		t.spans.event(e)
	}
	if t.metrics != nil {
		t.metrics.event(e)
	}
}

// Calls is a store of which telemetry sees what was committed. Of a nil
// Telemetry it is s itself.
func (t *Telemetry) Calls(s Store) Store {
	if t == nil {
		return s
	}
	return &observed{s, t}
}

type observed struct {
	Store
	t *Telemetry
}

func (o *observed) PutSession(ctx context.Context, s *trace.Session) error {
	err := o.Store.PutSession(ctx, s)
	if err != nil {
		return err
	}
	if o.t.spans != nil {
		o.t.spans.session(s)
	}
	if o.t.metrics != nil {
		o.t.metrics.session(s)
	}
	return nil
}

func (o *observed) PutCall(ctx context.Context, c *trace.Call) error {
	err := o.Store.PutCall(ctx, c)
	if err != nil {
		return err
	}
	if o.t.spans != nil {
		o.t.spans.call(c)
	}
	if o.t.metrics != nil {
		o.t.metrics.call(c)
	}
	return nil
}

// Close sends what waits, until ctx ends, and ends what New started.
func (t *Telemetry) Close(ctx context.Context) error {
	if t == nil || t.spans == nil {
		return nil
	}
	return t.spans.close(ctx)
}
