package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// The control routes are for the operator's token alone:
//
//	GET    /sessions             the sessions that are open
//	POST   /sessions             opens one: {model?, task?, budget?, timeout?}
//	GET    /sessions/ID          what one has used
//	GET    /sessions/ID/calls    its calls so far
//	POST   /sessions/ID/pop      closes it, waits for calls in flight (?wait=30s)
//	                             and gives its calls; the same again when repeated
//	POST   /sessions/ID/clear    closes and forgets it
//	DELETE /sessions/ID          closes it
//	GET    /metrics              for Prometheus, if metrics are collected
//
// Calls come from the store, which is where they stay.

// popWait is how long pop waits for calls in flight unless it is told.
const popWait = 30 * time.Second

// CallReader is a CallStore that gives back what it holds. Without one the
// control routes give no calls.
type CallReader interface {
	Calls(ctx context.Context, session string) ([]*trace.Call, error)
}

// isControl reports a control route. A path with a session's token in it is
// none.
func isControl(r *http.Request) bool {
	return r.URL.Path == "/sessions" || r.URL.Path == "/metrics" || strings.HasPrefix(r.URL.Path, "/sessions/")
}

// serveControl serves the operator.
func (g *Gateway) serveControl(in *inbound) {
	if !g.isOperator(in) {
		in.fail(wire.Errorf(wire.Unauthorized, "this route needs the operator's token"))
		return
	}
	if foreignOrigin(in.r, g.origins) {
		in.fail(wire.Errorf(wire.Forbidden, "requests of other origins are refused"))
		return
	}
	if in.path == "/metrics" {
		g.serveMetrics(in)
		return
	}
	id, action, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(in.path, "/sessions"), "/"), "/")
	var e *wire.Error
	switch in.r.Method + " " + action {
	case "GET ":
		e = g.controlGet(in, id)
	case "POST ":
		e = g.controlOpen(in, id)
	case "DELETE ":
		e = g.controlClose(in, id, false)
	case "GET calls":
		e = g.controlCalls(in, id)
	case "POST pop":
		e = g.controlPop(in, id)
	case "POST clear":
		e = g.controlClose(in, id, true)
	default:
		e = wire.Errorf(wire.NoRoute, "no route %s %s", in.r.Method, printable(in.path))
	}
	if e != nil {
		in.fail(e)
	}
}

func (g *Gateway) serveMetrics(in *inbound) {
	if g.o.Metrics == nil || in.r.Method != http.MethodGet {
		in.fail(wire.Errorf(wire.NoRoute, "no route %s /metrics; it is on with the setting telemetry.prometheus", in.r.Method))
		return
	}
	g.o.Metrics.ServeHTTP(in.w, in.r)
}

// sessionView is a session as the operator sees it.
type sessionView struct {
	trace.Session
	Calls        int        `json:"calls"`
	Turns        int        `json:"turns"`
	Usage        chat.Usage `json:"usage"`
	Cost         *float64   `json:"cost"` // in US dollars, null where it isn't known
	CostBasis    cost.Basis `json:"cost_basis"`
	BudgetHit    bool       `json:"budget_hit"`
	LastActivity time.Time  `json:"last_activity"`
	InFlight     int        `json:"in_flight"`
}

func (s *Session) view() sessionView {
	st := s.Stats()
	return sessionView{s.mark(func(*trace.Session) {}), st.Calls, st.Turns, st.Usage, st.Cost.Amount(), st.Cost.Basis, st.BudgetHit, st.LastActivity, s.atOnce()}
}

// controlGet answers with one session, or all.
func (g *Gateway) controlGet(in *inbound, id string) *wire.Error {
	if id != "" {
		s, e := g.session(id)
		if e != nil {
			return e
		}
		if s == nil {
			return wire.Errorf(wire.NoRoute, "session %s is closed", printable(id))
		}
		return in.json(s.view())
	}
	g.mu.Lock()
	open := make([]*Session, 0, len(g.sessions))
	for _, s := range g.sessions {
		open = append(open, s)
	}
	g.mu.Unlock()
	slices.SortFunc(open, func(a, b *Session) int { return strings.Compare(a.ID(), b.ID()) })
	views := make([]sessionView, 0, len(open))
	for _, s := range open {
		views = append(views, s.view())
	}
	return in.json(map[string]any{"sessions": views})
}

// session finds a session by its public id: an open one, or nil for one that
// was opened here and is closed.
func (g *Gateway) session(id string) (*Session, *wire.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.sessions {
		if s.ID() == id {
			return s, nil
		}
	}
	if _, known := g.opened[id]; known {
		return nil, nil
	}
	return nil, wire.Errorf(wire.NoRoute, "no session %s", printable(id))
}

// openRequest is the body of POST /sessions.
type openRequest struct {
	Model   string          `json:"model"` // an entry's key; the first one by default
	Task    json.RawMessage `json:"task"`
	Budget  Budget          `json:"budget"`
	Timeout string          `json:"timeout"` // such as "10m"
}

