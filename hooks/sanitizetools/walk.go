package sanitizetools

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// walk goes through the arguments of one call and keeps what it finds.
type walk struct {
	*sanitizer
	schema   *schema
	findings []Finding
}

// found notes a fault and reports whether it is to be repaired. A nil after
// is something that is left out.
func (w *walk) found(rule, pointer string, before, after []byte) bool {
	mode := w.modes[rule]
	if mode == Off {
		return false
	}
	f := Finding{Rule: rule, Pointer: pointer, Before: before, Fixed: mode == Fix}
	if f.Fixed {
		f.After = after
	}
	w.findings = append(w.findings, f)
	return f.Fixed
}

// stuck notes a fault that can't be repaired.
func (w *walk) stuck(rule, pointer string, before []byte) {
	if w.modes[rule] != Off {
		w.findings = append(w.findings, Finding{Rule: rule, Pointer: pointer, Before: before})
	}
}

const root = "/arguments"

// arguments repairs the arguments of a call.
func (w *walk) arguments(call []member, parameters []byte) []member {
	var ok bool
	if w.schema, ok = parse(parameters); !ok {
		return call
	}
	before := value(call, "arguments")
	args := before
	if args == nil {
		args = []byte("{}")
	}
	if string(value(call, "arguments_raw")) == "true" || kindOf(args) != dict {
		if args, ok = w.unwrap(args); !ok {
			return call
		}
		call = set(call, "arguments_raw", nil)
	}
	if after := w.value(w.schema.root, args, root, 0); !bytes.Equal(after, before) && (before != nil || string(after) != "{}") {
		call = set(call, "arguments", after)
	}
	return call
}

// unwrap makes an object of arguments that are none. False means that they
// stay as they are.
func (w *walk) unwrap(args []byte) ([]byte, bool) {
	if kindOf(args) == text {
		inner := unfence(unquote(args))
		if json.Valid([]byte(inner)) && kindOf([]byte(inner)) == dict {
			return []byte(inner), w.found(jsonInStrings, root, args, []byte(inner))
		}
	}
	after := []byte("{}")
	if empty := kindOf(args) == null || kindOf(args) == text && strings.TrimSpace(unquote(args)) == ""; !empty {
		name, ok := w.only(kindOf(args))
		if !ok {
			w.stuck(rawArguments, root, args)
			return nil, false
		}
		after = join([]member{{name, quote(name), args}})
	}
	return after, w.found(rawArguments, root, args, after)
}

// unfence takes the text out of a Markdown code block.
func unfence(s string) string {
	s = strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(s, "```"); ok {
		if body, ok := strings.CutSuffix(rest, "```"); ok {
			if _, after, ok := strings.Cut(body, "\n"); ok {
				return strings.TrimSpace(after)
			}
		}
	}
	return s
}

// only returns the one property that a bare value can be meant for: the only
// property, or the only required one, if it takes the value's type.
func (w *walk) only(k kinds) (string, bool) {
	sh := w.schema.shape(w.schema.root, nil)
	if sh == nil {
		return "", false
	}
	name := ""
	switch {
	case len(sh.order) == 1:
		name = sh.order[0]
	case len(sh.order) == 0 && len(sh.properties) == 1:
		for only := range sh.properties {
			name = only
		}
	default:
		return "", false
	}
	p, declared := sh.properties[name]
	want := w.schema.kinds(p)
	return name, declared && want != 0 && want&k != 0
}

// value repairs one value and what is in it.
func (w *walk) value(n *node, raw []byte, pointer string, depth int) []byte {
	if depth > maxDepth {
		return raw
	}
	want := w.schema.kinds(n)
	if have := kindOf(raw); want != 0 && want&have == 0 {
		rule, after := convert(raw, have, want)
		if rule == wrongTypes && after == nil && want&list != 0 && w.itemFits(n, have) {
			after = joinArray([][]byte{raw})
		}
		if after == nil {
			w.stuck(rule, pointer, raw)
			return raw
		}
		if !w.found(rule, pointer, raw, after) {
			return raw
		}
		raw = after
	}
	switch kindOf(raw) {
	case dict:
		return w.object(n, raw, pointer, depth)
	case list:
		return w.list(n, raw, pointer, depth)
	}
	return raw
}

func (w *walk) itemFits(n *node, have kinds) bool {
	items := w.schema.resolve(n).Items
	if items == nil {
		return false
	}
	k := w.schema.kinds(items)
	return k != 0 && k&have != 0
}

var (
	integerText = regexp.MustCompile(`^-?(?:0|[1-9]\d*)$`)
	numberText  = regexp.MustCompile(`^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$`)
)

