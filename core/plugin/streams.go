package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"google.golang.org/grpc"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/proto"
)

// pin opens a stream on which the calls of one parser follow each other. It
// ends with the process, so that no handle is ever used in the next one.
func (i *processInstance) pin(ctx context.Context) (instance, error) {
	if i.kind != component.Format {
		return nil, fmt.Errorf("a %s has no streams", i.kind)
	}
	run, err := i.ready(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stream, err := proto.NewFormatClient(run.conn).Parse(ctx)
	if err != nil {
		cancel()
		return nil, i.process.explain(ctx, run, "parse", err)
	}
	return &parsing{instance: i, run: run, stream: stream, cancel: cancel}, nil
}

// parsing is the stream of one parser. It takes one call at a time.
type parsing struct {
	instance *processInstance
	run      *running
	stream   grpc.BidiStreamingClient[proto.CallRequest, proto.CallReply]
	cancel   context.CancelFunc
}

func (p *parsing) call(ctx context.Context, method string, in []byte) ([]byte, error) {
	process := p.instance.process
	if limit := process.limits.Timeout; limit > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, limit)
		defer end()
		stop := context.AfterFunc(ctx, p.cancel)
		defer stop()
	}
	err := p.stream.Send(&proto.CallRequest{Handle: p.instance.handle, Method: method, Input: in})
	if err != nil && !errors.Is(err, io.EOF) { // Recv tells why it is at its end
		return nil, process.explain(ctx, p.run, method, err)
	}
	reply, err := p.stream.Recv()
	if err != nil {
		return nil, process.explain(ctx, p.run, method, err)
	}
	return reply.Output, answered(process.key, method, reply.Error)
}

func (p *parsing) close(context.Context) error {
	p.cancel()
	return nil
}

const (
	rowsInMessage  = 64
	bytesInMessage = 1 << 20
)

// convert streams rows to the plugin and writes the files that come back. The
// plugin's side of the stream bounds how far the rows run ahead.
func (i *processInstance) convert(ctx context.Context, rows iter.Seq2[*converter.Row, error], out converter.Output) error {
	ctx, end, err := i.begin(ctx, "convert", 0)
	if err != nil {
		return err
	}
	defer end()
	run, err := i.ready(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := proto.NewConverterClient(run.conn).Convert(ctx)
	if err != nil {
		return i.process.explain(ctx, run, "convert", err)
	}
	sent := make(chan error, 1)
	go func() { sent <- sendRows(stream, run, i.handle, rows) }()
	files := received{out: out, open: map[string]io.WriteCloser{}}
	err = files.take(stream)
	if err != nil {
		cancel() // ends the sending too
	}
	sendErr := <-sent
	switch {
	case errors.Is(err, errConverter), errors.Is(err, errOutput):
		return err
	case sendErr != nil && !errors.Is(sendErr, io.EOF) && ctx.Err() == nil:
		return sendErr
	case err != nil:
		return i.process.explain(ctx, run, "convert", err)
	}
	return nil
}

// sendRows sends rows in batches, a large one as a file. An error from the sequence goes to the
// plugin too, which then fails the conversion.
func sendRows(stream grpc.BidiStreamingClient[proto.ConvertRequest, proto.ConvertReply], run *running, handle string, rows iter.Seq2[*converter.Row, error]) error {
	batch := &proto.ConvertRequest{Handle: handle}
	size := 0
	flush := func() error {
		err := stream.Send(batch)
		batch, size = &proto.ConvertRequest{}, 0
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	for row, err := range rows {
		if err != nil {
			batch.Error = &proto.Error{Message: err.Error()}
			return errors.Join(err, flush(), stream.CloseSend())
		}
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		if len(text) > proto.MaxInline && run.files {
			if batch.RowFile, err = run.document(text); err == nil {
				err = flush()
			}
			if err != nil {
				return err
			}
			continue
		}
		batch.Rows = append(batch.Rows, text)
		if size += len(text); len(batch.Rows) == rowsInMessage || size >= bytesInMessage {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(batch.Rows) > 0 {
		if err := flush(); err != nil {
			return err
		}
	}
	return stream.CloseSend()
}

var (
	errConverter = errors.New("the converter failed")
	errOutput    = errors.New("its output could not be written")
)

// received are the files that a converter sends.
type received struct {
	out  converter.Output
	open map[string]io.WriteCloser
}

func (r *received) take(stream grpc.BidiStreamingClient[proto.ConvertRequest, proto.ConvertReply]) error {
	defer func() {
		for _, f := range r.open {
			_ = f.Close() // the conversion failed, or the plugin left it open
		}
	}()
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if len(r.open) > 0 {
				return fmt.Errorf("%w: it left a file open", errConverter)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if piece.Error != nil {
			return fmt.Errorf("%w: %s", errConverter, piece.Error.Message)
		}
		if err := r.write(piece); err != nil {
			return fmt.Errorf("%w: %w", errOutput, err)
		}
	}
}

func (r *received) write(piece *proto.ConvertReply) error {
	f := r.open[piece.File]
	if f == nil {
		var err error
		if f, err = r.out.Create(piece.File); err != nil {
			return err
		}
		r.open[piece.File] = f
	}
	if _, err := f.Write(piece.Data); err != nil {
		return err
	}
	if piece.Close {
		delete(r.open, piece.File)
		return f.Close()
	}
	return nil
}
