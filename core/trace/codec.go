package trace

import (
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"
)

// maxContent bounds what one compressed value may grow to when it is read, so
// that a damaged store can't exhaust memory.
const maxContent = 256 << 20

// codec writes values as JSON that keeps every byte, and compresses. It is
// safe for concurrent use.
type codec struct {
	enc     *zstd.Encoder
	dec     *zstd.Decoder
	streams sync.Pool // of *stream
	scratch sync.Pool // of *[]byte
}

func encoderOptions() []zstd.EOption {
	return []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1 << 20)}
}

func newCodec() (*codec, error) {
	enc, err := zstd.NewWriter(nil, encoderOptions()...)
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxContent))
	if err != nil {
		return nil, err
	}
	return &codec{enc: enc, dec: dec}, nil
}

func (c *codec) close() {
	c.dec.Close()
}

// The first byte of a compressed value: how the rest is held.
const (
	plain      = 0
	compressed = 1
)

// minCompressed is a length below which compression gains nothing.
const minCompressed = 64

// pack compresses b. The result has little room that it doesn't need, because
// thousands may wait to be written at once.
func (c *codec) pack(b []byte) []byte {
	switch {
	case len(b) >= largeContent:
		out, err := c.packFrom(len(b), func(w io.Writer) error { _, err := w.Write(b); return err })
		if err == nil && len(out) <= len(b) {
			return out
		}
	case len(b) >= minCompressed:
		s := c.take()
		defer c.scratch.Put(s)
		*s = c.enc.EncodeAll(b, append((*s)[:0], compressed))
		if len(*s) <= len(b) {
			return slices.Clone(*s)
		}
	}
	return append([]byte{plain}, b...)
}

// take takes a buffer to be given back to scratch.
func (c *codec) take() *[]byte {
	if s, ok := c.scratch.Get().(*[]byte); ok {
		return s
	}
	return new([]byte)
}

func (c *codec) unpack(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errDamaged
	}
	switch b[0] {
	case plain:
		return b[1:], nil
	case compressed:
		out, err := c.dec.DecodeAll(b[1:], nil)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		return out, nil
	}
	return nil, errDamaged
}

// errDamaged says that stored bytes are not what was written.
var errDamaged = errors.New("the stored record is damaged")

// The JSON in the store keeps what JSON can't: a string that isn't UTF-8, and
// the bytes of raw values as they are. Such a string is written as a NUL and
// base64; so is one that begins with a NUL itself.
var (
	marshal = json.JoinOptions(
		json.FormatNilSliceAsNull(true), json.FormatNilMapAsNull(true), jsontext.EscapeForHTML(false), jsontext.AllowInvalidUTF8(true),
		json.WithMarshalers(json.JoinMarshalers(
			json.MarshalToFunc(func(e *jsontext.Encoder, s string) error { return e.WriteToken(jsontext.String(escape(s))) }),
			json.MarshalToFunc(func(e *jsontext.Encoder, r stdjson.RawMessage) error {
				return e.WriteToken(jsontext.String(escape(string(r))))
			}),
		)),
	)
	unmarshal = json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(func(d *jsontext.Decoder, s *string) (err error) {
			*s, err = readString(d)
			return err
		}),
		json.UnmarshalFromFunc(func(d *jsontext.Decoder, r *stdjson.RawMessage) error {
			s, err := readString(d)
			if *r = nil; s != "" {
				*r = stdjson.RawMessage(s)
			}
			return err
		}),
	))
)

func encode(v any) ([]byte, error) { return json.Marshal(v, marshal) }

func decode(b []byte, v any) error {
	if err := json.Unmarshal(b, v, unmarshal); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return nil
}

func escape(s string) string {
	if utf8.ValidString(s) && !strings.HasPrefix(s, "\x00") {
		return s
	}
	return "\x00" + base64.RawStdEncoding.EncodeToString([]byte(s))
}

func readString(d *jsontext.Decoder) (string, error) {
	t, err := d.ReadToken()
	if err != nil {
		return "", err
	}
	if t.Kind() != '"' {
		return "", fmt.Errorf("want a string, got %s", t.Kind())
	}
	s, escaped := strings.CutPrefix(t.String(), "\x00")
	if !escaped {
		return s, nil
	}
	b, err := base64.RawStdEncoding.DecodeString(s)
	return string(b), err
}
