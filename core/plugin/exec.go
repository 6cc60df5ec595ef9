package plugin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/judger"
	"github.com/penstock-dev/penstock/sdk/proto"
	"github.com/penstock-dev/penstock/sdk/schema"
)

const (
	// maxInline is the size in bytes over which a document is handed over as a
	// file: params are then {"document": PATH}.
	maxInline = proto.MaxInline
	maxReply  = 64 << 20
	// methodNotFound is JSON-RPC's code for a method that isn't there.
	methodNotFound = -32601
)

// execProgram is a program that speaks JSON-RPC 2.0, one message a line, on
// its standard input and output:
//
//	describe {}                             -> {"components": [...]}, optional
//	open     {"instance", "component", "config"}  -> anything, optional without a config
//	close    {"instance"}                   -> anything, optional
//	judge, judge_group, hook_apply          -> the reply of the kind
//
// The params of the last are the kind's document with "instance" added. The
// program ends when its standard input does.
type execProgram struct {
	*supervisor[*talk]
	sum     string
	limits  Limits
	handles atomic.Int64
}

func (r *Registry) loadExec(s Source) (program, error) {
	c, err := r.cache.program(s.Exec, s.Files)
	if err != nil {
		return nil, err
	}
	inFlight := s.MaxInFlight
	if inFlight <= 0 {
		inFlight = 1 // a program that reads lines takes one at a time
	}
	log, env := r.log.With("plugin", s.Key), environ(s.Env)
	start := func(context.Context) (*talk, error) {
		if err := c.same(); err != nil {
			return nil, err
		}
		return startTalk(c.argv, env, r.shim, log)
	}
	return &execProgram{supervisor: newSupervisor(s.Key, inFlight, log, start), sum: c.sum, limits: s.Limits}, nil
}

func (p *execProgram) digest() string { return p.sum }

func (p *execProgram) describe(ctx context.Context) ([]component.Descriptor, error) {
	out, err := p.ask(ctx, "describe", "describe", json.RawMessage("{}"))
	if notThere(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseDescription(out)
}

// undescribed is a component of the kind that its key names. What it takes isn't
// known, so that it takes any setting: a judger as input of each call, a hook as
// config when it is opened.
func (p *execProgram) undescribed(kind, name string) (component.Descriptor, error) {
	d := component.Descriptor{Kind: kind, Name: name, Protocol: component.Protocol}
	if kind == component.Judger {
		d.Methods, d.Input = []string{judger.MethodJudge}, anything
		return d, nil
	}
	d.Methods, d.Changes, d.Config = []string{hook.Method}, everyPoint(), anything
	return d, nil
}

// anything is the schema of settings that nobody described.
var anything = json.RawMessage(`{"type":"object"}`)

func (p *execProgram) close(context.Context) error {
	p.supervisor.close()
	return nil
}

// ask sends a request to the running program and waits for the answer. A
// program that does not answer in time is ended, as it can't be interrupted.
func (p *execProgram) ask(ctx context.Context, name, method string, params json.RawMessage) ([]byte, error) {
	run, err := p.get(ctx)
	if err != nil {
		return nil, err
	}
	return p.askOf(ctx, run, name, method, params)
}

func (p *execProgram) askOf(ctx context.Context, run *talk, name, method string, params json.RawMessage) ([]byte, error) {
	answer, err := run.ask(ctx, method, params)
	switch {
	case errors.Is(err, errTalkOver):
		return nil, p.lost(run, name)
	case errors.Is(err, context.DeadlineExceeded):
		p.drop(run)
		return nil, p.fail(name, Timeout, fmt.Errorf("the call took too long, over limits: {timeout: ...} of the plugin or the timeout of its stage, and the program was ended: %w", err))
	case err != nil && ctx.Err() != nil:
		p.drop(run)
		return nil, p.fail(name, Cancelled, err)
	case err != nil:
		return nil, p.fail(name, Failed, err)
	case answer.bad != nil:
		return nil, answer.bad.of(p.key, name)
	case answer.Error != nil:
		return nil, answer.Error.of(p.key, name)
	}
	if limit := p.limits.Out; limit > 0 && int64(len(answer.Result)) > limit {
		return nil, overOut(p.key, name, len(answer.Result), limit)
	}
	return answer.Result, nil
}

func (p *execProgram) open(ctx context.Context, d component.Descriptor, config json.RawMessage) (instance, error) {
	in := &execInstance{program: p, id: d.ID(), config: config, name: d.ID() + "#" + strconv.FormatInt(p.handles.Add(1), 10)}
	if err := p.slot(ctx, "open"); err != nil {
		return nil, err
	}
	defer func() { <-p.slots }()
	if _, err := in.ready(ctx); err != nil {
		return nil, err
	}
	return in, nil
}

// execInstance is an instance in an exec program. It is opened again in each
// life of the program.
type execInstance struct {
	program  *execProgram
	id, name string
	config   json.RawMessage

	mu sync.Mutex
	in *talk // the life that it is open in
}

func (i *execInstance) ready(ctx context.Context) (*talk, error) {
	run, err := i.program.get(ctx)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.in == run {
		return run, nil
	}
	params, err := json.Marshal(map[string]any{"instance": i.name, "component": i.id, "config": i.config})
	if err != nil {
		return nil, err
	}
	_, err = i.program.askOf(ctx, run, "open", "open", params)
	if err != nil && !(notThere(err) && string(i.config) == "{}") {
		return nil, err
	}
	i.in = run
	return run, nil
}

func (i *execInstance) call(ctx context.Context, method string, in []byte) ([]byte, error) {
	p := i.program
	if limit := p.limits.In; limit > 0 && int64(len(in)) > limit {
		return nil, overIn(p.key, method, len(in), limit)
	}
	if err := p.slot(ctx, method); err != nil {
		return nil, err
	}
	defer func() { <-p.slots }()
	if p.limits.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.limits.Timeout)
		defer cancel()
	}
	run, err := i.ready(ctx)
	if err != nil {
		return nil, err
	}
	params, done, err := i.params(in)
	if err != nil {
		return nil, p.fail(method, Failed, err)
	}
	defer done()
	return p.askOf(ctx, run, method, method, params)
}