// convert writes a value as one of the types wanted, where there is only one
// way to read it. A nil value means that there is none.
func convert(raw []byte, have, want kinds) (rule string, after []byte) {
	if have != text {
		if want&text != 0 && have&(integer|number|boolean) != 0 {
			return wrongTypes, quote(string(raw))
		}
		return wrongTypes, nil
	}
	s := strings.TrimSpace(unquote(raw))
	if inner := []byte(unfence(s)); want&(dict|list) != 0 && len(inner) > 0 && (inner[0] == '{' || inner[0] == '[') && json.Valid(inner) && kindOf(inner)&want != 0 {
		return jsonInStrings, inner
	}
	switch {
	case want&number != 0 && numberText.MatchString(s), want&integer != 0 && integerText.MatchString(s):
		return wrongTypes, []byte(s)
	case want&boolean != 0 && (strings.EqualFold(s, "true") || strings.EqualFold(s, "false")):
		return wrongTypes, []byte(strings.ToLower(s))
	case want&null != 0 && (strings.EqualFold(s, "null") || s == "None"):
		return wrongTypes, []byte("null")
	}
	return wrongTypes, nil
}

func (w *walk) list(n *node, raw []byte, pointer string, depth int) []byte {
	items := w.schema.resolve(n).Items
	if items == nil {
		return raw
	}
	all := array(raw)
	changed := false
	for i, item := range all {
		after := w.value(items, item, pointer+"/"+strconv.Itoa(i), depth+1)
		changed = changed || !bytes.Equal(after, item)
		all[i] = after
	}
	if !changed {
		return raw
	}
	return joinArray(all)
}

func (w *walk) object(n *node, raw []byte, pointer string, depth int) []byte {
	members, _ := object(raw)
	sh := w.schema.shape(n, members)
	if sh == nil {
		return raw
	}
	changed := false
	kept := members[:0:0]
	for _, m := range members {
		after, keep := w.member(sh, members, m, pointer, depth)
		if keep {
			kept = append(kept, after)
		}
		changed = changed || !keep || after.key != m.key || !bytes.Equal(after.value, m.value)
	}
	for _, name := range sh.order {
		if value(kept, name) != nil {
			continue
		}
		at := pointer + "/" + escape(name)
		v := w.schema.resolve(sh.properties[name]).Default
		if v == nil {
			w.stuck(missingRequired, at, nil)
		} else if w.found(missingRequired, at, nil, v) {
			kept = append(kept, member{name, quote(name), v})
			changed = true
		}
	}
	if !changed {
		return raw
	}
	return join(kept)
}

// member repairs one member of an object; keep is false if it is left out.
func (w *walk) member(sh *shape, all []member, m member, pointer string, depth int) (after member, keep bool) {
	at := pointer + "/" + escape(m.key)
	p, declared := sh.properties[m.key]
	if !declared {
		if name, ok := sh.folded(m.key, all); ok && w.found(nameCase, at, quote(m.key), quote(name)) {
			m = member{name, quote(name), m.value}
			at = pointer + "/" + escape(name)
			p, declared = sh.properties[name], true
		}
	}
	if !declared {
		return w.undeclared(sh, m, at, depth)
	}
	want := w.schema.kinds(p)
	if kindOf(m.value) == null && want != 0 && want&null == 0 && !sh.required[m.key] {
		return m, !w.found(wrongTypes, at, m.value, nil)
	}
	m.value = w.value(p, m.value, at, depth+1)
	return m, true
}

// undeclared judges a key that is not among the properties.
func (w *walk) undeclared(sh *shape, m member, at string, depth int) (member, bool) {
	for pattern, p := range sh.pattern {
		if re, err := regexp.Compile(pattern); err != nil || re.MatchString(m.key) {
			m.value = w.value(p, m.value, at, depth+1)
			return m, true
		}
	}
	switch {
	case sh.closed, sh.additional == nil && w.closed && len(sh.properties) > 0:
		return m, !w.found(unknownKeys, at, m.value, nil)
	case sh.additional != nil:
		m.value = w.value(sh.additional, m.value, at, depth+1)
	case len(sh.properties) > 0:
		w.stuck(unknownKeys, at, m.value) // the schema does not forbid it
	}
	return m, true
}

// folded finds the only property whose name differs from key by case alone
// and that is not there itself. Where other keys are allowed, only a required
// property can have been meant.
func (sh *shape) folded(key string, all []member) (found string, ok bool) {
	for name := range sh.properties {
		if !strings.EqualFold(name, key) || value(all, name) != nil || !sh.closed && !sh.required[name] {
			continue
		}
		if ok {
			return "", false
		}
		found, ok = name, true
	}
	return found, ok
}

func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
