// Package gateway is the HTTP front of the model. It authenticates the
// session of an agent, decodes its call, runs hooks, has the prompt assembled
// and the reply generated, streams the reply as it comes, and commits the
// call before the client learns that it is over.
//
// What never enters: what only one dialect, one format or one engine knows,
// how agents are started, and what becomes of a record.
package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/penstock-dev/penstock/core/point"
	"github.com/penstock-dev/penstock/core/trace"
)

// CallStore is where sessions and calls are committed. PutCall returns once
// the call is committed.
type CallStore interface {
	PutSession(ctx context.Context, s *trace.Session) error
	PutCall(ctx context.Context, c *trace.Call) error
	SetDelivered(ctx context.Context, call string) error
}

// shutdownGrace is what the last bytes of answers may take to go out.
const shutdownGrace = 300 * time.Millisecond

// Options are the settings of a gateway. Only Calls must be given.
type Options struct {
	// Addr is a loopback address; the default is 127.0.0.1:0, that is a port
	// that the system picks.
	Addr  string
	Calls CallStore
	Log   *slog.Logger
	// OperatorToken opens the control routes; without one they are closed.
	OperatorToken string
	// Metrics serves /metrics to the operator; without it there is no such
	// route.
	Metrics http.Handler
	// KeepAlive is how long a streamed reply may be silent, 15 s by default.
	KeepAlive time.Duration
	// BodyLimit is the size of the largest request in bytes, 32 MiB by
	// default.
	BodyLimit int64
	// Limits bound requests, sessions and what these leave in the store.
	Limits Limits
	// SessionTTL is how long a session without a deadline may be idle before it
	// is closed, 24 h by default.
	SessionTTL time.Duration
	// Stored is how many bytes of records are in the store already.
	Stored int64
	// WriteTimeout is how long a client may leave a reply unread before it
	// counts as gone, 2 min by default.
	WriteTimeout time.Duration
	// ObserverQueue is how many events wait for one observing hook before
	// further ones are dropped and counted, 256 by default.
	ObserverQueue int
	// Models are those for which the operator may open sessions over HTTP,
	// and NewSession makes the ids of these, s-<ULID> by default.
	Models     []*Model
	NewSession func() string
	// Dialects are the dialects served, the first being the one in which
	// unknown routes are answered. The default is DefaultDialects.
	Dialects []Dialect
}

// Limits of requests and of sessions. 0 is the default of each.
type Limits struct {
	Calls    int // of a session at once, 128 by default; more are a 429
	Messages int // of a request, 20000 by default; more are a 413
	Tools    int // of a request, 2000 by default; more are a 413
	// Sessions are open at once, 10000 by default.
	Sessions int
	// SessionBytes are what the records of a session take in the store, 2 GiB by
	// default; TraceBytes what those of all do, with no bound by default. Once
	// there, calls are refused with a 403, as a record is never left out.
	SessionBytes, TraceBytes int64
}

func (o Options) withDefaults() Options {
	def := func(n *int, value int) {
		if *n <= 0 {
			*n = value
		}
	}
	def(&o.Limits.Calls, 128)
	def(&o.Limits.Messages, 20000)
	def(&o.Limits.Tools, 2000)
	def(&o.Limits.Sessions, 10_000)
	if o.Limits.SessionBytes <= 0 {
		o.Limits.SessionBytes = 2 << 30
	}
	if o.SessionTTL <= 0 {
		o.SessionTTL = 24 * time.Hour
	}
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.BodyLimit <= 0 {
		o.BodyLimit = 32 << 20
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 2 * time.Minute
	}
	def(&o.ObserverQueue, 256)
	if o.NewSession == nil {
		o.NewSession = func() string { return "s-" + ulid.Make().String() }
	}
	if len(o.Dialects) == 0 {
		o.Dialects = DefaultDialects()
	}
	return o
}

