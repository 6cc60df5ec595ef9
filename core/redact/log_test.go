package redact

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLogsAreRedacted(t *testing.T) {
	var out bytes.Buffer
	var r *Redactor
	log := slog.New(Handler(slog.NewTextHandler(&out, nil), func() *Redactor { return r }))
	log.Info("early", "n", 1)
	r = New(Options{Values: []string{known}})
	log.With("with", known).WithGroup("g").Error("m "+known, "text", "x"+known, "error", errors.New(known), "n", 7,
		slog.Group("deep", "a", known), "bytes", []string{known})
	assert.NotContains(t, out.String(), known)
	assert.Contains(t, out.String(), "msg=early n=1")
	assert.Contains(t, out.String(), "with=[redacted:value]")
	assert.Contains(t, out.String(), "g.text=x[redacted:value] g.error=[redacted:value] g.n=7 g.deep.a=[redacted:value]")
}
