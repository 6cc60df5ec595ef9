package cli

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/telemetry"
)

// flushTime is how long the end of a command waits for a collector.
const flushTime = 5 * time.Second

// telemetry makes what the settings ask for, nil if that is nothing, and what
// ends it.
func (a *App) telemetry(ctx context.Context, p *pipeline.Pipeline, folder *run.Folder) (*telemetry.Telemetry, func() error, error) {
	s := a.settings.Telemetry
	o := telemetry.Options{
		OTLP: s.OTLP, Content: s.Content, Semconv: s.Semconv, Prometheus: s.Prometheus,
		Run: folder.ID, Pipeline: p.Name, Version: a.Version, Log: a.log,
	}
	if strings.Contains(os.Getenv("OTEL_SEMCONV_STABILITY_OPT_IN"), "gen_ai_latest_experimental") {
		o.Semconv = "genai-0.1"
	}
	t, err := telemetry.New(ctx, o)
	if err != nil {
		return nil, nil, &exitError{exitUsage, err}
	}
	return t, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := t.Close(ctx); err != nil {
			// What a run made is there; only spans of it are lost.
			a.log.Warn("the collector did not take all spans", "error", err)
		}
		return nil
	}, nil
}
