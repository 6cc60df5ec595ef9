package exchange

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
)

// mostMessage bounds what is kept of a server's message, in bytes.
const mostMessage = 2000

// refusal reads an answer that isn't 2xx.
func (c *Client) refusal(a *answer) error {
	body, err := io.ReadAll(io.LimitReader(a, 64<<10))
	if err != nil && len(body) == 0 {
		body = []byte(err.Error())
	}
	e := c.Refused(a.response.StatusCode, body)
	e.RetryAfter = retryAfter(a.response.Header, time.Now())
	return e
}

// Refused is the error that a body tells of, in any of the forms that model
// servers use.
func (c *Client) Refused(status int, body []byte) *upstream.StatusError {
	e := &upstream.StatusError{Status: status}
	for _, path := range []string{"error.message", "message", "detail.0.msg", "detail", "error"} {
		if v := gjson.GetBytes(body, path); v.Type == gjson.String && v.Str != "" {
			e.Message = v.Str
			break
		}
	}
	for _, path := range []string{"error.type", "error.code", "type"} {
		if v := gjson.GetBytes(body, path); v.Type == gjson.String && v.Str != "" && v.Str != "error" {
			e.Type = v.Str
			break
		}
	}
	if e.Message == "" {
		e.Message = string(body)
	}
	if e.Message = strings.TrimSpace(cut(c.hide(e.Message), mostMessage)); e.Message == "" {
		e.Message = http.StatusText(status)
	}
	e.Message = c.o.Name + ": " + e.Message
	return e
}

// retryAfter is in seconds, rounded up, 0 for none.
func retryAfter(h http.Header, now time.Time) int {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e9 {
		return int((ms + 999) / 1000)
	}
	value := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil && s > 0 && s < 1e6 {
		return int(s + 0.999)
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return int(at.Sub(now)/time.Second) + 1
	}
	return 0
}

// Excerpt shows the beginning of something that a server sent, on one line
// and without secrets.
func (c *Client) Excerpt(b []byte) string {
	const most = 200
	text := c.hide(string(b[:min(len(b), 4*most)]))
	if short := cut(text, most); len(short) < len(text) || len(b) > 4*most {
		return fmt.Sprintf("%q…", short)
	}
	return fmt.Sprintf("%q", text)
}

// hide cuts the secrets out of a text.
func (c *Client) hide(text string) string {
	for _, secret := range c.o.Secrets {
		if secret == "" {
			continue
		}
		for _, form := range []string{secret, url.QueryEscape(secret)} {
			text = strings.ReplaceAll(text, form, "[redacted]")
		}
	}
	return text
}

// cut is text of at most n bytes, cut between runes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
