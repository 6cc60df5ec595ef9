package gateway

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// A request that is refused before its body was read, as one over the limit
// is, gets its answer while the client still sends. To close the connection
// then would reset it, and most clients would lose the answer: they read it
// when they have sent all, or only while nothing has failed. So what they send
// is read on and thrown away, within these bounds.
const (
	lingerTime  = 15 * time.Second
	lingerBytes = 256 << 20
)

// incoming is the body of a request. It knows how far it was read. It stands
// beside the request: a server looks at the request's own.
type incoming struct {
	io.ReadCloser
	begun, ended bool
}

func (b *incoming) Read(p []byte) (int, error) {
	b.begun = true
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// linger reads what is left of a body after the request was answered.
func (in *inbound) linger() {
	if in.sent.ended || in.r.ContentLength == 0 {
		return
	}
	if in.r.Header.Get("Expect") != "" && !in.sent.begun {
		return // the client waits to be asked, and now knows better
	}
	control := http.NewResponseController(in.w)
	if err := control.Flush(); err != nil {
		return
	}
	if err := control.SetReadDeadline(time.Now().Add(lingerTime)); err != nil {
		return
	}
	_, err := io.CopyN(io.Discard, in.sent, lingerBytes)
	if errors.Is(err, io.EOF) || errors.Is(err, http.ErrBodyReadAfterClose) {
		// The connection may serve another request.
		_ = control.SetReadDeadline(time.Time{})
	}
}
