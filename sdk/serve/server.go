//go:build !wasip1

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/doc"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/proto"
	"github.com/penstock-dev/penstock/sdk/schema"
)

const socketDir = "PLUGIN_UNIX_SOCKET_DIR"

// server holds the open instances of a plugin process.
type server struct {
	proto.UnimplementedPluginServer
	components map[string]component.Component
	all        []component.Component
	end        *ending
	watched    chan struct{}
	watching   sync.Once

	mu        sync.Mutex
	instances map[string]*opened // by handle
}

// opened is an instance with the component that it is one of. It is there
// before it is open, so that two Opens of one handle open it once.
type opened struct {
	component component.Component
	once      sync.Once
	instance  any
	err       error
}

func newServer(all []component.Component, end func()) *server {
	s := &server{all: all, components: map[string]component.Component{}, end: &ending{end: end},
		watched: make(chan struct{}), instances: map[string]*opened{}}
	for _, c := range all {
		s.components[c.ID()] = c
	}
	return s
}

func (s *server) register(g *grpc.Server) {
	proto.RegisterPluginServer(g, s)
	proto.RegisterJudgerServer(g, judgerServer{server: s})
	proto.RegisterInvokerServer(g, invokerServer{server: s})
	proto.RegisterHookServer(g, hookServer{server: s})
	proto.RegisterFormatServer(g, formatServer{server: s})
	proto.RegisterConverterServer(g, converterServer{server: s})
}

// expectWatch ends the process if no host opens Watch.
func (s *server) expectWatch(within time.Duration) {
	go func() {
		select {
		case <-s.watched:
		case <-time.After(within):
			s.end.now()
		}
	}()
}

// capabilities are what this server takes beyond the contract's first form.
var capabilities = []string{proto.CapabilityFiles}

// Watch ends the process when its stream ends, as then the host is gone.
func (s *server) Watch(_ *proto.WatchRequest, stream grpc.ServerStreamingServer[proto.WatchEvent]) error {
	s.watching.Do(func() { close(s.watched) })
	defer s.end.now()
	if err := stream.Send(&proto.WatchEvent{Capabilities: capabilities}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Describe lists the components.
func (s *server) Describe(context.Context, *proto.DescribeRequest) (*proto.DescribeReply, error) {
	text, err := Descriptions(s.all)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &proto.DescribeReply{Description: text, Capabilities: capabilities}, nil
}

// Validate opens and closes an instance.
func (s *server) Validate(ctx context.Context, q *proto.OpenRequest) (*proto.OpenReply, error) {
	c, ok := s.components[q.Kind+"/"+q.Name]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "the plugin has no %s %q", q.Kind, q.Name)
	}
	o := &opened{component: c}
	if err := o.open(ctx, q.Config); err != nil {
		return &proto.OpenReply{Error: failure(err)}, nil
	}
	return &proto.OpenReply{Error: failure(component.Close(o.instance))}, nil
}

// Open opens an instance under a handle.
func (s *server) Open(ctx context.Context, q *proto.OpenRequest) (*proto.OpenReply, error) {
	c, ok := s.components[q.Kind+"/"+q.Name]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "the plugin has no %s %q", q.Kind, q.Name)
	}
	s.mu.Lock()
	o := s.instances[q.Handle]
	if o == nil {
		o = &opened{component: c}
		s.instances[q.Handle] = o
	}
	s.mu.Unlock()
	err := o.open(ctx, q.Config)
	if err != nil {
		s.forget(q.Handle, o)
	}
	return &proto.OpenReply{Error: failure(err)}, nil
}

func (o *opened) open(ctx context.Context, config []byte) error {
	o.once.Do(func() {
		defer recovered(&o.err)
		o.instance, o.err = o.component.Open(ctx, config)
	})
	return o.err
}

func (s *server) forget(handle string, o *opened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instances[handle] == o {
		delete(s.instances, handle)
	}
}

// Close ends an instance.
func (s *server) Close(_ context.Context, q *proto.CloseRequest) (*proto.CloseReply, error) {
	s.mu.Lock()
	o := s.instances[q.Handle]
	delete(s.instances, q.Handle)
	s.mu.Unlock()
	if o == nil {
		return &proto.CloseReply{}, nil
	}
	return &proto.CloseReply{Error: failure(component.Close(o.instance))}, nil
}

func (s *server) find(handle string) (*opened, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.instances[handle]
	if o == nil {
		return nil, status.Errorf(codes.NotFound, "handle %q is not open", handle)
	}
	return o, nil
}

// call calls a method of an instance.
func (s *server) call(ctx context.Context, q *proto.CallRequest) (*proto.CallReply, error) {
	o, err := s.find(q.Handle)
	if err != nil {
		return nil, err
	}
	in := q.Input
	if q.InputFile != "" {
		if in, err = os.ReadFile(q.InputFile); err != nil {
			return nil, status.Errorf(codes.Internal, "read the document: %v", err)
		}
	}
	return o.call(ctx, q.Method, in)
}

func (o *opened) call(ctx context.Context, method string, in []byte) (*proto.CallReply, error) {
	if o.component.Call == nil {
		return nil, status.Errorf(codes.Unimplemented, "a %s has no methods", o.component.Kind)
	}
	var out []byte
	var err error
	func() {
		defer recovered(&err)
		out, err = o.component.Call(ctx, o.instance, method, doc.Bytes(in))
	}()
	if err != nil && ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &proto.CallReply{Output: out, Error: failure(err)}, nil
}

