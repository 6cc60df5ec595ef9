package format

import (
	"encoding/json"
	"fmt"
)

// wireEvent is the JSON form of an event. Text that isn't UTF-8 loses its
// broken bytes there, as JSON has no place for them.
type wireEvent struct {
	Kind       string `json:"kind"`
	Index      *int   `json:"index,omitempty"`
	ID         string `json:"id,omitempty"`
	Name       string `json:"name,omitempty"`
	Text       string `json:"text,omitempty"`
	Span       Span   `json:"span"`
	Incomplete bool   `json:"incomplete,omitempty"`
}

// MarshalJSON writes {kind, index?, id?, name?, text?, span, incomplete?};
// index is there for the events of a call.
func (e Event) MarshalJSON() ([]byte, error) {
	w := wireEvent{Kind: e.Kind.String(), ID: e.ID, Name: e.Name, Text: e.Text, Span: e.Span, Incomplete: e.Incomplete}
	if e.Kind == CallStart || e.Kind == CallArgs || e.Kind == CallEnd {
		w.Index = &e.Index
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (e *Event) UnmarshalJSON(b []byte) error {
	var w wireEvent
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*e = Event{ID: w.ID, Name: w.Name, Text: w.Text, Span: w.Span, Incomplete: w.Incomplete}
	if w.Index != nil {
		e.Index = *w.Index
	}
	for k := Content; k <= Warning; k++ {
		if k.String() == w.Kind {
			e.Kind = k
			return nil
		}
	}
	return fmt.Errorf("event has kind %q", w.Kind)
}

// Join puts together the texts of neighbours of the same kind and index, so
// that events of the same text compare equal whatever its chunks were.
func Join(events []Event) []Event {
	var out []Event
	var text []byte
	flush := func() {
		if len(out) > 0 && text != nil {
			out[len(out)-1].Text = string(text)
			text = nil
		}
	}
	for _, e := range events {
		if n := len(out) - 1; n >= 0 && joins(e.Kind) && out[n].Kind == e.Kind && out[n].Index == e.Index {
			if text == nil {
				text = append(text, out[n].Text...)
			}
			text = append(text, e.Text...)
			out[n].Span.End = e.Span.End
			continue
		}
		flush()
		out = append(out, e)
	}
	flush()
	return out
}

func joins(k EventKind) bool { return k == Content || k == Reason || k == CallArgs }

// Call is a call put together from its events.
type Call struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Arguments is a JSON value, save of an incomplete call, of which it is
	// what had arrived.
	Arguments  string `json:"arguments"`
	Span       Span   `json:"span"`
	Incomplete bool   `json:"incomplete,omitempty"`
}

// Notice is a tolerance that the parser used, and where.
type Notice struct {
	Kind string `json:"kind"`
	Span Span   `json:"span"`
}

// Result is a whole parse.
type Result struct {
	Reasoning string   `json:"reasoning"`
	Content   string   `json:"content"`
	Calls     []Call   `json:"calls"`
	Warnings  []Notice `json:"warnings,omitempty"`
}

// Collect puts events together.
func Collect(events []Event) Result {
	var r Result
	var content, reasoning []byte
	var args [][]byte
	for _, e := range events {
		switch e.Kind {
		case Content:
			content = append(content, e.Text...)
		case Reason:
			reasoning = append(reasoning, e.Text...)
		case CallStart:
			r.Calls = append(r.Calls, Call{ID: e.ID, Name: e.Name, Span: e.Span})
			args = append(args, nil)
		case CallArgs:
			args[e.Index] = append(args[e.Index], e.Text...)
		case CallEnd:
			r.Calls[e.Index].Span, r.Calls[e.Index].Incomplete = e.Span, e.Incomplete
		case Warning:
			r.Warnings = append(r.Warnings, Notice{e.Text, e.Span})
		}
	}
	r.Content, r.Reasoning = string(content), string(reasoning)
	for i := range args {
		r.Calls[i].Arguments = string(args[i])
	}
	return r
}
