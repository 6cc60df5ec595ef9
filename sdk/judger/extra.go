package judger

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/schema"
)

// Writes declares, as a struct, fields that the judger's verdicts have beside
// those of every verdict; a judger gives them in Verdict.Extra. Later stages
// read them as they read the reward.
func Writes[T any]() Option {
	return func(d *component.Descriptor) { d.Output = merged(Output, schema.Of[T]()) }
}

// merged is the schema of an object with the fields of both.
func merged(a, b json.RawMessage) json.RawMessage {
	type object struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required,omitempty"`
		Closed     bool                       `json:"additionalProperties"`
	}
	var x, y object
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return a
	}
	maps.Copy(x.Properties, y.Properties)
	x.Required = slices.Compact(append(x.Required, y.Required...))
	out, err := chat.Marshal(x)
	if err != nil {
		return a
	}
	return out
}

// verdict has a verdict's own fields, and none of its methods.
type verdict Verdict

// own are the names of the fields that every verdict may have.
var own = []string{"reward", "components", "label", "explanation", "status", "tampered", "cost"}

// MarshalJSON writes the fields of Extra behind the verdict's own, by name.
func (v Verdict) MarshalJSON() ([]byte, error) {
	out, err := chat.Marshal(verdict(v))
	if err != nil || len(v.Extra) == 0 {
		return out, err
	}
	extra := maps.Clone(v.Extra)
	maps.DeleteFunc(extra, func(name string, _ json.RawMessage) bool { return slices.Contains(own, name) })
	more, err := chat.Marshal(extra)
	if err != nil || len(extra) == 0 {
		return out, err
	}
	return append(append(out[:len(out)-1], ','), more[1:]...), nil
}

// UnmarshalJSON puts what isn't a verdict's own into Extra.
func (v *Verdict) UnmarshalJSON(b []byte) error {
	var plain verdict
	if err := json.Unmarshal(b, &plain); err != nil {
		return err
	}
	if err := json.Unmarshal(b, &plain.Extra); err != nil {
		return err
	}
	for _, name := range own {
		delete(plain.Extra, name)
	}
	if len(plain.Extra) == 0 {
		plain.Extra = nil
	}
	*v = Verdict(plain)
	return nil
}
