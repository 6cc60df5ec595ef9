// Package settings is how the engine is set up on this machine: where runs
// lie, where the gateway listens, limits, plugin folders, logs. Layers are laid
// over each other, each key by itself:
//
//	defaults < ~/.config/penstock/settings.yaml < ./penstock.settings.yaml < PENSTOCK_* < flags
//
// What never enters: anything that changes what a pipeline means. That stands
// in the pipeline file, so that a run can be repeated elsewhere.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
)

// Settings are the engine's settings. Paths are absolute.
type Settings struct {
	Runs  string // the folder of run folders
	Cache string // built plugins, compiled modules
	// SharedCache says that Cache is a default below the system's temp folder,
	// where others can make folders too.
	SharedCache bool
	Gateway     Gateway
	Limits      Limits
	Plugins     Plugins
	Trace       Trace
	Log         Log
	// Redact and Telemetry say what is taken out of what is written, and what
	// is told to others.
	Redact    Redact
	Telemetry Telemetry
	// From says where each key that isn't a default was set: a file, a
	// variable, a flag.
	From map[string]string
	// Unknown are PENSTOCK_* variables that mean nothing; likely typing errors.
	Unknown []string
}

// Gateway is the model's HTTP front.
type Gateway struct {
	Addr      string        // host:port; port 0 lets the system pick
	KeepAlive time.Duration // how long a streamed reply may be silent
	// SessionTTL is how long a session that no stage opened may be idle.
	SessionTTL time.Duration
}

// Limits bound what one client may ask.
type Limits struct {
	Body     int64 // bytes of a request
	Calls    int   // of a session at once
	Messages int   // of a request
	Tools    int   // of a request
	Sessions int   // open at once
	// SessionBytes and TraceBytes are what the records of a session and of a run
	// take; 0 is no bound.
	SessionBytes, TraceBytes int64
}

// Plugins says where plugins are looked for.
type Plugins struct{ Dirs []string }

// Trace is the durable store of a run.
type Trace struct{ Durability string } // normal or fsync

// Log is what is written to stderr.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // auto, text or json
}

// Redact is how secrets are found beside those that are known by value.
type Redact struct {
	Patterns bool // also by the shapes of common keys
}

// Telemetry is off unless something is set.
type Telemetry struct {
	OTLP       string // the root of a collector, http://host:4318; "" for none
	Content    bool   // spans also hold what was said
	Semconv    string // the names of attributes: v1.41 or genai-0.1
	Prometheus bool   // the gateway serves /metrics to its operator
}

// Options say where settings come from. Zero values mean those of this
// process.
type Options struct {
	Dir       string          // the working directory
	ConfigDir string          // ~/.config
	CacheDir  string          // ~/.cache
	Environ   func() []string // NAME=value
	// Flags are values given on the command line, by key, such as
	// "gateway.addr" of the flag --gateway-addr.
	Flags map[string]string
}

// delim parts the names of a key. Keys hold no colons, so that one with a dot
// stays whole.
const delim = "::"

// prefix is that of environment variables.
const prefix = "PENSTOCK_"

// apart are variables that aren't settings: they are read where they are used.
var apart = map[string]bool{"PENSTOCK_OPERATOR_TOKEN": true}

// Load reads all layers. The error lists everything that is wrong, each with
// its file and line, variable or flag.
func Load(o Options) (*Settings, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &loader{o: o, k: koanf.New(delim), from: map[string]origin{}}
	defaults := map[string]any{}
	for _, key := range keys {
		if key.def != "" {
			defaults[strings.ReplaceAll(key.name, ".", delim)] = key.def
		}
	}
	defaults["cache"] = o.cache()
	if err := l.k.Load(confmap.Provider(defaults, delim), nil); err != nil {
		return nil, fmt.Errorf("read default settings: %w", err)
	}
	if o.ConfigDir != "" {
		l.file(filepath.Join(o.ConfigDir, "penstock", "settings.yaml"))
	}
	l.file(filepath.Join(o.Dir, "penstock.settings.yaml"))
	l.environment()
	l.flags()
	s := l.settings()
	if len(l.problems) > 0 {
		return nil, &Error{l.problems}
	}
	s.SharedCache = o.CacheDir == "" && s.From["cache"] == ""
	return s, nil
}