// recovered makes an error of a panic, so that one bad call doesn't take down
// the others that the process serves.
func recovered(err *error) {
	if p := recover(); p != nil {
		slog.Error("plugin panicked", "panic", fmt.Sprint(p))
		slog.Debug("plugin panicked", "stack", string(debug.Stack()))
		*err = &component.Error{Code: "panic", Message: fmt.Sprintf("the plugin panicked: %v", p)}
	}
}

// failure is the message of a component's error, nil for none.
func failure(err error) *proto.Error {
	if err == nil {
		return nil
	}
	e := &proto.Error{Message: err.Error()}
	var field *schema.Error
	var given *component.Error
	switch {
	case errors.As(err, &field):
		e.Code, e.Pointer, e.Message = "config", field.Pointer, field.Message
	case errors.As(err, &given):
		e.Code, e.Retryable = given.Code, given.Retryable
	}
	return e
}

type judgerServer struct {
	proto.UnimplementedJudgerServer
	*server
}

func (s judgerServer) Call(ctx context.Context, q *proto.CallRequest) (*proto.CallReply, error) {
	return s.call(ctx, q)
}

type invokerServer struct {
	proto.UnimplementedInvokerServer
	*server
}

func (s invokerServer) Call(ctx context.Context, q *proto.CallRequest) (*proto.CallReply, error) {
	return s.call(ctx, q)
}

type hookServer struct {
	proto.UnimplementedHookServer
	*server
}

func (s hookServer) Call(ctx context.Context, q *proto.CallRequest) (*proto.CallReply, error) {
	return s.call(ctx, q)
}

type formatServer struct {
	proto.UnimplementedFormatServer
	*server
}

func (s formatServer) Call(ctx context.Context, q *proto.CallRequest) (*proto.CallReply, error) {
	return s.call(ctx, q)
}

// Parse answers the calls of one parser in turn, and closes what they opened
// when the stream ends.
func (s formatServer) Parse(stream grpc.BidiStreamingServer[proto.CallRequest, proto.CallReply]) error {
	var o *opened
	parsers := map[string]bool{}
	defer func() {
		for handle := range parsers {
			in, _ := json.Marshal(parser{handle})
			_, _ = o.call(context.WithoutCancel(stream.Context()), format.MethodClose, in)
		}
	}()
	for {
		q, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if o == nil {
			if o, err = s.find(q.Handle); err != nil {
				return err
			}
		}
		reply, err := o.call(stream.Context(), q.Method, q.Input)
		if err != nil {
			return err
		}
		if q.Method == format.MethodOpen && reply.Error == nil {
			var p parser
			if json.Unmarshal(reply.Output, &p) == nil {
				parsers[p.Stream] = true
			}
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

type parser struct {
	Stream string `json:"stream"`
}

type converterServer struct {
	proto.UnimplementedConverterServer
	*server
}

// Convert hands the rows that come to a converter and sends what it writes.
func (s converterServer) Convert(stream grpc.BidiStreamingServer[proto.ConvertRequest, proto.ConvertReply]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	o, err := s.find(first.Handle)
	if err != nil {
		return err
	}
	c, ok := o.instance.(converter.Converter)
	if !ok {
		return status.Errorf(codes.Unimplemented, "handle %q is no converter", first.Handle)
	}
	func() {
		defer recovered(&err)
		err = c.Convert(stream.Context(), received(stream), &output{stream: stream})
	}()
	if err != nil {
		return stream.Send(&proto.ConvertReply{Error: failure(err)})
	}
	return nil
}

// received are the rows that the host sends. It may be read once.
func received(stream grpc.BidiStreamingServer[proto.ConvertRequest, proto.ConvertReply]) iter.Seq2[*converter.Row, error] {
	return func(yield func(*converter.Row, error) bool) {
		for {
			q, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && q.Error != nil {
				err = errors.New(q.Error.Message)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			texts, err := rowsOf(q)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, text := range texts {
				row := new(converter.Row)
				if err := json.Unmarshal(text, row); err != nil {
					yield(nil, fmt.Errorf("read row: %w", err))
					return
				}
				if !yield(row, nil) {
					return
				}
			}
		}
	}
}

// rowsOf are the rows of a message, the one in its file last.
func rowsOf(q *proto.ConvertRequest) ([][]byte, error) {
	if q.RowFile == "" {
		return q.Rows, nil
	}
	text, err := os.ReadFile(q.RowFile)
	if err != nil {
		return nil, fmt.Errorf("read row: %w", err)
	}
	return append(q.Rows, text), os.Remove(q.RowFile)
}

// output sends the files that a converter writes.
type output struct {
	mu     sync.Mutex // a stream takes one Send at a time
	stream grpc.BidiStreamingServer[proto.ConvertRequest, proto.ConvertReply]
}

// Create implements converter.Output.
func (o *output) Create(ending string) (io.WriteCloser, error) {
	return &file{o, ending}, o.send(&proto.ConvertReply{File: ending})
}

func (o *output) send(r *proto.ConvertReply) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stream.Send(r)
}

type file struct {
	output *output
	name   string
}

const filePiece = 1 << 20 // bytes in a message

func (f *file) Write(p []byte) (int, error) {
	for n := 0; n < len(p); n += filePiece {
		piece := p[n:min(n+filePiece, len(p))]
		if err := f.output.send(&proto.ConvertReply{File: f.name, Data: piece}); err != nil {
			return n, err
		}
	}
	return len(p), nil
}

func (f *file) Close() error {
	return f.output.send(&proto.ConvertReply{File: f.name, Close: true})
}