// Gateway listens on a loopback port and serves the sessions that are open.
type Gateway struct {
	o        Options
	calls    CallStore
	log      *slog.Logger
	addr     *net.TCPAddr
	server   *http.Server
	served   chan struct{} // closed when the server has ended
	operator [sha256.Size]byte
	hosts    map[string]bool // by which Host headers may call it
	origins  map[string]bool // of its own pages
	watch    *point.Watch
	closing  atomic.Bool
	stored   atomic.Int64  // bytes of records
	stop     chan struct{} // ends sweep
	swept    chan struct{} // closed when it has ended

	mu       sync.Mutex
	sessions map[[sha256.Size]byte]*Session // by the hash of the token
	// late are the tokens of sessions that were closed after their deadline: an
	// agent that outlives it is told so, as a key that nobody knows would make it
	// ask for another.
	late map[[sha256.Size]byte]struct{}
	// opened are the ids that the operator may still ask for, and when their
	// sessions were closed; zero for one that is open.
	opened map[string]time.Time
}

// New listens and serves. A port that is given and busy is an error that
// names its owner where the system tells it.
func New(o Options) (*Gateway, error) {
	o = o.withDefaults()
	if o.Calls == nil {
		return nil, errors.New("start gateway: no store for its calls")
	}
	l, err := listen(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("start gateway: %w", err)
	}
	g := &Gateway{
		o: o, calls: o.Calls, log: o.Log,
		addr:     l.Addr().(*net.TCPAddr),
		served:   make(chan struct{}),
		watch:    point.NewWatch(o.ObserverQueue, o.Log),
		sessions: map[[sha256.Size]byte]*Session{}, late: map[[sha256.Size]byte]struct{}{}, opened: map[string]time.Time{},
		stop: make(chan struct{}), swept: make(chan struct{}),
	}
	g.stored.Store(o.Stored)
	if o.OperatorToken != "" {
		g.operator = sha256.Sum256([]byte(o.OperatorToken))
		g.o.OperatorToken = ""
	}
	g.hosts, g.origins = ownNames(o.Addr, g.addr)
	g.server = &http.Server{
		Handler:           g,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	go g.sweep()
	go func() {
		defer close(g.served)
		if err := g.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			g.log.Error("gateway stopped", "error", err)
		}
	}()
	return g, nil
}

// Dropped counts, by the name of the hook, the events that observing hooks
// missed because they were too slow.
func (g *Gateway) Dropped() map[string]int { return g.watch.Dropped() }

// URL is the root of the gateway, such as http://127.0.0.1:40123, without a
// slash at its end.
func (g *Gateway) URL() string { return "http://" + g.addr.String() }

// Close closes every session, then the server. Calls in flight have until ctx
// ends; then they are cancelled and recorded as that.
func (g *Gateway) Close(ctx context.Context) error {
	if !g.closing.Swap(true) {
		close(g.stop)
	}
	<-g.swept
	g.mu.Lock()
	open := make([]*Session, 0, len(g.sessions))
	for _, s := range g.sessions {
		open = append(open, s)
	}
	g.mu.Unlock()
	errs := make([]error, len(open))
	var all sync.WaitGroup
	for i, s := range open {
		all.Go(func() { errs[i] = s.Close(ctx) })
	}
	all.Wait()
	err := errors.Join(errs...)
	// No call is left. What the server would still wait for are connections
	// that were never used.
	last, cancel := context.WithTimeout(ctx, shutdownGrace)
	defer cancel()
	if e := g.server.Shutdown(last); e != nil {
		err = errors.Join(err, g.server.Close())
	}
	<-g.served
	g.watch.Close(ctx)
	return err
}

// listen opens a loopback port.
func listen(addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("address %q is not a loopback address", addr)
	}
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, busy(addr, err)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// ownNames lists the hosts by which this gateway is called: its own address and
// the names of the loopback, in origins with its port, in Host headers also
// without one.
func ownNames(given string, addr *net.TCPAddr) (hosts, origins map[string]bool) {
	port := fmt.Sprint(addr.Port)
	hosts, origins = map[string]bool{}, map[string]bool{}
	names := []string{addr.IP.String(), "127.0.0.1", "localhost", "::1"}
	if host, _, err := net.SplitHostPort(given); err == nil {
		names = append(names, host)
	}
	for _, name := range names {
		at := net.JoinHostPort(name, port)
		bare := strings.TrimSuffix(at, ":"+port)
		hosts[at], hosts[bare], origins[at] = true, true, true
		if port == "80" { // which browsers leave out
			origins[bare] = true
		}
	}
	return hosts, origins
}