// cache is the default of that setting. A process without a home, as of a
// service, has it in the temp folder, apart for each user.
func (o Options) cache() string {
	if o.CacheDir == "" {
		return filepath.Join(os.TempDir(), fmt.Sprintf("penstock-cache-%d", os.Getuid()))
	}
	return filepath.Join(o.CacheDir, "penstock")
}

func (o Options) withDefaults() (Options, error) {
	var err error
	if o.Dir == "" {
		if o.Dir, err = os.Getwd(); err != nil {
			return o, fmt.Errorf("find working directory: %w", err)
		}
	}
	if o.ConfigDir == "" {
		if o.ConfigDir = os.Getenv("XDG_CONFIG_HOME"); o.ConfigDir == "" {
			// Without a home there is no file to read there.
			if home, err := os.UserHomeDir(); err == nil {
				o.ConfigDir = filepath.Join(home, ".config")
			}
		}
	}
	if o.CacheDir == "" {
		o.CacheDir, _ = os.UserCacheDir() // "" without a home
	}
	if o.Environ == nil {
		o.Environ = os.Environ
	}
	return o, nil
}

// Error is all that is wrong with the settings.
type Error struct{ Problems []string }

func (e *Error) Error() string { return "bad settings:\n  " + strings.Join(e.Problems, "\n  ") }

// origin is where a key was set, and the folder at which its paths start.
type origin struct{ where, dir string }

type loader struct {
	o        Options
	k        *koanf.Koanf
	from     map[string]origin
	problems []string
	unknown  []string
}

func (l *loader) problem(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

func (l *loader) file(path string) {
	layer := koanf.New(delim)
	err := layer.Load(file.Provider(path), yaml.Parser())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // a home may be no folder at all
		return
	}
	if err != nil {
		l.problem("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	lines := linesOf(path)
	for _, name := range layer.Keys() {
		where := fmt.Sprintf("%s:%d", path, lines[name])
		shown := strings.ReplaceAll(name, delim, ".")
		key := keyOf(shown)
		if key == nil {
			l.problem("%s: unknown setting '%s'%s", where, shown, near(shown))
			continue
		}
		l.set(key, layer.Get(name), origin{where, filepath.Dir(path)})
	}
}

func (l *loader) environment() {
	byVariable := map[string]*key{}
	for i := range keys {
		byVariable[keys[i].variable()] = &keys[i]
	}
	layer := koanf.New(delim)
	err := layer.Load(env.Provider(delim, env.Opt{
		Prefix: prefix, EnvironFunc: l.o.Environ,
		TransformFunc: func(name, value string) (string, any) {
			key := byVariable[name]
			if key == nil {
				if !apart[name] {
					l.unknown = append(l.unknown, name)
				}
				return "", nil
			}
			return strings.ReplaceAll(key.name, ".", delim), value
		},
	}), nil)
	if err != nil {
		l.problem("read environment: %s", err)
		return
	}
	sort.Strings(l.unknown)
	for _, name := range layer.Keys() {
		key := keyOf(strings.ReplaceAll(name, delim, "."))
		l.set(key, layer.Get(name), origin{key.variable(), l.o.Dir})
	}
}

func (l *loader) flags() {
	for name, value := range l.o.Flags {
		key := keyOf(name)
		if key == nil {
			l.problem("flag for '%s': there is no such setting", name)
			continue
		}
		l.set(key, value, origin{"--" + strings.NewReplacer(".", "-", "_", "-").Replace(name), l.o.Dir})
	}
}

// set lays a value over those before.
func (l *loader) set(k *key, value any, from origin) {
	if err := l.k.Set(strings.ReplaceAll(k.name, ".", delim), value); err != nil {
		l.problem("%s: %s: %s", from.where, k.name, err)
		return
	}
	l.from[k.name] = from
}
