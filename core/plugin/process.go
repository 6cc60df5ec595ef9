package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/proto"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// process is a plugin program. Its instances outlive a death of it: they are
// opened again as they are called.
type process struct {
	*supervisor[*running]
	sum     string
	limits  Limits
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
	c, err := r.cache.program(argv, s.Files)
	if err != nil {
		return nil, err
	}
	log, env := r.log.With("plugin", s.Key), environ(s.Env)
	start := func(ctx context.Context) (*running, error) {
		if err := c.same(); err != nil {
			return nil, err
		}
		return start(ctx, c.argv, env, log)
	}
	return &process{supervisor: newSupervisor(s.Key, s.MaxInFlight, log, start), sum: c.sum, limits: s.Limits}, nil
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

// explain makes an Error of a gRPC status. One that says that the program is
// gone ends what is left of it.
func (p *process) explain(ctx context.Context, run *running, method string, err error) error {
	switch cause := ctx.Err(); {
	case errors.Is(cause, context.Canceled):
		return p.fail(method, Cancelled, cause)
	case errors.Is(cause, context.DeadlineExceeded):
		return p.fail(method, Timeout, fmt.Errorf("the call took too long, over limits: {timeout: ...} of the plugin or the timeout of its stage: %w", cause))
	}
	text := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.Unavailable:
		return p.lost(run, method)
	case codes.Canceled: // not by the caller
		return p.fail(method, Unavailable, errClosed)
	case codes.DeadlineExceeded: // the deadline that went along with the call
		return p.fail(method, Timeout, fmt.Errorf("the call took too long, over limits: {timeout: ...} of the plugin or the timeout of its stage: %w", context.DeadlineExceeded))
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
	p.supervisor.close()
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
	if limit := p.limits.In; limit > 0 && int64(size) > limit {
		return nil, nil, overIn(p.key, method, size, limit)
	}
	if err := p.slot(ctx, method); err != nil {
		return nil, nil, err
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
	request := &proto.CallRequest{Handle: i.handle, Method: method, Input: in}
	if len(in) > proto.MaxInline && run.files {
		path, err := run.document(in)
		if err != nil {
			return nil, i.process.fail(method, Failed, err)
		}
		defer os.Remove(path)
		request.Input, request.InputFile = nil, path
	} else if len(in) > proto.MaxMessage-1024 {
		return nil, overIn(i.process.key, method, len(in), proto.MaxMessage)
	}
	reply, err := run.call(i.kind)(ctx, request)
	if err != nil {
		return nil, i.process.explain(ctx, run, method, err)
	}
	if err := answered(i.process.key, method, reply.Error); err != nil {
		return nil, err
	}
	if limit := i.process.limits.Out; limit > 0 && int64(len(reply.Output)) > limit {
		return nil, overOut(i.process.key, method, len(reply.Output), limit)
	}
	return reply.Output, nil
}

func (i *processInstance) close(ctx context.Context) error {
	if run, ok := i.process.alive(); ok {
		run.closeHandle(ctx, i.handle)
	}
	return nil
}
