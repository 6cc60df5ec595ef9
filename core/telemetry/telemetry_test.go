package telemetry

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock-dev/penstock/core/redact"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// store holds nothing, and fails when it is told to.
type store struct{ err error }

func (s *store) PutSession(context.Context, *trace.Session) error     { return s.err }
func (s *store) PutCall(context.Context, *trace.Call) error           { return s.err }
func (s *store) SetDelivered(context.Context, string) error           { return s.err }
func (s *store) Calls(context.Context, string) ([]*trace.Call, error) { return nil, s.err }

// stub is a collector.
type stub struct {
	*httptest.Server
	mu       sync.Mutex
	spans    map[string]*otlp.Span // by name
	about    map[string]any
	raw      strings.Builder
	path     string
	schema   string
	requests int
}

func newStub(t *testing.T) *stub {
	s := &stub{spans: map[string]*otlp.Span{}, about: map[string]any{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		var got collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(b, &got)
		}
		if err != nil {
			t.Error(err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.path = r.URL.Path
		s.requests++
		s.raw.Write(b)
		for _, rs := range got.ResourceSpans {
			for k, v := range attributes(rs.Resource.Attributes) {
				s.about[k] = v
			}
			for _, ss := range rs.ScopeSpans {
				s.schema = ss.SchemaUrl
				for _, span := range ss.Spans {
					s.spans[span.Name] = span
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func attributes(list []*common.KeyValue) map[string]any {
	out := map[string]any{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.Key] = v.IntValue
		case *common.AnyValue_DoubleValue:
			out[kv.Key] = v.DoubleValue
		case *common.AnyValue_BoolValue:
			out[kv.Key] = v.BoolValue
		case *common.AnyValue_ArrayValue:
			var all []any
			for _, x := range v.ArrayValue.Values {
				all = append(all, x.GetStringValue())
			}
			out[kv.Key] = all
		}
	}
	return out
}

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }

func ptr[T any](v T) *T { return &v }

const secret = "s3cret-of-the-service"

// play tells a Telemetry of one rollout: an agent that calls the model twice
// and a tool between, and a judge.
func play(t *testing.T, tel *Telemetry) {
	ctx := t.Context()
	calls := redact.Calls(tel.Calls(&store{}), redact.New(redact.Options{Values: []string{secret}}))
	tel.Event(run.Event{Type: run.RunStarted, Time: at(0)})
	tel.Event(run.Event{Type: run.RolloutStarted, Time: at(0), Rollout: "t~0"})
	tel.Event(run.Event{Type: run.StageStarted, Time: at(1), Rollout: "t~0", Stage: "solve", Kind: "spawn"})
	session := trace.Session{ID: "s-1", Rollout: "t~0", Stage: "solve", Attempt: "t~0~solve~1~1", ModelEntry: "policy", Opened: at(2)}
	require.NoError(t, calls.PutSession(ctx, &session))
	first := &trace.Call{
		ID: "s-1.1", Session: "s-1", ModelEntry: "policy", ModelServed: "qwen", Engine: "vllm", Capture: "exact", Format: "qwen3_coder", Dialect: "anthropic",
		Kind: trace.Main, Lineage: "s-1/main0", Stream: true, Status: trace.CallOK,
		Effective: chat.Sampling{Temperature: ptr(0.5), TopP: ptr(0.9), TopK: ptr(20), MaxTokens: ptr(100), Seed: ptr(int64(7)), Stop: []string{"END"}},
		Chat: &chat.Conversation{
			Messages: []chat.Message{{Role: chat.System, Parts: []chat.Part{{Type: chat.Text, Text: "be brief"}}}, {Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: "use " + secret}}}},
			Tools:    []chat.Tool{{Name: "bash"}},
		},
		Served: &chat.Reply{ID: "msg_1", Finish: chat.FinishToolCalls, Parts: []chat.Part{{Type: chat.ToolCall, ID: "call_1", Name: "bash", Arguments: json.RawMessage(`{"command":"ls"}`)}}},
		Usage:  chat.Usage{Input: 100, Output: 11, Cached: 60, CacheWrite: 30}, Cost: ptr(.25), CostBasis: "billed", Received: at(10), FirstByte: at(30), Done: at(130), Raw: "x",
	}
	require.NoError(t, calls.PutCall(ctx, first))
	second := &trace.Call{
		ID: "s-1.2", Session: "s-1", ModelEntry: "policy", ModelServed: "other", Engine: "bedrock", Kind: trace.Main, Fork: "edited_history",
		Status: trace.CallError, Error: &trace.Problem{Kind: "upstream", Message: "no answer to " + secret}, Received: at(200), Done: at(250),
		Chat: &chat.Conversation{Messages: append(first.Chat.Messages,
			chat.Message{Role: chat.Assistant, Parts: first.Served.Parts},
			chat.Message{Role: chat.ToolRole, Parts: []chat.Part{{Type: chat.ToolResult, ID: "call_1", IsError: true, Content: []chat.Part{{Type: chat.Text, Text: "denied " + secret}}}}})},
	}
	require.NoError(t, calls.PutCall(ctx, second))
	session.Closed = at(300)
	require.NoError(t, calls.PutSession(ctx, &session))
	tel.Event(run.Event{Type: run.StageRetried, Time: at(300), Rollout: "t~0", Stage: "solve", ExitStatus: "infra_error", Attempt: "t~0~solve~1~1"})
	tel.Event(run.Event{Type: run.StageEnded, Time: at(310), Rollout: "t~0", Stage: "solve", Kind: "spawn", Status: "completed", ExitStatus: "ok", Seconds: .309})
	tel.Event(run.Event{Type: run.StageStarted, Time: at(311), Rollout: "t~0", Stage: "answer", Kind: "judge"})
	tel.Event(run.Event{Type: run.StageEnded, Time: at(320), Rollout: "t~0", Stage: "answer", Kind: "judge", Status: "completed", Reward: ptr(1.0), Label: "right"})
	tel.Event(run.Event{Type: run.StageEnded, Time: at(321), Rollout: "t~0", Stage: "rows", Kind: "convert", Status: "skipped"})
	tel.Event(run.Event{Type: run.RolloutEnded, Time: at(330), Rollout: "t~0", Status: "completed", ExitStatus: "ok", Reward: ptr(1.0), Seconds: .33})
	tel.Event(run.Event{Type: run.RolloutStarted, Time: at(400), Rollout: "u~0"})
	tel.Event(run.Event{Type: run.StageStarted, Time: at(401), Rollout: "u~0", Stage: "broken", Kind: "spawn"})
	tel.Event(run.Event{Type: run.StageEnded, Time: at(402), Rollout: "u~0", Stage: "broken", Kind: "spawn", Status: "failed", ExitStatus: "sandbox_lost", Error: "words of an agent"})
}

func TestSpansOfARollout(t *testing.T) {
	s := newStub(t)
	tel, err := New(t.Context(), Options{OTLP: s.URL, Run: "r-1", Pipeline: "calc", Version: "v1"})
	require.NoError(t, err)
	play(t, tel)
	require.NoError(t, tel.Close(t.Context()))
	assert.Equal(t, "/v1/traces", s.path)
	assert.Equal(t, "penstock", s.about["service.name"])
	assert.Equal(t, "https://opentelemetry.io/schemas/1.41.0", s.schema)
	names := []string{"invoke_workflow calc", "stage solve", "stage answer", "invoke_agent solve", "chat qwen", "chat other", "execute_tool bash", "stage broken"}
	for _, n := range names {
		require.Contains(t, s.spans, n)
	}
	assert.Len(t, s.spans, len(names))
	child := func(name, of string) {
		assert.Equal(t, s.spans[of].SpanId, s.spans[name].ParentSpanId, "%s is not below %s", name, of)
		assert.Equal(t, s.spans[of].TraceId, s.spans[name].TraceId)
	}
	assert.Equal(t, s.spans["stage answer"].ParentSpanId, s.spans["stage solve"].ParentSpanId)
	child("invoke_agent solve", "stage solve")
	child("chat qwen", "invoke_agent solve")
	child("chat other", "invoke_agent solve")
	child("execute_tool bash", "invoke_agent solve")

	call := s.spans["chat qwen"]
	assert.Equal(t, otlp.Span_SPAN_KIND_CLIENT, call.Kind)
	assert.Equal(t, uint64(at(10).UnixNano()), call.StartTimeUnixNano)
	assert.Equal(t, uint64(at(130).UnixNano()), call.EndTimeUnixNano)
	got := attributes(call.Attributes)
	for key, want := range map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "vllm", "gen_ai.conversation.id": "s-1", "gen_ai.request.model": "qwen",
		"gen_ai.request.max_tokens": int64(100), "gen_ai.request.temperature": .5, "gen_ai.request.top_p": .9, "gen_ai.request.top_k": int64(20),
		"gen_ai.request.seed": int64(7), "gen_ai.request.stop_sequences": []any{"END"}, "gen_ai.request.stream": true,
		"gen_ai.response.id": "msg_1", "gen_ai.response.finish_reasons": []any{"tool_calls"}, "gen_ai.response.time_to_first_chunk": .02,
		"gen_ai.usage.input_tokens": int64(100), "gen_ai.usage.output_tokens": int64(11), "gen_ai.usage.cache_read.input_tokens": int64(60),
		"gen_ai.usage.cache_creation.input_tokens": int64(30), "penstock.cost.usd": .25, "penstock.cost.basis": "billed",
		"penstock.call": "s-1.1", "penstock.lineage.kind": "main", "penstock.redactions": int64(1),
	} {
		assert.Equal(t, want, got[key], key)
	}
	failed := s.spans["chat other"]
	assert.Equal(t, otlp.Status_STATUS_CODE_ERROR, failed.Status.Code)
	assert.Equal(t, "upstream", attributes(failed.Attributes)["error.type"])
	assert.Equal(t, "aws.bedrock", attributes(failed.Attributes)["gen_ai.provider.name"])
	assert.Equal(t, "edited_history", attributes(failed.Attributes)["penstock.fork"])

	tool := s.spans["execute_tool bash"]
	assert.Equal(t, uint64(at(130).UnixNano()), tool.StartTimeUnixNano)
	assert.Equal(t, uint64(at(200).UnixNano()), tool.EndTimeUnixNano)
	assert.Equal(t, "call_1", attributes(tool.Attributes)["gen_ai.tool.call.id"])
	assert.Equal(t, "tool_error", attributes(tool.Attributes)["error.type"])

	agent := s.spans["invoke_agent solve"]
	assert.Equal(t, int64(100), attributes(agent.Attributes)["gen_ai.usage.input_tokens"])
	assert.Equal(t, uint64(at(300).UnixNano()), agent.EndTimeUnixNano)

	judged := s.spans["stage answer"].Events
	require.Len(t, judged, 1)
	assert.Equal(t, "gen_ai.evaluation.result", judged[0].Name)
	assert.Equal(t, map[string]any{"gen_ai.evaluation.name": "answer", "gen_ai.evaluation.score.value": 1.0, "gen_ai.evaluation.score.label": "right"}, attributes(judged[0].Attributes))
	require.Len(t, s.spans["stage solve"].Events, 1)
	assert.Equal(t, "sandbox_lost", attributes(s.spans["stage broken"].Attributes)["error.type"])

	for _, words := range []string{secret, "be brief", "denied", "no answer", "words of an agent", `"command"`} {
		assert.NotContains(t, s.raw.String(), words, "content is sent only when it is asked for")
	}
}

func TestContentIsSentRedacted(t *testing.T) {
	s := newStub(t)
	tel, err := New(t.Context(), Options{OTLP: s.URL + "/", Content: true, Semconv: "genai-0.1", Pipeline: "calc"})
	require.NoError(t, err)
	play(t, tel)
	require.NoError(t, tel.Close(t.Context()))
	got := attributes(s.spans["chat qwen"].Attributes)
	assert.JSONEq(t, `[{"type":"text","content":"be brief"}]`, got["gen_ai.system_instructions"].(string))
	assert.JSONEq(t, `[{"role":"user","parts":[{"type":"text","content":"use [redacted:value]"}]}]`, got["gen_ai.input.messages"].(string))
	assert.JSONEq(t, `[{"role":"assistant","parts":[{"type":"tool_call","id":"call_1","name":"bash","arguments":{"command":"ls"}}],"finish_reason":"tool_calls"}]`, got["gen_ai.output.messages"].(string))
	tool := attributes(s.spans["execute_tool bash"].Attributes)
	assert.Equal(t, `{"command":"ls"}`, tool["gen_ai.tool.call.arguments"])
	assert.Equal(t, "denied [redacted:value]", tool["gen_ai.tool.call.result"])
	assert.Equal(t, "no answer to [redacted:value]", s.spans["chat other"].Status.Message)
	assert.NotContains(t, s.raw.String(), secret)
	require.Contains(t, s.spans, "invoke_agent calc")
	assert.Equal(t, "calc", attributes(s.spans["invoke_agent calc"].Attributes)["gen_ai.agent.name"])
}

func TestMetrics(t *testing.T) {
	tel, err := New(t.Context(), Options{Prometheus: true})
	require.NoError(t, err)
	play(t, tel)
	w := httptest.NewRecorder()
	tel.Metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	for _, want := range []string{
		`penstock_calls_total{kind="main",model_entry="policy",status="ok"} 1`,
		`penstock_calls_total{kind="main",model_entry="policy",status="error"} 1`,
		`gen_ai_client_operation_duration_seconds_count{error_type="",gen_ai_operation_name="chat",gen_ai_provider_name="vllm",gen_ai_request_model="qwen"} 1`,
		`gen_ai_client_operation_duration_seconds_count{error_type="upstream",gen_ai_operation_name="chat",gen_ai_provider_name="aws.bedrock",gen_ai_request_model="other"} 1`,
		`gen_ai_client_operation_time_to_first_chunk_seconds_sum{gen_ai_operation_name="chat",gen_ai_provider_name="vllm",gen_ai_request_model="qwen"} 0.02`,
		`gen_ai_server_time_per_output_token_seconds_sum{gen_ai_operation_name="chat",gen_ai_provider_name="vllm",gen_ai_request_model="qwen"} 0.01`,
		`gen_ai_client_token_usage_sum{gen_ai_operation_name="chat",gen_ai_provider_name="vllm",gen_ai_request_model="qwen",gen_ai_token_type="input"} 100`,
		`penstock_forks_total{class="edited_history",model_entry="policy"} 1`,
		`penstock_redactions_total{kind="value"} 4`,
		`penstock_cost_usd_total{basis="billed",model_entry="policy"} 0.25`,
		"penstock_sessions_open 0",
		"penstock_rollouts_running 1",
		`penstock_rollouts_total{exit_status="ok",status="completed"} 1`,
		"penstock_rollout_reward_sum 1",
		`penstock_stages_total{exit_status="ok",kind="spawn",stage="solve",status="completed"} 1`,
		`penstock_stage_retries_total{exit_status="infra_error",stage="solve"} 1`,
		"go_goroutines ", "process_resident_memory_bytes ",
	} {
		assert.Contains(t, w.Body.String(), want)
	}
	assert.NotContains(t, w.Body.String(), secret)
	require.NoError(t, tel.Close(t.Context()))
}

// TestOffCostsNothing: without settings nothing stands between the gateway and
// its store.
func TestOffCostsNothing(t *testing.T) {
	tel, err := New(t.Context(), Options{})
	require.NoError(t, err)
	require.Nil(t, tel)
	s := &store{}
	assert.Same(t, s, tel.Calls(s))
	assert.Nil(t, tel.Metrics())
	calls, ctx, c := tel.Calls(s), t.Context(), &trace.Call{}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_ = calls.PutCall(ctx, c)
		tel.Event(run.Event{Type: run.StageStarted})
	}))
	assert.NoError(t, tel.Close(ctx))
}

