package run

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// Event is one thing that happened in a run, as events.jsonl and `run --json`
// show it.
type Event struct {
	Time       time.Time   `json:"time"`
	Type       string      `json:"type"`
	Run        string      `json:"run"`
	Rollout    string      `json:"rollout,omitempty"`
	Stage      string      `json:"stage,omitempty"`
	Kind       string      `json:"kind,omitempty"` // spawn, judge, convert
	Attempt    string      `json:"attempt,omitempty"`
	Session    string      `json:"session,omitempty"`
	Status     string      `json:"status,omitempty"`
	ExitStatus string      `json:"exit_status,omitempty"`
	Error      string      `json:"error,omitempty"`
	Message    string      `json:"message,omitempty"`
	Reward     *float64    `json:"reward,omitempty"` // of a rollout, or what a judge gave
	Label      string      `json:"label,omitempty"`  // what a judge called it
	Usage      *chat.Usage `json:"usage,omitempty"`
	Seconds    float64     `json:"seconds,omitempty"`
	Count      int         `json:"count,omitempty"`
	Refused    int         `json:"refused,omitempty"` // rows left out
	Denied     int         `json:"denied,omitempty"`  // rows left out by hooks
	Path       string      `json:"path,omitempty"`
	Park       string      `json:"park,omitempty"`   // the id that an answer names
	Reason     string      `json:"reason,omitempty"` // of a park
}

// The types of event.
const (
	RunStarted     = "run.started"
	RolloutParked  = "rollout.parked"
	RunEnded       = "run.ended"
	RolloutStarted = "rollout.started"
	RolloutEnded   = "rollout.ended"
	StageStarted   = "stage.started"
	StageEnded     = "stage.ended"
	StageRetried   = "stage.retried"
	RowsWritten    = "rows.written"
	Warned         = "warning"
)

// Events takes events from any goroutine, writes them to events.jsonl and
// shows them to a listener, one at a time.
type Events struct {
	mu     sync.Mutex
	run    string
	file   *os.File
	listen func(Event)
	clean  func(string) string
	err    error
}

// Events opens the folder's log of events. Listen may be nil.
func (f *Folder) Events(listen func(Event)) (*Events, error) {
	file, err := os.OpenFile(f.Path("events.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	return &Events{run: f.ID, file: file, listen: listen}, nil
}

// NoEvents are events that are shown and not logged. Listen may be nil.
func NoEvents(listen func(Event)) *Events { return &Events{listen: listen} }

// Redact has the words of events go through clean before they are written or
// shown.
func (e *Events) Redact(clean func(string) string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clean = clean
}

// Emit logs an event. Time and run are filled in.
func (e *Events) Emit(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ev.Time, ev.Run = time.Now().UTC(), e.run
	if e.clean != nil {
		ev.Error, ev.Message, ev.Label = e.clean(ev.Error), e.clean(ev.Message), e.clean(ev.Label)
	}
	var err error
	if e.file != nil {
		var line []byte
		if line, err = json.Marshal(ev); err == nil {
			_, err = e.file.Write(append(line, '\n'))
		}
	}
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("write event log: %w", err)
	}
	if e.listen != nil {
		e.listen(ev)
	}
}

// Close closes the log and tells of the first event that could not be
// written.
func (e *Events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file == nil {
		return nil
	}
	if err := e.file.Close(); e.err == nil && err != nil {
		e.err = fmt.Errorf("close event log: %w", err)
	}
	return e.err
}
