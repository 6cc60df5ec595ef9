package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-dev/penstock/core/point"
	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/cost"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// The ways in which calls are captured.
const (
	CaptureExact    = "exact"
	CaptureReported = "reported"
	CaptureText     = "text"
)

// What a name that no model has means.
const (
	UnknownReject = "reject"
	UnknownMain   = "main"
)

// Model is one entry of a pipeline's models, ready to be called. It must not
// change once a session uses it.
type Model struct {
	Entry   string // its key in the pipeline file
	ServeAs string // the name that clients ask for; Entry by default
	// Aliases are further names for it. UnknownModels says what any other
	// name means: UnknownReject (also ""), an error, or UnknownMain, this
	// model.
	Aliases       []string
	UnknownModels string
	Name          string // the name at the upstream
	// Format is nil where the upstream renders and parses by itself.
	Format     format.Format
	FormatName string
	FormatHash string          // of what decides how the format renders, for records
	Tokenizer  token.Tokenizer // needed by capture exact
	Upstream   upstream.Upstream
	Capture    string
	Context    int // in tokens, 0 when it isn't known
	Sampling   chat.Sampling
	Hooks      []Hook // in the order of the file
	// Prices are for an upstream that doesn't say its own (upstream.Info); nil
	// where nobody does.
	Prices *cost.Prices
}

// Hook is one use of a hook under a model.
type Hook = point.Hook

// Budget bounds a session; 0 is no bound.
type Budget struct {
	Calls int `json:"calls"` // generations that reached the upstream
	Turns int `json:"turns"` // those of the main lineage
	// Tokens is input and output together; the call that gets there is
	// answered, the next one is refused.
	Tokens int `json:"tokens"`
	// USD is money. It needs prices: a call gets what is left of it, as the
	// bound of its reply, and is refused where that is next to nothing.
	USD float64 `json:"usd"`
}

// SessionSpec is what a session is opened with.
type SessionSpec struct {
	Session trace.Session
	Model   *Model
	Task    json.RawMessage // the task's own object, for hooks
	Budget  Budget
	// Used is what others have used of the budget before, such as earlier tries
	// of the same stage.
	Used Budget
	// Deadline cancels what is in flight and refuses what comes later; zero
	// for none.
	Deadline time.Time
	// Hold holds the session's calls until Ready or Refuse.
	Hold bool
}

// served is the name that clients ask for.
func (m *Model) served() string {
	if m.ServeAs != "" {
		return m.ServeAs
	}
	return m.Entry
}

// names are all names under which clients may ask for it, the first being its
// own.
func (m *Model) names() []string { return append([]string{m.served()}, m.Aliases...) }

// accept says whether a request may ask for a name, and, where that isn't the
// model's own, what the record is told of it.
func (m *Model) accept(name string) (ok bool, note string) {
	switch {
	case name == m.served():
		return true, ""
	case slices.Contains(m.Aliases, name):
		return true, "model_alias"
	case m.UnknownModels == UnknownMain:
		return true, "model_unknown"
	}
	return false, ""
}

// prices are the dearest that a call of the model may meet, nil where none are
// known.
func (m *Model) prices() *cost.Prices {
	if p := upstream.InfoOf(m.Upstream).Prices; p != nil {
		return p
	}
	return m.Prices
}

// training says that token ids are captured, so that the model's own
// sampling wins.
func (m *Model) training() bool {
	return m.Capture == CaptureExact || m.Capture == CaptureReported
}

func (m *Model) check() error {
	switch {
	case m == nil:
		return errors.New("session has no model")
	case m.Upstream == nil:
		return fmt.Errorf("model %s has no upstream", m.Entry)
	case m.Format == nil && !upstream.InfoOf(m.Upstream).Parses:
		return fmt.Errorf("model %s has no format", m.Entry)
	case m.Format != nil && upstream.InfoOf(m.Upstream).Parses:
		return fmt.Errorf("model %s has a format, but its upstream renders and parses by itself", m.Entry)
	}
	switch m.UnknownModels {
	case "", UnknownReject, UnknownMain:
	default:
		return fmt.Errorf("model %s: unknown_models %q, want reject or main", m.Entry, m.UnknownModels)
	}
	switch m.Capture {
	case CaptureText, CaptureReported:
	case CaptureExact:
		if m.Tokenizer == nil || m.Format == nil {
			return fmt.Errorf("model %s: capture exact needs a format and a tokenizer of ours", m.Entry)
		}
	default:
		return fmt.Errorf("model %s: capture %q, want exact, reported or text", m.Entry, m.Capture)
	}
	return nil
}
