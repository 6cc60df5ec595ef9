package telemetry

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

const (
	scope = "github.com/penstock-dev/penstock"
	// queue is how many spans wait for the collector before more are dropped.
	queue = 16 << 10
	// maxTools is how many tool calls of a session wait for their results.
	maxTools = 256
	// between is the least time between two complaints about the collector.
	between = time.Minute
)

// spans makes a trace of each rollout: the rollout, its stages, the sessions
// of its agents, and below these their calls of the model and of tools.
type spans struct {
	names   names
	content bool
	run     string
	name    string // of the pipeline
	out     *sdktrace.TracerProvider
	tracer  oteltrace.Tracer

	mu       sync.Mutex
	rollouts map[string]*rolloutSpan
	sessions map[string]*sessionSpan
}

type rolloutSpan struct {
	oteltrace.Span
	ctx    context.Context
	stages map[string]oteltrace.Span
}

type sessionSpan struct {
	oteltrace.Span
	ctx   context.Context
	usage chat.Usage
	tools map[string]toolCall // by id, until their results come
}

type toolCall struct {
	name      string
	arguments []byte
	asked     time.Time
}

func newSpans(ctx context.Context, o Options) (*spans, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(tracesURL(o.OTLP)))
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "penstock"), attribute.String("service.version", o.Version)),
		resource.WithFromEnv()) // OTEL_SERVICE_NAME wins
	if err != nil {
		return nil, err
	}
	s := &spans{
		content: o.Content, run: o.Run, name: o.Pipeline,
		rollouts: map[string]*rolloutSpan{}, sessions: map[string]*sessionSpan{},
	}
	var known bool
	if s.names, known = versions[o.Semconv]; !known {
		s.names = versions["v1.41"]
	}
	s.out = sdktrace.NewTracerProvider(sdktrace.WithResource(about),
		sdktrace.WithBatcher(&quiet{SpanExporter: exporter, log: o.Log}, sdktrace.WithMaxQueueSize(queue)))
	s.tracer = s.out.Tracer(scope, oteltrace.WithInstrumentationVersion(o.Version), oteltrace.WithSchemaURL(s.names.schema))
	return s, nil
}

// tracesURL is where a collector takes traces.
func tracesURL(root string) string {
	const path = "/v1/traces"
	root = strings.TrimRight(root, "/")
	if strings.HasSuffix(root, path) {
		return root
	}
	return root + path
}

// quiet tells of failed exports in the log, and not too often.
type quiet struct {
	sdktrace.SpanExporter
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
	lost int
}

func (q *quiet) ExportSpans(ctx context.Context, list []sdktrace.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, list)
	if err == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost += len(list)
	if time.Since(q.last) > between {
		q.last = time.Now()
		q.log.Warn("spans could not be sent to the collector", "lost", q.lost, "error", err)
	}
	return nil
}

func (s *spans) close(ctx context.Context) error {
	s.mu.Lock()
	for _, x := range s.sessions {
		x.End()
	}
	for id := range s.rollouts {
		s.endRollout(id)
	}
	s.mu.Unlock()
	return s.out.Shutdown(ctx)
}

// event takes an event of the run.
func (s *spans) event(e run.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rollouts[e.Rollout]
	switch e.Type {
	case run.RolloutStarted:
		s.startRollout(e)
	case run.StageStarted:
		if r != nil {
			_, r.stages[e.Stage] = s.tracer.Start(r.ctx, "stage "+e.Stage, oteltrace.WithTimestamp(e.Time), oteltrace.WithAttributes(
				attribute.String("penstock.stage", e.Stage), attribute.String("penstock.stage.kind", e.Kind)))
		}
	case run.StageRetried:
		if r != nil && r.stages[e.Stage] != nil {
			r.stages[e.Stage].AddEvent("penstock.retry", oteltrace.WithTimestamp(e.Time), oteltrace.WithAttributes(
				attribute.String("penstock.attempt", e.Attempt), attribute.String("penstock.exit_status", e.ExitStatus)))
		}
	case run.StageEnded:
		if r != nil {
			s.endStage(r, e)
		}
	case run.RolloutEnded:
		if r != nil {
			s.outcome(r, e)
			if e.Reward != nil {
				r.SetAttributes(attribute.Float64("penstock.reward", *e.Reward))
			}
			s.endRollout(e.Rollout)
		}
	}
}

func (s *spans) startRollout(e run.Event) {
	ctx, span := s.tracer.Start(context.Background(), s.names.workflow+" "+s.name, oteltrace.WithNewRoot(), oteltrace.WithTimestamp(e.Time),
		oteltrace.WithAttributes(operation.String(s.names.workflow), s.names.workflowName.String(s.name),
			attribute.String("penstock.run", s.run), attribute.String("penstock.rollout", e.Rollout)))
	s.rollouts[e.Rollout] = &rolloutSpan{span, ctx, map[string]oteltrace.Span{}}
}

func (s *spans) endStage(r *rolloutSpan, e run.Event) {
	span := r.stages[e.Stage]
	if span == nil { // it never began
		r.AddEvent("penstock.stage.skipped", oteltrace.WithTimestamp(e.Time), oteltrace.WithAttributes(attribute.String("penstock.stage", e.Stage)))
		return
	}
	delete(r.stages, e.Stage)
	s.outcome(span, e)
	if e.Reward != nil {
		about := []attribute.KeyValue{evaluationName.String(e.Stage), score.Float64(*e.Reward)}
		if e.Label != "" {
			about = append(about, scoreLabel.String(e.Label))
		}
		span.AddEvent(evaluation, oteltrace.WithTimestamp(e.Time), oteltrace.WithAttributes(about...))
	}
	span.End(oteltrace.WithTimestamp(e.Time))
}

