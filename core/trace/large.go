package trace

import (
	"bytes"
	stdjson "encoding/json"
	"io"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"
)

// largeContent is from where on content is compressed as it is written, so that
// it need not be in memory whole, and largeText from where on a text isn't
// copied whole. Both are in bytes.
const (
	largeContent = 1 << 20
	largeText    = 64 << 10
)

// stream compresses one content at a time.
type stream struct {
	enc *zstd.Encoder
	out bytes.Buffer
}

// packFrom compresses, as pack does, what write writes: about size bytes.
func (c *codec) packFrom(size int, write func(io.Writer) error) ([]byte, error) {
	s, _ := c.streams.Get().(*stream)
	if s == nil {
		enc, err := zstd.NewWriter(nil, append(encoderOptions(), zstd.WithEncoderConcurrency(1))...)
		if err != nil {
			return nil, err
		}
		s = &stream{enc: enc}
	}
	s.out.Reset()
	s.out.Grow(size / 3) // what source code and prose come to
	s.out.WriteByte(compressed)
	s.enc.Reset(&s.out)
	if err := write(s.enc); err != nil {
		return nil, err
	}
	if err := s.enc.Close(); err != nil {
		return nil, err
	}
	out := slices.Clone(s.out.Bytes())
	c.streams.Put(s)
	return out, nil
}

// packJSON compresses v as JSON of about size bytes.
func (c *codec) packJSON(size int, v any) ([]byte, error) {
	if size >= largeContent {
		return c.packFrom(size, func(w io.Writer) error { return encodeTo(w, v) })
	}
	s := c.take()
	defer c.scratch.Put(s)
	b := bytes.NewBuffer((*s)[:0])
	if err := json.MarshalWrite(b, v, marshal); err != nil {
		return nil, err
	}
	*s = b.Bytes()
	return c.pack(*s), nil
}

// hole is where a large text belongs in JSON that was written without it. It
// isn't written as empty, since empty fields are left out.
type hole struct {
	at   int // in the JSON, of holeText
	text string
}

const holeText = `"…"`

// encodeTo writes v as encode does. A large text is written piece by piece.
func encodeTo(w io.Writer, v any) error {
	var holes []hole
	put := func(e *jsontext.Encoder, s string) error {
		if len(s) < largeText || s != escape(s) {
			return e.WriteToken(jsontext.String(escape(s)))
		}
		if err := e.WriteValue(jsontext.Value(holeText)); err != nil {
			return err
		}
		holes = append(holes, hole{int(e.OutputOffset()) - len(holeText), s})
		return nil
	}
	frame, err := json.Marshal(v, json.JoinOptions(marshal, json.WithMarshalers(json.JoinMarshalers(
		json.MarshalToFunc(put),
		json.MarshalToFunc(func(e *jsontext.Encoder, r stdjson.RawMessage) error {
			return put(e, unsafe.String(unsafe.SliceData(r), len(r))) // read here alone
		}),
	))))
	if err != nil {
		return err
	}
	at := 0
	for _, h := range holes {
		if _, err := w.Write(frame[at:h.at]); err != nil {
			return err
		}
		if err := quoteTo(w, h.text); err != nil {
			return err
		}
		at = h.at + len(holeText)
	}
	_, err = w.Write(frame[at:])
	return err
}

// quoteTo writes a text as a JSON string.
func quoteTo(w io.Writer, text string) error {
	b := append(make([]byte, 0, largeText), '"')
	for len(text) > 0 {
		n := min(len(text), largeText/2)
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		from := len(b)
		quoted, err := jsontext.AppendQuote(b, text[:n])
		if err != nil {
			return err
		}
		text = text[n:]
		// One quote is written before the first piece and one after the last.
		b = append(quoted[:from], quoted[from+1:len(quoted)-1]...)
		if len(text) == 0 {
			b = append(b, '"')
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	return nil
}
