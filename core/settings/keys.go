package settings

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/core/pipeline/units"
)

// key is one setting: its name, its default as text, and where its value goes.
type key struct {
	name, def string
	read      func(s *Settings, v value) error
}

// value is a setting as found: text, or what YAML made of it.
type value struct {
	raw any
	dir string // relative paths start here
}

var keys = []key{
	{name: "runs", def: "runs", read: func(s *Settings, v value) (err error) { s.Runs, err = v.path(); return }},
	{name: "cache", read: func(s *Settings, v value) (err error) { s.Cache, err = v.path(); return }},
	{name: "gateway.addr", def: "127.0.0.1:0", read: func(s *Settings, v value) (err error) { s.Gateway.Addr, err = v.addr(); return }},
	{name: "gateway.keep_alive", def: "15s", read: func(s *Settings, v value) (err error) {
		s.Gateway.KeepAlive, err = units.Duration(v.text())
		return
	}},
	{name: "gateway.session_ttl", def: "24h", read: func(s *Settings, v value) (err error) {
		s.Gateway.SessionTTL, err = units.Duration(v.text())
		return
	}},
	{name: "limits.body", def: "32MiB", read: func(s *Settings, v value) (err error) { s.Limits.Body, err = units.Size(v.text()); return }},
	{name: "limits.calls", def: "128", read: func(s *Settings, v value) (err error) { s.Limits.Calls, err = v.count(); return }},
	{name: "limits.messages", def: "20000", read: func(s *Settings, v value) (err error) { s.Limits.Messages, err = v.count(); return }},
	{name: "limits.tools", def: "2000", read: func(s *Settings, v value) (err error) { s.Limits.Tools, err = v.count(); return }},
	{name: "limits.sessions", def: "10000", read: func(s *Settings, v value) (err error) { s.Limits.Sessions, err = v.count(); return }},
	{name: "limits.session_bytes", def: "2GiB", read: func(s *Settings, v value) (err error) {
		s.Limits.SessionBytes, err = units.Size(v.text())
		return
	}},
	{name: "limits.trace_bytes", read: func(s *Settings, v value) (err error) { s.Limits.TraceBytes, err = units.Size(v.text()); return }},
	{name: "plugins.dirs", read: func(s *Settings, v value) (err error) { s.Plugins.Dirs, err = v.paths(); return }},
	{name: "trace.durability", def: "normal", read: func(s *Settings, v value) (err error) {
		s.Trace.Durability, err = v.choice("normal", "fsync")
		return
	}},
	{name: "log.level", def: "info", read: func(s *Settings, v value) (err error) {
		s.Log.Level, err = v.choice("debug", "info", "warn", "error")
		return
	}},
	{name: "log.format", def: "auto", read: func(s *Settings, v value) (err error) {
		s.Log.Format, err = v.choice("auto", "text", "json")
		return
	}},
	{name: "redact.patterns", def: "true", read: func(s *Settings, v value) (err error) { s.Redact.Patterns, err = v.yes(); return }},
	{name: "telemetry.otlp", read: func(s *Settings, v value) (err error) { s.Telemetry.OTLP, err = v.url(); return }},
	{name: "telemetry.content", def: "false", read: func(s *Settings, v value) (err error) { s.Telemetry.Content, err = v.yes(); return }},
	{name: "telemetry.semconv", def: "v1.41", read: func(s *Settings, v value) (err error) {
		s.Telemetry.Semconv, err = v.choice("v1.41", "genai-0.1")
		return
	}},
	{name: "telemetry.prometheus", def: "false", read: func(s *Settings, v value) (err error) { s.Telemetry.Prometheus, err = v.yes(); return }},
}

func (k *key) variable() string {
	return prefix + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
}

// keyOf finds a key.
func keyOf(name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

// near is ", known: ..." with the settings of the same group, or all groups.
func near(name string) string {
	group, _, _ := strings.Cut(name, ".")
	var same, all []string
	for _, k := range keys {
		all = append(all, k.name)
		if strings.HasPrefix(k.name, group+".") {
			same = append(same, k.name)
		}
	}
	if len(same) > 0 {
		all = same
	}
	return "; there are: " + strings.Join(all, ", ")
}

// settings reads every key from what the layers gave.
func (l *loader) settings() *Settings {
	s := &Settings{From: map[string]string{}, Unknown: l.unknown}
	for i := range keys {
		k := &keys[i]
		raw := l.k.Get(strings.ReplaceAll(k.name, ".", delim))
		from, given := l.from[k.name]
		if given {
			s.From[k.name] = from.where
		}
		if raw == nil {
			continue
		}
		if from.dir == "" {
			from.dir = l.o.Dir
		}
		if err := k.read(s, value{raw, from.dir}); err != nil {
			l.problem("%s: %s: %s", from.where, k.name, err)
		}
	}
	return s
}

func (v value) text() string { return fmt.Sprint(v.raw) }

func (v value) path() (string, error) {
	s, ok := v.raw.(string)
	if !ok || s == "" {
		return "", fmt.Errorf("want a path, got %v", v.raw)
	}
	if rest, ok := strings.CutPrefix(s, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("%s is in a home folder, and there is none: %w; set HOME, or write the whole path", s, err)
		}
		return filepath.Join(home, rest), nil
	}
	if filepath.IsAbs(s) {
		return filepath.Clean(s), nil
	}
	return filepath.Join(v.dir, s), nil
}

// paths is a list in a file, or a text parted as PATH is.
func (v value) paths() ([]string, error) {
	var items []any
	switch t := v.raw.(type) {
	case []any:
		items = t
	case string:
		for _, s := range filepath.SplitList(t) {
			items = append(items, s)
		}
	default:
		return nil, fmt.Errorf("want a list of folders, got %v", v.raw)
	}
	var out []string
	for _, item := range items {
		p, err := value{item, v.dir}.path()
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (v value) count() (int, error) {
	n, err := strconv.Atoi(v.text())
	if err != nil || n < 1 {
		return 0, fmt.Errorf("want a whole number of at least 1, got %v", v.raw)
	}
	return n, nil
}

func (v value) yes() (bool, error) {
	b, err := strconv.ParseBool(v.text())
	if err != nil {
		return false, fmt.Errorf("want true or false, got %v", v.raw)
	}
	return b, nil
}

// url is the root of an HTTP service.
func (v value) url() (string, error) {
	u, err := url.Parse(v.text())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("want a URL such as http://localhost:4318, got %v", v.raw)
	}
	return v.text(), nil
}

func (v value) choice(names ...string) (string, error) {
	for _, n := range names {
		if v.raw == n {
			return n, nil
		}
	}
	return "", fmt.Errorf("want one of %s, got %v", strings.Join(names, ", "), v.raw)
}

func (v value) addr() (string, error) {
	s := v.text()
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("want host:port, got %s", s)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("'%s' is no port", port)
	}
	return s, nil
}

// linesOf is the line of each key of a YAML file, for messages.
func linesOf(path string) map[string]int {
	lines := map[string]int{}
	var doc yaml.Node
	b, err := os.ReadFile(path)
	if err != nil || yaml.Unmarshal(b, &doc) != nil || len(doc.Content) == 0 {
		return lines
	}
	var walk func(n *yaml.Node, at string)
	walk = func(n *yaml.Node, at string) {
		if n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			if at != "" {
				name = at + delim + name
			}
			lines[name] = n.Content[i].Line
			walk(n.Content[i+1], name)
		}
	}
	walk(doc.Content[0], "")
	return lines
}
