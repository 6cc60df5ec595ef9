package anthropic

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"strconv"

	"github.com/penstock-dev/penstock/core/wire"
	"github.com/penstock-dev/penstock/core/wire/rawjson"
	"github.com/penstock-dev/penstock/core/wire/sse"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// stream writes one reply. Each method builds its events in buf and writes
// them at once.
type stream struct {
	buf     []byte
	started bool
	calls   bool
	blocks  int // blocks opened so far; the open one is the last
	open    blockKind
	part    int // of the deltas of the open block
	runes   sse.Runes

	// Of an open thinking block.
	hash      hash.Hash
	signature string
	// Of an open tool_use block: whether its arguments go out as they come,
	// and what is held while that isn't known or can't be.
	live bool
	held []byte
}

type blockKind uint8

const (
	closed blockKind = iota
	textBlock
	thinkingBlock
	redactedBlock
	callBlock
)

// Start implements wire.Stream.
func (s *stream) Start(w io.Writer, r *chat.Reply) error {
	s.started = true
	b := append(s.buf[:0], "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	b = appendHead(b, r)
	b = append(b, `,"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	b = appendUsage(b, chat.Usage{Input: r.Usage.Input, Cached: r.Usage.Cached, CacheWrite: r.Usage.CacheWrite})
	s.buf = append(b, "}}\n\n"...)
	return s.flush(w)
}

// Delta implements wire.Stream. A block is opened by its first delta that has
// something to show; a delta of another part closes the open block.
//
// Arguments go out as they come when they begin as an object or a list: text
// that then turns out not to be JSON reaches the client as it is, and is its
// to refuse. Other arguments are held until the part ends and then wrapped,
// as in a whole reply.
func (s *stream) Delta(w io.Writer, d chat.Delta) error {
	s.buf = s.buf[:0]
	if s.open != closed && d.Part != s.part {
		s.close()
	}
	switch d.Type {
	case chat.DeltaText:
		if d.Text != "" {
			s.start(textBlock, d)
			s.text(`"text_delta","text":`, s.runes.Next(d.Text))
		}
	case chat.DeltaReasoning:
		s.start(thinkingBlock, d)
		s.think(s.runes.Next(d.Text))
	case chat.DeltaSignature:
		s.start(thinkingBlock, d)
		s.signature += d.Text
	case chat.DeltaRedacted:
		s.start(redactedBlock, d)
	case chat.DeltaCallStart:
		s.start(callBlock, d)
	case chat.DeltaCallArgs:
		if s.open != callBlock {
			return fmt.Errorf("write an event: arguments of part %d before its call_start", d.Part)
		}
		s.arguments(d.Text)
	case chat.DeltaPartEnd:
		s.close()
	default:
		return fmt.Errorf("write an event: a delta of type %q can't be sent", d.Type)
	}
	return s.flush(w)
}

// start opens a block, unless the delta continues the one that is open.
func (s *stream) start(kind blockKind, d chat.Delta) {
	if s.open == kind {
		return
	}
	s.close()
	s.open, s.part = kind, d.Part
	b := append(s.buf, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":"...)
	b = strconv.AppendInt(b, int64(s.blocks), 10)
	b = append(b, `,"content_block":`...)
	switch kind {
	case textBlock:
		b = append(b, `{"type":"text","text":""}`...)
	case thinkingBlock:
		if s.hash == nil {
			s.hash = sha256.New()
		}
		s.hash.Reset()
		s.signature = ""
		b = append(b, `{"type":"thinking","thinking":"","signature":""}`...)
	case redactedBlock:
		b = appendBlock(b, chat.Part{Type: chat.Reasoning, Data: d.Text})
	case callBlock:
		s.calls, s.live, s.held = true, false, s.held[:0]
		b = append(b, `{"type":"tool_use","id":`...)
		b = sse.AppendString(b, d.ID)
		b = append(b, `,"name":`...)
		b = sse.AppendString(b, d.Name)
		b = append(b, `,"input":{}}`...)
	}
	s.buf = append(b, "}\n\n"...)
	s.blocks++
}

// text appends a delta of the open block, unless it is empty.
func (s *stream) text(kind, text string) {
	if text == "" {
		return
	}
	b := append(s.buf, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	b = strconv.AppendInt(b, int64(s.blocks-1), 10)
	b = append(b, `,"delta":{"type":`...)
	b = append(b, kind...)
	b = sse.AppendString(b, text)
	s.buf = append(b, "}}\n\n"...)
}

func (s *stream) think(text string) {
	io.WriteString(s.hash, text)
	s.text(`"thinking_delta","thinking":`, text)
}

const argsDelta = `"input_json_delta","partial_json":`

// arguments sends or holds the next bytes of a call's arguments.
func (s *stream) arguments(text string) {
	if s.live {
		s.text(argsDelta, s.runes.Next(text))
		return
	}
	s.held = append(s.held, text...)
	if k := rawjson.Of(s.held).Kind(); k == '{' || k == '[' {
		s.live = true
		s.text(argsDelta, s.runes.Next(string(bytes.TrimLeft(s.held, " \t\r\n"))))
	}
}

// close ends the open block with what it still owes.
func (s *stream) close() {
	switch s.open {
	case closed:
		return
	case textBlock:
		s.text(`"text_delta","text":`, s.runes.Rest())
	case thinkingBlock:
		s.think(s.runes.Rest())
		if s.signature == "" {
			s.signature = signatureOf(s.hash)
		}
		s.text(`"signature_delta","signature":`, s.signature)
	case callBlock:
		if s.live {
			s.text(argsDelta, s.runes.Rest())
		} else {
			s.text(argsDelta, string(appendInput(nil, s.held)))
		}
	}
	b := append(s.buf, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
	b = strconv.AppendInt(b, int64(s.blocks-1), 10)
	s.buf = append(b, "}\n\n"...)
	s.open = closed
}

// Finish implements wire.Stream. A reply that failed isn't ended: clients
// would take it for a whole one.
func (s *stream) Finish(w io.Writer, r *chat.Reply) error {
	if r.Finish == chat.FinishError {
		return s.Error(w, wire.Errorf(wire.Upstream, "The reply was cut"))
	}
	s.buf = s.buf[:0]
	s.close()
	b := append(s.buf, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	b = appendStop(b, r, s.calls)
	b = append(b, `},"usage":`...)
	b = appendUsage(b, r.Usage)
	s.buf = append(b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
	return s.flush(w)
}

// KeepAlive implements wire.Stream. Before message_start a ping would be the
// first event, which SDKs don't expect; a comment is read by none.
func (s *stream) KeepAlive(w io.Writer) error {
	if !s.started {
		_, err := io.WriteString(w, sse.Comment)
		return err
	}
	_, err := io.WriteString(w, "event: ping\ndata: {\"type\":\"ping\"}\n\n")
	return err
}

// Error implements wire.Stream.
func (s *stream) Error(w io.Writer, e *wire.Error) error {
	b := append(s.buf[:0], "event: error\ndata: "...)
	b = appendError(b, e)
	s.buf = append(b, "\n\n"...)
	return s.flush(w)
}

func (s *stream) flush(w io.Writer) error {
	if len(s.buf) == 0 {
		return nil
	}
	_, err := w.Write(s.buf)
	return err
}
