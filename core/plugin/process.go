package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/proto"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// How a process that dies is started again: after a pause that doubles, and
// not at all while it died often in the last minute.
const (
	firstPause  = 100 * time.Millisecond
	longPause   = 10 * time.Second
	deathWindow = time.Minute
	maxDeaths   = 5
)

// process supervises one plugin program. It is started at the first call,
// and again after it died; its instances are then opened again as they are
// called.
type process struct {
	key    string
	argv   []string
	env    []string
	sum    string
	limits Limits
	log    *slog.Logger
	slots  chan struct{} // one for each call in flight
	turn   chan struct{} // held while starting, so that waiting can be given up

	mu      sync.Mutex
	current *running
	deaths  []time.Time
	tail    string // of the last one that died
	closed  bool
	handles atomic.Int64
}

// loadProcess prepares a process plugin without starting it.
func (r *Registry) loadProcess(ctx context.Context, s Source) (program, error) {
	argv := s.Process
	if s.ProcessGo != "" {
		path, err := r.build(ctx, s.ProcessGo, goProcess)
		if err != nil {
			return nil, err
		}
		argv = []string{path}
	}
	argv, sum, err := r.cache.program(argv, s.Files)
	if err != nil {
		return nil, err
	}
	inFlight := s.MaxInFlight
	if inFlight <= 0 {
		inFlight = 2 * runtime.GOMAXPROCS(0)
	}
	return &process{
		key: s.Key, argv: argv, env: environ(s.Env), sum: sum, limits: s.Limits,
		log:   r.log.With("plugin", s.Key),
		slots: make(chan struct{}, inFlight), turn: make(chan struct{}, 1),
	}, nil
}

func (p *process) digest() string { return p.sum }

func (p *process) undescribed(string, string) (component.Descriptor, error) {
	return component.Descriptor{}, errors.New("it describes no components; register them before serve.Main")
}

func (p *process) describe(ctx context.Context) ([]component.Descriptor, error) {
	run, err := p.get(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := run.plugin.Describe(ctx, &proto.DescribeRequest{})
	if err != nil {
		return nil, p.explain(ctx, run, "describe", err)
	}
	return parseDescription(reply.Description)
}

// get returns the running program and starts it if there is none.
func (p *process) get(ctx context.Context) (*running, error) {
	if run := p.alive(); run != nil {
		return run, nil
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, p.fail("", Cancelled, ctx.Err())
	}
	if run := p.alive(); run != nil {
		return run, nil
	}
	if err := p.pause(ctx); err != nil {
		return nil, err
	}
	run, err := start(ctx, p.argv, p.env, p.log)
	if err != nil {
		if ctx.Err() != nil {
			return nil, p.fail("", Cancelled, ctx.Err())
		}
		p.died()
		return nil, &Error{Plugin: p.key, Reason: Unavailable, Message: err.Error(), Cause: err}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		run.kill()
		return nil, p.fail("", Unavailable, errors.New("the plugin registry is closed"))
	}
	p.current = run
	return run, nil
}

// alive is the current program unless it is known to be dead.
func (p *process) alive() *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return nil
	}
	select {
	case <-p.current.lost:
		return nil
	default:
		return p.current
	}
}

// pause buries the program that died, if one did, and waits until the next
// may start.
func (p *process) pause(ctx context.Context) error {
	p.mu.Lock()
	dead := p.current
	p.mu.Unlock()
	if dead != nil {
		p.drop(dead)
	}
	p.mu.Lock()
	n, tail, closed := len(p.deaths), p.tail, p.closed
	var last time.Time
	if n > 0 {
		last = p.deaths[n-1]
	}
	p.mu.Unlock()
	switch {
	case closed:
		return p.fail("", Unavailable, errors.New("the plugin registry is closed"))
	case n == 0:
		return nil
	case n >= maxDeaths:
		return &Error{Plugin: p.key, Reason: Unavailable, Tail: tail,
			Message: fmt.Sprintf("it died %d times within a minute and isn't started again for now", n)}
	}
	pause := min(firstPause<<(n-1), longPause)
	timer := time.NewTimer(time.Until(last.Add(pause)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return p.fail("", Cancelled, ctx.Err())
	}
}

// died counts a death and forgets those of more than a minute ago.
func (p *process) died() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.deaths = append(p.deaths, now)
	for len(p.deaths) > 0 && now.Sub(p.deaths[0]) > deathWindow {
		p.deaths = p.deaths[1:]
	}
}

// drop ends a program that failed, once, and returns the end of what it wrote
// to standard error.
func (p *process) drop(run *running) string {
	tail := run.bury()
	p.mu.Lock()
	mine := p.current == run
	if mine {
		p.current, p.tail = nil, tail
	}
	p.mu.Unlock()
	if mine {
		p.died()
		p.log.Warn("plugin process died", "exit", run.exit(), "tail", tail)
	}
	return tail
}

