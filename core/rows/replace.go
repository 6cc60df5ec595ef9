package rows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// theirs are the fields that a hook may change: what the row is worth, which
// of its tokens are trained, and how the messages of a row without ids read.
// All others say where the row comes from.
var theirs = map[string]bool{
	"reward": true, "components": true, "input_ids": true, "loss_mask": true, "logprobs": true, "prompt_len": true,
	"messages": true, "tools": true, "integrity": true,
}

// Replace reads the row that a hook puts in place of row, or says why it
// can't: only some fields may change, ids, mask and logprobs keep one length,
// and a token that is trained stays the one that was sampled. A row may be cut
// and trained tokens may be masked.
func Replace(row *converter.Row, value json.RawMessage) (*converter.Row, error) {
	var out converter.Row
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	if field := foreign(row, &out); field != "" {
		return nil, fmt.Errorf("it changes %s, which says where the row comes from", field)
	}
	if out.Reward != nil && (math.IsNaN(*out.Reward) || math.IsInf(*out.Reward, 0)) {
		return nil, fmt.Errorf("reward is %v, want a finite number or null", *out.Reward)
	}
	if err := sameIntegrity(row.Integrity, out.Integrity); err != nil {
		return nil, err
	}
	if row.InputIDs == nil {
		if out.InputIDs != nil || out.LossMask != nil || out.Logprobs != nil || out.PromptLen != nil {
			return nil, fmt.Errorf("it gives ids to a row that has none")
		}
		return &out, nil
	}
	return &out, tokens(row, &out)
}

// foreign is the first field that differs and isn't a hook's to change.
func foreign(was, is *converter.Row) string {
	a, b := reflect.ValueOf(*was), reflect.ValueOf(*is)
	for i := range a.NumField() {
		name := fieldName(a.Type().Field(i))
		if !theirs[name] && !alike(a.Field(i).Interface(), b.Field(i).Interface()) {
			return name
		}
	}
	return ""
}

func fieldName(f reflect.StructField) string {
	name, _, _ := bytes.Cut([]byte(f.Tag.Get("json")), []byte{','})
	return string(name)
}

// alike compares by JSON, in which an absent list and an empty one differ, but
// a nil and an empty map that is left out don't.
func alike(a, b any) bool {
	x, err := chat.Marshal(a)
	y, err2 := chat.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// sameIntegrity lets a hook add findings, but take none away.
func sameIntegrity(was, is converter.Integrity) error {
	starts := func(list, with []string) bool {
		return len(list) >= len(with) && slices.Equal(list[:len(with)], with)
	}
	if was.Calls != is.Calls || was.Missing != is.Missing || !alike(was.Drift, is.Drift) ||
		!starts(is.Fatal, was.Fatal) || !starts(is.Warn, was.Warn) {
		return fmt.Errorf("it changes integrity; a hook may only add to its fatal and warn findings")
	}
	return nil
}

// tokens checks the ids of a row against those of the original.
func tokens(was, is *converter.Row) error {
	n := len(is.InputIDs)
	switch {
	case len(is.LossMask) != n || len(is.Logprobs) != n:
		return fmt.Errorf("input_ids, loss_mask and logprobs have %d, %d and %d items, want one length", n, len(is.LossMask), len(is.Logprobs))
	case n == 0 || n > len(was.InputIDs):
		return fmt.Errorf("it has %d ids, the row has %d: a row may be cut, but neither emptied nor lengthened", n, len(was.InputIDs))
	case is.PromptLen == nil || *is.PromptLen < 0 || *is.PromptLen > n:
		return fmt.Errorf("prompt_len is not between 0 and the %d ids", n)
	}
	for i, mask := range is.LossMask {
		switch {
		case mask == 0 && is.Logprobs[i] == nil:
		case mask == 0:
			return fmt.Errorf("logprobs[%d] is a number where loss_mask is 0", i)
		case mask != 1:
			return fmt.Errorf("loss_mask[%d] is %d, want 0 or 1", i, mask)
		case was.LossMask[i] != 1:
			return fmt.Errorf("loss_mask[%d] is 1, but the token is not trained in the row", i)
		case is.InputIDs[i] != was.InputIDs[i] || is.Logprobs[i] == nil || *is.Logprobs[i] != *was.Logprobs[i]:
			return fmt.Errorf("token %d is trained, so its id and logprob have to stay those that were sampled", i)
		}
	}
	return nil
}

// Difference keeps of two rows in JSON form only the fields that differ. A
// field that is only in one of them is null in the other.
func Difference(before, after json.RawMessage) (json.RawMessage, json.RawMessage) {
	if after == nil {
		return nil, nil // denied: the original is in the store
	}
	var b, a map[string]json.RawMessage
	if json.Unmarshal(before, &b) != nil || json.Unmarshal(after, &a) != nil {
		return before, after
	}
	null := json.RawMessage("null")
	for name, value := range b {
		other, ok := a[name]
		switch {
		case !ok:
			a[name] = null
		case bytes.Equal(value, other):
			delete(a, name)
			delete(b, name)
		}
	}
	for name := range a {
		if b[name] == nil {
			b[name] = null
		}
	}
	x, errX := chat.Marshal(b)
	y, errY := chat.Marshal(a)
	if errX != nil || errY != nil {
		return before, after
	}
	return x, y
}

// Apply puts changed fields, as Difference gives them, into a row.
func Apply(row *converter.Row, changed json.RawMessage) (*converter.Row, error) {
	raw, err := chat.Marshal(row)
	if err != nil {
		return nil, err
	}
	var fields, with map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(changed, &with); err != nil {
		return nil, err
	}
	for name, value := range with {
		fields[name] = value
	}
	if raw, err = chat.Marshal(fields); err != nil {
		return nil, err
	}
	return Replace(row, raw)
}
