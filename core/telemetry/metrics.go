package telemetry

import (
	"cmp"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/trace"
)

// metrics are those of one run. Names with gen_ai follow the conventions for
// generative AI, of version 1.41. Labels have few values: what names a single
// rollout, session or call is in spans.
type metrics struct {
	handler http.Handler

	calls      *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	firstChunk *prometheus.HistogramVec
	perToken   *prometheus.HistogramVec
	tokens     *prometheus.HistogramVec
	forks      *prometheus.CounterVec
	redactions *prometheus.CounterVec
	cost       *prometheus.CounterVec
	sessions   prometheus.Gauge
	closed     *prometheus.CounterVec
	bytes      prometheus.Counter
	incomplete prometheus.Counter
	unrecorded prometheus.Counter

	running      prometheus.Gauge
	rollouts     *prometheus.CounterVec
	rolloutTime  prometheus.Histogram
	reward       prometheus.Histogram
	stages       *prometheus.CounterVec
	stageTime    *prometheus.HistogramVec
	stageRetries *prometheus.CounterVec
}

// The conventions' bounds.
var (
	secondBounds     = []float64{.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	firstChunkBounds = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
	perTokenBounds   = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5}
	tokenBounds      = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	stageBounds      = []float64{.1, .5, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400}
	rewardBounds     = []float64{-1, -.5, 0, .25, .5, .75, .9, 1}
)

func newMetrics() (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	single := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	histogram := func(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	genAI := []string{"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"}
	m := &metrics{
		calls:      counter("penstock_calls_total", "Calls of models, by how they ended.", "model_entry", "status", "kind"),
		duration:   histogram("gen_ai_client_operation_duration_seconds", "How long calls took.", secondBounds, append(genAI, "error_type")...),
		firstChunk: histogram("gen_ai_client_operation_time_to_first_chunk_seconds", "How long the first chunk took.", firstChunkBounds, genAI...),
		perToken:   histogram("gen_ai_server_time_per_output_token_seconds", "Time per token after the first.", perTokenBounds, genAI...),
		tokens:     histogram("gen_ai_client_token_usage", "Tokens of calls.", tokenBounds, append(genAI, "gen_ai_token_type")...),
		forks:      counter("penstock_forks_total", "Calls that did not extend the ids of an earlier one, by the reason.", "model_entry", "class"),
		redactions: counter("penstock_redactions_total", "Secrets taken out of records.", "kind"),
		cost:       counter("penstock_cost_usd_total", "What calls cost, as far as it is known, in US dollars.", "model_entry", "basis"),
		sessions:   gauge("penstock_sessions_open", "Sessions that are open."),
		closed:     counter("penstock_sessions_closed_total", "Sessions that were closed; idle are those that nobody closed.", "end"),
		bytes:      single("penstock_trace_bytes_total", "Bytes of records that were stored."),
		incomplete: single("penstock_sessions_incomplete_total", "Sessions whose trace reached a limit."),
		unrecorded: single("penstock_calls_unrecorded_total", "Calls that were refused as their records had no room."),

		running:      gauge("penstock_rollouts_running", "Rollouts in progress."),
		rollouts:     counter("penstock_rollouts_total", "Rollouts that ended.", "status", "exit_status"),
		rolloutTime:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "penstock_rollout_duration_seconds", Help: "How long rollouts took.", Buckets: stageBounds}),
		reward:       prometheus.NewHistogram(prometheus.HistogramOpts{Name: "penstock_rollout_reward", Help: "Rewards of rollouts.", Buckets: rewardBounds}),
		stages:       counter("penstock_stages_total", "Stages that ended.", "stage", "kind", "status", "exit_status"),
		stageTime:    histogram("penstock_stage_duration_seconds", "How long stages took.", stageBounds, "stage", "kind"),
		stageRetries: counter("penstock_stage_retries_total", "Tries of stages that were followed by another.", "stage", "exit_status"),
	}
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		m.calls, m.duration, m.firstChunk, m.perToken, m.tokens, m.forks, m.redactions, m.cost, m.sessions, m.closed, m.bytes, m.incomplete, m.unrecorded,
		m.running, m.rollouts, m.rolloutTime, m.reward, m.stages, m.stageTime, m.stageRetries,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	m.handler = promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
	return m, nil
}

func (m *metrics) event(e run.Event) {
	switch e.Type {
	case run.RolloutStarted:
		m.running.Inc()
	case run.RolloutEnded:
		m.running.Dec()
		m.rollouts.WithLabelValues(e.Status, e.ExitStatus).Inc()
		m.rolloutTime.Observe(e.Seconds)
		if e.Reward != nil {
			m.reward.Observe(*e.Reward)
		}
	case run.StageRetried:
		m.stageRetries.WithLabelValues(e.Stage, e.ExitStatus).Inc()
	case run.StageEnded:
		m.stages.WithLabelValues(e.Stage, e.Kind, e.Status, e.ExitStatus).Inc()
		m.stageTime.WithLabelValues(e.Stage, e.Kind).Observe(e.Seconds)
	}
}

func (m *metrics) session(s *trace.Session) {
	switch {
	case !s.Closed.IsZero():
		m.sessions.Dec()
		m.closed.WithLabelValues(cmp.Or(s.End, "closed")).Inc()
		m.unrecorded.Add(float64(s.Unrecorded))
	case s.Incomplete != "": // it was opened before
		m.incomplete.Inc()
	default:
		m.sessions.Inc()
	}
}

func (m *metrics) call(c *trace.Call) {
	m.calls.WithLabelValues(c.ModelEntry, c.Status, string(c.Kind)).Inc()
	m.bytes.Add(float64(c.Stored))
	if c.Cost != nil {
		m.cost.WithLabelValues(c.ModelEntry, c.CostBasis).Add(*c.Cost)
	}
	for _, r := range c.Redactions {
		m.redactions.WithLabelValues(r.Kind).Inc()
	}
	if c.Replays != "" || c.Status == trace.CallBudget || c.Status == trace.CallInvalid {
		return // nothing was generated
	}
	if c.Fork != "" {
		m.forks.WithLabelValues(c.ModelEntry, c.Fork).Inc()
	}
	about := []string{"chat", providerOf(c.Engine), c.ModelServed}
	kind := ""
	if c.Error != nil {
		kind = c.Error.Kind
	}
	m.duration.WithLabelValues(append(about, kind)...).Observe(c.Done.Sub(c.Received).Seconds())
	if c.Usage.Input > 0 {
		m.tokens.WithLabelValues(append(about, "input")...).Observe(float64(c.Usage.Input))
	}
	if c.Usage.Output > 0 {
		m.tokens.WithLabelValues(append(about, "output")...).Observe(float64(c.Usage.Output))
	}
	if c.FirstByte.IsZero() {
		return
	}
	m.firstChunk.WithLabelValues(about...).Observe(c.FirstByte.Sub(c.Received).Seconds())
	if c.Usage.Output > 1 {
		m.perToken.WithLabelValues(about...).Observe(c.Done.Sub(c.FirstByte).Seconds() / float64(c.Usage.Output-1))
	}
}