// params adds the instance to a document, or writes one that is large to a
// file that lasts for the call.
func (i *execInstance) params(in []byte) (json.RawMessage, func(), error) {
	name, err := json.Marshal(i.name)
	if err != nil {
		return nil, nil, err
	}
	head := append([]byte(`{"instance":`), name...)
	if len(in) <= maxInline {
		rest := bytes.TrimSpace(in)
		if len(rest) < 2 || rest[0] != '{' {
			return nil, nil, errors.New("the request is no JSON object")
		}
		if rest = bytes.TrimSpace(rest[1:]); rest[0] != '}' {
			head = append(head, ',')
		}
		return append(head, rest...), func() {}, nil
	}
	file, remove, err := loneDocument(in)
	if err != nil {
		return nil, nil, err
	}
	path, err := json.Marshal(file)
	if err != nil {
		remove()
		return nil, nil, err
	}
	head = append(append(head, `,"document":`...), path...)
	return append(head, '}'), remove, nil
}

func (i *execInstance) close(ctx context.Context) error {
	p := i.program
	i.mu.Lock()
	run := i.in
	i.in = nil
	i.mu.Unlock()
	now, ok := p.alive()
	if run == nil || !ok || run != now {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	params, err := json.Marshal(map[string]string{"instance": i.name})
	if err == nil {
		_, _ = run.ask(ctx, "close", params) // it is killed in any case
	}
	return nil
}

// rpcError is the error of a JSON-RPC answer. Data may say more of it.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
		Pointer   string `json:"pointer"`
	} `json:"data"`
}

func (e *rpcError) of(key, method string) error {
	if e.Data.Pointer != "" {
		return &schema.Error{Pointer: e.Data.Pointer, Message: e.Message}
	}
	code := e.Data.Code
	if code == "" {
		code = strconv.Itoa(e.Code)
	}
	return &Error{Plugin: key, Method: method, Reason: Failed, Message: e.Message, Retryable: e.Data.Retryable,
		Cause: &component.Error{Code: code, Message: e.Message, Retryable: e.Data.Retryable}}
}

// notThere reports whether a program answered that it has no such method.
func notThere(err error) bool {
	var e *component.Error
	return errors.As(err, &e) && e.Code == strconv.Itoa(methodNotFound)
}

// talk is one life of an exec program.
type talk struct {
	group *group
	log   *slog.Logger
	out   chan []byte   // lines to write
	done  chan struct{} // closed when the program is gone
	ended sync.Once

	mu      sync.Mutex
	next    int64
	waiting map[int64]chan *rpcAnswer
}

type rpcAnswer struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
	bad    *badAnswer
}

// badAnswer is an answer that can't be read.
type badAnswer struct {
	reason  Reason
	message string
}

