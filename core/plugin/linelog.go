package plugin

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
)

const (
	maxLine   = 64 << 10 // longer lines are cut
	maxLogged = 1 << 20  // bytes in a second, where lines are bounded
	maxTail   = 4 << 10
	maxCause  = 1500 // bytes of it in an error
)

// lineLog makes log entries of what a plugin writes. A line that slog's JSON
// handler wrote keeps its level and its attributes; the first line of a panic
// is an error and its stack is for debugging; any other line is information.
// It keeps the end of what came.
type lineLog struct {
	log *slog.Logger
	// told says that who reads the panic tells of it, so that its first line
	// is for debugging as well.
	told bool
	// lines allowed in a second; 0 means any number. Of bytes it is then
	// maxLogged.
	rate int

	mu      sync.Mutex
	part    []byte
	last    []byte
	cause   []byte // of a panic, from its first line
	panics  bool
	second  time.Time
	count   int
	bytes   int
	dropped int
}

func newLineLog(log *slog.Logger) *lineLog { return &lineLog{log: log} }

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(p)
	rest := p
	for {
		line, after, ok := bytes.Cut(rest, []byte{'\n'})
		if room := maxLine - len(l.part); room > 0 {
			l.part = append(l.part, line[:min(room, len(line))]...)
		}
		if !ok {
			return len(p), nil
		}
		l.emit(l.part)
		l.part, rest = l.part[:0], after
	}
}

// keep remembers the end of what was written.
func (l *lineLog) keep(p []byte) {
	if len(p) >= maxTail {
		l.last = append(l.last[:0], p[len(p)-maxTail:]...)
		return
	}
	l.last = append(l.last, p...)
	if over := len(l.last) - maxTail; over > 0 {
		l.last = append(l.last[:0], l.last[over:]...)
	}
}

// tail is the end of what the plugin wrote; of a Go panic it is the message
// and where it came from, however much followed. The line that says what went
// wrong comes first, as that of a panic does, where more stands before it.
func (l *lineLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.panics {
		return strings.TrimSpace(string(l.cause))
	}
	text := l.last
	if over := len(text) - maxCause; over > 0 {
		text = text[over:]
	}
	return tellingFirst(strings.TrimSpace(strings.ToValidUTF8(string(text), "")))
}

const traceback = "Traceback (most recent call last):"

// tellingFirst puts the line of a text that says the most in front of it: that
// of the exception after a Python traceback, else the last one.
func tellingFirst(text string) string {
	lines := strings.Split(text, "\n")
	if len(lines) == 1 {
		return text
	}
	telling := lines[len(lines)-1]
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.TrimSpace(lines[i]) != traceback {
			continue
		}
		for _, line := range lines[i+1:] {
			if line != "" && line[0] != ' ' {
				telling = line
				break
			}
		}
		break
	}
	return telling + "\nafter:\n" + text
}

// reason is the line of the tail that says the most; "" if the plugin wrote
// nothing.
func (l *lineLog) reason() string {
	text, _, _ := strings.Cut(l.tail(), "\n")
	return text
}

// note remembers a line of a panic and returns the level of a line that
// doesn't say its own.
func (l *lineLog) note(line []byte) slog.Level {
	level := slog.LevelInfo
	if l.panics {
		level = slog.LevelDebug
	}
	if !l.panics && (bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))) {
		l.panics = true
		if level = slog.LevelError; l.told {
			level = slog.LevelDebug
		}
	}
	if l.panics && len(l.cause)+len(line) < maxCause {
		l.cause = append(append(l.cause, line...), '\n')
	}
	return level
}

func (l *lineLog) emit(line []byte) {
	level := l.note(line)
	if len(bytes.TrimSpace(line)) == 0 || !l.allow(len(line)) {
		return
	}
	if line[0] == '{' && gjson.ValidBytes(line) {
		if l.reemit(gjson.ParseBytes(line)) {
			return
		}
	}
	l.log.Log(context.Background(), level, string(line))
}

// at logs one line at a level, unless the line itself says its level, with
// more attributes.
func (l *lineLog) at(level slog.Level, line []byte, more ...slog.Attr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.allow(len(line)) {
		return
	}
	if len(line) > 0 && line[0] == '{' && gjson.ValidBytes(line) && l.reemit(gjson.ParseBytes(line), more...) {
		return
	}
	l.log.LogAttrs(context.Background(), level, string(line), more...)
}

// reemit logs a line of slog's JSON handler anew.
func (l *lineLog) reemit(entry gjson.Result, more ...slog.Attr) bool {
	text := entry.Get(slog.MessageKey)
	var level slog.Level
	if text.Type != gjson.String || level.UnmarshalText([]byte(entry.Get(slog.LevelKey).Str)) != nil {
		return false
	}
	var attrs []slog.Attr
	entry.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case slog.TimeKey, slog.LevelKey, slog.MessageKey:
		default:
			attrs = append(attrs, slog.Any(k.Str, v.Value()))
		}
		return true
	})
	l.log.LogAttrs(context.Background(), level, text.Str, append(attrs, more...)...)
	return true
}

// allow bounds the lines in a second, and their bytes, and says afterwards how
// many lines were lost.
func (l *lineLog) allow(size int) bool {
	if l.rate == 0 {
		return true
	}
	now := time.Now()
	if now.Sub(l.second) >= time.Second {
		if l.dropped > 0 {
			l.log.Warn("plugin logged too much, lines were left out", "lines", l.dropped)
		}
		l.second, l.count, l.bytes, l.dropped = now, 0, 0, 0
	}
	if l.count == l.rate || l.bytes+size > maxLogged {
		l.dropped++
		return false
	}
	l.count++
	l.bytes += size
	return true
}
