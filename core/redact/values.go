package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// The kinds of secrets that are known by value, or by the name of a header.
const (
	KindValue  = "value"
	KindBase64 = "base64"
	KindURL    = "url"
	KindHex    = "hex"
	KindHeader = "header"
)

// minLine is the length of a line that alone is looked for when its secret has
// several, as printed keys do.
const minLine = 20

// needlesOf are the ways in which secrets may be written, each once.
func needlesOf(values []string) []*needle {
	var out []*needle
	seen := map[string]bool{}
	add := func(text, kind string) {
		if len(text) >= MinValue && !seen[text] {
			seen[text] = true
			out = append(out, &needle{text: []byte(text), kind: kind, wraps: kind == KindBase64})
		}
	}
	for _, v := range values {
		v = strings.TrimSpace(v)
		if len(v) < MinValue {
			continue
		}
		for _, text := range escapes(v) {
			add(text, KindValue)
		}
		for _, text := range urlForms(v) {
			add(text, KindURL)
		}
		for _, text := range base64Forms(v) {
			add(text, KindBase64)
		}
		add(hex.EncodeToString([]byte(v)), KindHex)
		add(strings.ToUpper(hex.EncodeToString([]byte(v))), KindHex)
		if strings.Contains(v, "\n") {
			for line := range strings.Lines(v) {
				if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
					add(line, KindValue)
				}
			}
		}
	}
	return out
}

// escapes are a value in the clear and in JSON, also JSON that is itself a
// string of JSON.
func escapes(v string) []string {
	out := []string{v}
	once := jsonForms(v)
	out = append(out, once...)
	for _, o := range once {
		if o != v {
			out = append(out, jsonForms(o)...)
		}
	}
	return out
}

// jsonForms are a value as writers of JSON escape it.
func jsonForms(v string) []string {
	var out []string
	if b, err := chat.Marshal(v); err == nil {
		out = append(out, inner(b))
	}
	if b, err := json.Marshal(v); err == nil {
		out = append(out, inner(b)) // with <, > and & escaped
	}
	if len(out) > 0 {
		out = append(out, strings.ReplaceAll(out[0], "/", `\/`), ascii(out[0]))
	}
	return out
}

func inner(quoted []byte) string { return string(quoted[1 : len(quoted)-1]) }

// ascii escapes what isn't ASCII.
func ascii(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// urlForms are a value as it stands in queries, forms and paths.
func urlForms(v string) []string {
	query := url.QueryEscape(v)
	component := strings.ReplaceAll(query, "+", "%20")
	for _, c := range []string{"!", "'", "(", ")", "*"} { // what encodeURIComponent leaves
		component = strings.ReplaceAll(component, url.QueryEscape(c), c)
	}
	var out []string
	for _, s := range []string{query, strings.ReplaceAll(query, "+", "%20"), component, url.PathEscape(v)} {
		out = append(out, s, lowerPercent(s))
	}
	return out
}

// lowerPercent writes %2F as %2f.
func lowerPercent(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
			i += 2
		}
	}
	return string(b)
}

// base64Forms are the characters of base64 that a value alone decides, at each
// of the three places that it may have in a longer text.
func base64Forms(v string) []string {
	var out []string
	for shift := range 3 {
		out = append(out, aligned(base64.StdEncoding, v, shift), aligned(base64.URLEncoding, v, shift))
	}
	return out
}

// aligned is the base64 of a value after shift other bytes.
func aligned(e *base64.Encoding, v string, shift int) string {
	text := e.EncodeToString([]byte("\x00\x00"[:shift] + v))
	return text[(shift*8+5)/6 : (shift+len(v))*8/6]
}