// outcome says how a stage or a rollout ended. Its error may quote an agent,
// so that it counts as content.
func (s *spans) outcome(span oteltrace.Span, e run.Event) {
	span.SetAttributes(attribute.String("penstock.status", e.Status), attribute.String("penstock.exit_status", e.ExitStatus))
	if e.Status != trace.Failed {
		return
	}
	kind, words := "_OTHER", ""
	if e.ExitStatus != "" && e.ExitStatus != "ok" {
		kind = e.ExitStatus
	}
	if s.content {
		words = e.Error
	}
	span.SetAttributes(errorType.String(kind))
	span.SetStatus(codes.Error, words)
}

func (s *spans) endRollout(id string) {
	r := s.rollouts[id]
	delete(s.rollouts, id)
	for _, stage := range slices.Sorted(maps.Keys(r.stages)) {
		r.stages[stage].End() // the run was interrupted in it
	}
	r.End()
}

// session begins or ends the span of an agent.
func (s *spans) session(x *trace.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.sessions[x.ID]; open != nil && !x.Closed.IsZero() {
		delete(s.sessions, x.ID)
		open.SetAttributes(inputTokens.Int(open.usage.Input), outputTokens.Int(open.usage.Output))
		open.End(oteltrace.WithTimestamp(x.Closed))
	}
	if !x.Closed.IsZero() || s.sessions[x.ID] != nil {
		return
	}
	ctx, name := context.Background(), x.Stage
	if r := s.rollouts[x.Rollout]; r != nil {
		ctx = r.ctx
		if stage := r.stages[x.Stage]; stage != nil {
			ctx = oteltrace.ContextWithSpan(ctx, stage)
		}
	}
	if name == "" {
		name = x.ModelEntry
	}
	ctx, span := s.tracer.Start(ctx, "invoke_agent "+name, oteltrace.WithTimestamp(x.Opened), oteltrace.WithAttributes(
		operation.String("invoke_agent"), agentName.String(name), conversation.String(x.ID), agentID.String(x.Attempt),
		attribute.String("penstock.run", s.run), attribute.String("penstock.model_entry", x.ModelEntry)))
	s.sessions[x.ID] = &sessionSpan{Span: span, ctx: ctx, tools: map[string]toolCall{}}
}

// call makes the span of a call of the model, and those of the tools whose
// results it brought.
func (s *spans) call(c *trace.Call) {
	s.mu.Lock()
	x := s.sessions[c.Session]
	ctx := context.Background()
	var done []toolSpan
	if x != nil {
		ctx = x.ctx
		x.usage = x.usage.Add(c.Usage)
		done = x.turn(c)
	}
	s.mu.Unlock()
	for _, t := range done {
		s.tool(ctx, t, c.Received)
	}
	_, span := s.tracer.Start(ctx, "chat "+c.ModelServed, oteltrace.WithSpanKind(oteltrace.SpanKindClient),
		oteltrace.WithTimestamp(c.Received), oteltrace.WithAttributes(request(c)...))
	span.SetAttributes(response(c)...)
	if s.content {
		span.SetAttributes(content(c)...)
	}
	if c.Error != nil {
		words := ""
		if s.content {
			words = c.Error.Message
		}
		span.SetStatus(codes.Error, words)
	}
	span.End(oteltrace.WithTimestamp(c.Done))
}

// toolSpan is a tool call that has its result.
type toolSpan struct {
	toolCall
	id     string
	result *chat.Part
}

// turn takes the results that came with a call, and keeps the tool calls of
// its reply. An agent runs a tool between the two.
func (x *sessionSpan) turn(c *trace.Call) (done []toolSpan) {
	if c.Chat != nil && len(x.tools) > 0 {
		for i := len(c.Chat.Messages) - 1; i >= 0 && c.Chat.Messages[i].Role != chat.Assistant; i-- {
			for k := range c.Chat.Messages[i].Parts {
				p := &c.Chat.Messages[i].Parts[k]
				if t, ok := x.tools[p.ID]; ok && p.Type == chat.ToolResult {
					delete(x.tools, p.ID)
					done = append(done, toolSpan{t, p.ID, p})
				}
			}
		}
	}
	if c.Served != nil && c.Status == trace.CallOK {
		for _, p := range c.Served.Parts {
			if p.Type == chat.ToolCall && len(x.tools) < maxTools {
				x.tools[p.ID] = toolCall{p.Name, p.Arguments, c.Done}
			}
		}
	}
	return done
}

func (s *spans) tool(ctx context.Context, t toolSpan, ended time.Time) {
	about := []attribute.KeyValue{
		operation.String("execute_tool"), toolName.String(t.name), toolType.String("function"), toolCallID.String(t.id),
	}
	if s.content {
		about = append(about, toolArguments.String(string(t.arguments)), toolResult.String(chat.PlainText(t.result.Content)))
	}
	_, span := s.tracer.Start(ctx, "execute_tool "+t.name, oteltrace.WithTimestamp(t.asked), oteltrace.WithAttributes(about...))
	if t.result.IsError {
		span.SetAttributes(errorType.String("tool_error"))
		span.SetStatus(codes.Error, "")
	}
	span.End(oteltrace.WithTimestamp(ended))
}