func TestAFailedCommitIsNoSpan(t *testing.T) {
	s := newStub(t)
	tel, err := New(t.Context(), Options{OTLP: s.URL, Prometheus: true})
	require.NoError(t, err)
	calls := tel.Calls(&store{err: io.ErrShortWrite})
	assert.ErrorIs(t, calls.PutCall(t.Context(), &trace.Call{}), io.ErrShortWrite)
	assert.ErrorIs(t, calls.PutSession(t.Context(), &trace.Session{}), io.ErrShortWrite)
	require.NoError(t, tel.Close(t.Context()))
	assert.Empty(t, s.spans)
}

// TestACollectorThatIsGoneIsOnlyLogged: the run goes on and ends.
func TestACollectorThatIsGoneIsOnlyLogged(t *testing.T) {
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer gone.Close()
	var log strings.Builder
	tel, err := New(t.Context(), Options{OTLP: gone.URL, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	play(t, tel)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, tel.Close(ctx))
	assert.Contains(t, log.String(), "spans could not be sent")
}

func TestTracesURL(t *testing.T) {
	for in, want := range map[string]string{
		"http://h:4318": "http://h:4318/v1/traces", "http://h:4318/": "http://h:4318/v1/traces",
		"https://h/api/public/otel": "https://h/api/public/otel/v1/traces", "http://h/v1/traces": "http://h/v1/traces",
	} {
		assert.Equal(t, want, tracesURL(in))
	}
}

func BenchmarkCall(b *testing.B) {
	for _, on := range []bool{false, true} {
		name := map[bool]string{false: "off", true: "on"}[on]
		b.Run(name, func(b *testing.B) {
			var tel *Telemetry
			if on {
				s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				defer s.Close()
				var err error
				if tel, err = New(b.Context(), Options{OTLP: s.URL, Prometheus: true}); err != nil {
					b.Fatal(err)
				}
				defer tel.Close(b.Context())
			}
			calls := tel.Calls(&store{})
			c := &trace.Call{ID: "s.1", Session: "s", Status: trace.CallOK, Received: at(0), FirstByte: at(1), Done: at(2), Usage: chat.Usage{Input: 5, Output: 5}}
			b.ReportAllocs()
			for b.Loop() {
				_ = calls.PutCall(b.Context(), c)
			}
		})
	}
}
