package openai

import (
	"slices"
	"strings"
)

// trim keeps the client's own stop strings out of the text of an engine that
// includes the strings at which it stops. It holds back text only while that
// may be a stop.
type trim struct {
	stops []string
	held  string
}

// watch sets what to look for: the client's stops that aren't the template's.
func (t *trim) watch(client, template []string) {
	for _, s := range client {
		if s != "" && !slices.Contains(template, s) {
			t.stops = append(t.stops, s)
		}
	}
}

// push appends to dst what can go out after the next text.
func (t *trim) push(dst []byte, text string) []byte {
	if len(t.stops) == 0 {
		return append(dst, text...)
	}
	t.held += text
	out := len(t.held)
	for _, s := range t.stops {
		if i := strings.Index(t.held, s); i >= 0 {
			out = min(out, i)
			continue
		}
		for n := min(len(s)-1, len(t.held)); n > 0; n-- {
			if strings.HasSuffix(t.held, s[:n]) {
				out = min(out, len(t.held)-n)
				break
			}
		}
	}
	dst = append(dst, t.held[:out]...)
	t.held = t.held[out:]
	return dst
}

// stop ends a text that stopped. said is the stop that the engine named, ""
// if it named none. The stop that was found is returned, without which nothing
// is cut away.
func (t *trim) stop(dst []byte, said string) ([]byte, string) {
	for _, s := range t.stops {
		if (said == "" || said == s) && strings.HasPrefix(t.held, s) {
			t.held = ""
			return dst, s
		}
	}
	return t.flush(dst), ""
}

// flush appends what is held.
func (t *trim) flush(dst []byte) []byte {
	dst = append(dst, t.held...)
	t.held = ""
	return dst
}