func (b *badAnswer) of(key, method string) error {
	return &Error{Plugin: key, Method: method, Reason: b.reason, Message: b.message}
}

var errTalkOver = errors.New("the program is gone")

func startTalk(argv, env, shim []string, log *slog.Logger) (*talk, error) {
	g := newGroup(argv, env)
	g.input, g.lines, g.shim = true, newLineLog(log), shim
	t := &talk{group: g, log: log, out: make(chan []byte), done: make(chan struct{}), waiting: map[int64]chan *rpcAnswer{}}
	if err := g.prepare(nil); err != nil {
		return nil, err
	}
	if err := g.Start(context.Background()); err != nil {
		return nil, g.explain(err)
	}
	go func() { _, _ = io.Copy(g.lines, g.Stderr()) }()
	go t.read()
	go t.write()
	go func() {
		<-g.reaped
		close(t.done)
	}()
	return t, nil
}

// write writes the lines that come, until the program is gone.
func (t *talk) write() {
	for {
		select {
		case line := <-t.out:
			if _, err := t.group.stdin.Write(line); err != nil {
				t.group.kill() // it closed its input: nothing can reach it
				return
			}
		case <-t.done:
			return
		}
	}
}

// read hands the answers to those who wait. Other lines are logged: a print
// that was left in is no reason to fail.
func (t *talk) read() {
	lines := bufio.NewScanner(t.group.Stdout())
	lines.Buffer(make([]byte, 0, 64<<10), maxReply)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		var answer rpcAnswer
		if len(line) == 0 {
			continue
		}
		err := errors.New("it is no JSON object")
		if line[0] == '{' {
			err = schema.Plain(json.Unmarshal(line, &answer))
		}
		if err == nil && answer.Result == nil && answer.Error == nil {
			err = errors.New("it has neither result nor error")
		}
		switch {
		case err == nil && (answer.Result != nil || answer.ID != 0):
			t.tell(answer.ID, &answer)
		case err == nil: // it could not read the request
			t.tellAll(&answer)
		case bytes.Contains(line, []byte(`"jsonrpc"`)):
			t.tellAll(&rpcAnswer{bad: &badAnswer{BadReply, fmt.Sprintf("its answer can't be read (%v): %s", err, line[:min(len(line), 200)])}})
		default:
			t.log.Info(string(line[:min(len(line), maxLine)]))
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		t.tellAll(&rpcAnswer{bad: &badAnswer{TooLarge, fmt.Sprintf("a line of its output is over the limit of %d bytes", maxReply)}})
	}
	t.group.kill() // it closed its output, or wrote a line that is too long
}

// tell hands an answer to the one who waits for it.
func (t *talk) tell(id int64, answer *rpcAnswer) {
	t.mu.Lock()
	wait := t.waiting[id]
	delete(t.waiting, id)
	t.mu.Unlock()
	if wait != nil {
		wait <- answer // it has room for one
	}
}

// tellAll hands an answer that says not whose it is to all who wait.
func (t *talk) tellAll(answer *rpcAnswer) {
	t.mu.Lock()
	ids := slices.Collect(maps.Keys(t.waiting))
	t.mu.Unlock()
	for _, id := range ids {
		t.tell(id, answer)
	}
}

func (t *talk) ask(ctx context.Context, method string, params json.RawMessage) (*rpcAnswer, error) {
	wait := make(chan *rpcAnswer, 1)
	t.mu.Lock()
	t.next++
	id := t.next
	t.waiting[id] = wait
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.waiting, id)
		t.mu.Unlock()
	}()
	line := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":`, id, method)
	line = append(oneLine(line, params), '}', '\n')
	select {
	case t.out <- line:
	case <-t.done:
		return nil, errTalkOver
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case answer := <-wait:
		return answer, nil
	case <-t.done:
		select {
		case answer := <-wait: // its last words
			return answer, nil
		default:
			return nil, errTalkOver
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// oneLine appends JSON without line breaks, which only lie between values.
func oneLine(dst []byte, text json.RawMessage) []byte {
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return append(dst, text...)
	}
	b := bytes.NewBuffer(dst)
	if err := json.Compact(b, text); err != nil {
		return append(dst, "null"...)
	}
	return b.Bytes()
}

func (t *talk) gone() <-chan struct{} { return t.done }

func (t *talk) exit() string { return t.group.state() }

func (t *talk) bury() string {
	t.stop()
	<-t.group.drained
	return t.group.lines.tail()
}

func (t *talk) stop() { t.ended.Do(t.group.kill) }