func (p *process) fail(method string, reason Reason, err error) *Error {
	return &Error{Plugin: p.key, Method: method, Reason: reason, Message: err.Error(), Cause: err}
}

// explain makes an Error of a gRPC status. One that says that the program is
// gone ends what is left of it.
func (p *process) explain(ctx context.Context, run *running, method string, err error) error {
	switch cause := ctx.Err(); {
	case errors.Is(cause, context.Canceled):
		return p.fail(method, Cancelled, cause)
	case errors.Is(cause, context.DeadlineExceeded):
		return p.fail(method, Timeout, fmt.Errorf("the call took too long: %w", cause))
	}
	text := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.Unavailable:
		tail := p.drop(run)
		return &Error{Plugin: p.key, Method: method, Reason: Unavailable, Tail: tail, Retryable: true,
			Message: "the plugin process died during the call (" + run.exit() + ")"}
	case codes.DeadlineExceeded: // the deadline that went along with the call
		return p.fail(method, Timeout, fmt.Errorf("the call took too long: %w", context.DeadlineExceeded))
	case codes.ResourceExhausted:
		return &Error{Plugin: p.key, Method: method, Reason: TooLarge, Message: text}
	case codes.Unimplemented:
		return &Error{Plugin: p.key, Method: method, Reason: Failed, Message: "the plugin does not serve this kind: " + text}
	default:
		return &Error{Plugin: p.key, Method: method, Reason: Failed, Message: text}
	}
}

// answered makes an error of one that the component gave.
func answered(key, method string, e *proto.Error) error {
	if e == nil {
		return nil
	}
	if e.Pointer != "" {
		return &schema.Error{Pointer: e.Pointer, Message: e.Message}
	}
	return &Error{Plugin: key, Method: method, Reason: Failed, Message: e.Message, Retryable: e.Retryable,
		Cause: &component.Error{Code: e.Code, Message: e.Message, Retryable: e.Retryable}}
}

func (p *process) open(ctx context.Context, d component.Descriptor, config json.RawMessage) (instance, error) {
	in := &processInstance{process: p, kind: d.Kind, name: d.Name, config: config,
		handle: d.ID() + "#" + strconv.FormatInt(p.handles.Add(1), 10)}
	if _, err := in.ready(ctx); err != nil {
		return nil, err
	}
	return in, nil
}

// close ends the program: its instances are closed, which may take 50 ms,
// then its process group is killed.
func (p *process) close(context.Context) error {
	p.mu.Lock()
	run := p.current
	p.current, p.closed = nil, true
	p.mu.Unlock()
	if run != nil {
		run.stop()
	}
	return nil
}

// processInstance is an instance in a plugin process. It outlives the
// process: it is opened again in the next one.
type processInstance struct {
	process    *process
	kind, name string
	config     json.RawMessage
	handle     string
}

// ready returns the running program with the instance open in it.
func (i *processInstance) ready(ctx context.Context) (*running, error) {
	run, err := i.process.get(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := run.open(ctx, &proto.OpenRequest{Handle: i.handle, Kind: i.kind, Name: i.name, Config: i.config})
	if err != nil {
		return nil, i.process.explain(ctx, run, "open", err)
	}
	return run, answered(i.process.key, "open", reply)
}

// begin bounds a call: by the calls in flight, by time and by size. What it
// returns must be called at the call's end.
func (i *processInstance) begin(ctx context.Context, method string, size int) (context.Context, func(), error) {
	p := i.process
	if limit := p.limits.In; size > proto.MaxMessage-1024 || limit > 0 && int64(size) > limit {
		return nil, nil, &Error{Plugin: p.key, Method: method, Reason: TooLarge, Message: fmt.Sprintf("a request of %d bytes is over the plugin's limit", size)}
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, p.fail(method, Cancelled, ctx.Err())
	}
	cancel := context.CancelFunc(func() {})
	if p.limits.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, p.limits.Timeout)
	}
	return ctx, func() { cancel(); <-p.slots }, nil
}

func (i *processInstance) call(ctx context.Context, method string, in []byte) ([]byte, error) {
	ctx, end, err := i.begin(ctx, method, len(in))
	if err != nil {
		return nil, err
	}
	defer end()
	run, err := i.ready(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := run.call(i.kind)(ctx, &proto.CallRequest{Handle: i.handle, Method: method, Input: in})
	if err != nil {
		return nil, i.process.explain(ctx, run, method, err)
	}
	if err := answered(i.process.key, method, reply.Error); err != nil {
		return nil, err
	}
	if limit := i.process.limits.Out; limit > 0 && int64(len(reply.Output)) > limit {
		return nil, &Error{Plugin: i.process.key, Method: method, Reason: TooLarge, Message: fmt.Sprintf("a reply of %d bytes is over the plugin's limit", len(reply.Output))}
	}
	return reply.Output, nil
}

func (i *processInstance) close(ctx context.Context) error {
	if run := i.process.alive(); run != nil {
		run.closeHandle(ctx, i.handle)
	}
	return nil
}