// controlOpen opens a session for somebody who starts an agent by hand.
func (g *Gateway) controlOpen(in *inbound, id string) *wire.Error {
	if id != "" {
		return wire.Errorf(wire.NoRoute, "no route %s %s", in.r.Method, printable(in.path))
	}
	body, err := io.ReadAll(http.MaxBytesReader(in.w, in.sent, 1<<20))
	if err != nil {
		return wire.Errorf(wire.TooLarge, "%v", err)
	}
	var req openRequest
	if len(body) > 0 {
		if err := json.Unmarshal(body, &req); err != nil {
			return wire.Errorf(wire.Invalid, "the request is not valid: %v", err)
		}
	}
	spec := SessionSpec{Task: req.Task, Budget: req.Budget}
	if req.Timeout != "" {
		d, err := time.ParseDuration(req.Timeout)
		if err != nil || d <= 0 {
			return wire.Errorf(wire.Invalid, "timeout %q is no duration such as 10m", req.Timeout)
		}
		spec.Deadline = time.Now().Add(d)
	}
	for _, m := range g.o.Models {
		if req.Model == "" || m.Entry == req.Model {
			spec.Model = m
			break
		}
	}
	if spec.Model == nil {
		return wire.Errorf(wire.NotFound, "no model %q", req.Model)
	}
	if b := req.Budget; b.Calls < 0 || b.Turns < 0 || b.Tokens < 0 || b.USD < 0 {
		return wire.Errorf(wire.Invalid, "a budget can't be negative")
	} else if b.USD > 0 && spec.Model.prices() == nil {
		return wire.Errorf(wire.Invalid, "a budget in USD needs prices, and model %s has none", spec.Model.Entry)
	}
	spec.Session.ID = g.o.NewSession()
	s, err := g.Open(in.r.Context(), spec)
	switch {
	case errors.Is(err, ErrTooManySessions):
		return wire.Errorf(wire.RateLimited, "%v", err)
	case err != nil:
		return wire.Errorf(wire.Internal, "%v", err)
	}
	g.mu.Lock()
	g.opened[s.ID()] = time.Time{}
	g.mu.Unlock()
	return in.json(map[string]any{
		"id": s.ID(), "token": s.Token(), "base_url": s.BaseURL(), "root": s.Root(), "model": spec.Model.served(),
	})
}

// controlClose closes a session; forget makes its id unknown here.
func (g *Gateway) controlClose(in *inbound, id string, forget bool) *wire.Error {
	s, e := g.session(id)
	if e != nil {
		return e
	}
	complete := g.drain(in, s)
	if forget {
		g.mu.Lock()
		delete(g.opened, id)
		g.mu.Unlock()
	}
	return in.json(map[string]any{"id": id, "complete": complete})
}

// drain closes a session and waits for its calls, as long as the request
// says; true when none is left.
func (g *Gateway) drain(in *inbound, s *Session) bool {
	if s == nil {
		return true
	}
	wait := popWait
	if d, err := time.ParseDuration(in.r.URL.Query().Get("wait")); err == nil && d >= 0 {
		wait = d
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(in.r.Context()), wait)
	defer cancel()
	g.mu.Lock()
	g.opened[s.ID()] = time.Now() // so that the same request can be made again
	g.mu.Unlock()
	if err := s.Close(ctx); err != nil {
		g.log.Warn("session closed by the operator", "session", s.ID(), "error", err)
		return false
	}
	return true
}

// controlCalls answers with the calls of a session so far.
func (g *Gateway) controlCalls(in *inbound, id string) *wire.Error {
	if _, e := g.session(id); e != nil {
		return e
	}
	calls, e := g.read(in.r.Context(), id)
	if e != nil {
		return e
	}
	return in.json(map[string]any{"id": id, "calls": calls})
}

// controlPop closes a session and answers with its calls.
func (g *Gateway) controlPop(in *inbound, id string) *wire.Error {
	s, e := g.session(id)
	if e != nil {
		return e
	}
	complete := g.drain(in, s)
	calls, e := g.read(in.r.Context(), id)
	if e != nil {
		return e
	}
	return in.json(map[string]any{"id": id, "complete": complete, "calls": calls})
}

// callView is a call with its logprobs, null where the engine gave none.
type callView struct {
	*trace.Call
	Logprobs []*float64 `json:"logprobs,omitempty"`
}

// read reads the calls of a session from the store.
func (g *Gateway) read(ctx context.Context, id string) ([]callView, *wire.Error) {
	reader, ok := g.calls.(CallReader)
	if !ok {
		return nil, wire.Errorf(wire.NoRoute, "this gateway's store can't be read")
	}
	calls, err := reader.Calls(ctx, id)
	if err != nil {
		return nil, wire.Errorf(wire.Internal, "read the calls of session %s: %v", id, err)
	}
	out := make([]callView, 0, len(calls))
	for _, c := range calls {
		v := callView{Call: c}
		for i := range c.Logprobs {
			var p *float64
			if !math.IsNaN(c.Logprobs[i]) && !math.IsInf(c.Logprobs[i], 0) {
				p = &c.Logprobs[i]
			}
			v.Logprobs = append(v.Logprobs, p)
		}
		out = append(out, v)
	}
	return out, nil
}

// json answers a control route.
func (in *inbound) json(v any) *wire.Error {
	body, err := chat.Marshal(v)
	if err != nil {
		return wire.Errorf(wire.Internal, "write the answer: %v", err)
	}
	// An error here means that the operator has gone.
	_ = in.body(http.StatusOK, body)
	return nil
}
