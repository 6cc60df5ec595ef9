package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"sync"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/hook"
	"github.com/penstock-dev/penstock/sdk/invoker"
	"github.com/penstock-dev/penstock/sdk/judger"
)

// Options are the surroundings of a registry.
type Options struct {
	// CacheDir holds builds, copies of what runs and compiled modules. It is
	// made with mode 0700, as what lies in it is run.
	CacheDir string
	Log      *slog.Logger
	Builtin  []component.Component
	// Shim is the start of the argv that runs the shim, as [penstock, __shim].
	// Programs that speak JSON-RPC then end with the host even when it is
	// killed, with all that they started. Without it only their standard input
	// ends, and one that doesn't look at it lives on.
	Shim []string
}

// Registry holds every component that a pipeline may use. Its methods may be
// called from several goroutines.
type Registry struct {
	cache   cache
	log     *slog.Logger
	shim    []string
	modules modules

	mu       sync.Mutex
	allow    func(key, digest string) error // see Hold
	entries  map[string]*entry              // by kind/name
	programs map[string]*loading            // by what is run and how
	open     map[string]*opened             // by kind/name and config
	closed   bool
}

// entry is one component.
type entry struct {
	component.Descriptor
	key       string
	transport string
	builtin   *component.Component
	program   program
	offer     *offer // of one that is loaded when it is first asked for
}

// program is a loaded plugin over some transport.
type program interface {
	// describe returns what the program holds.
	describe(ctx context.Context) ([]component.Descriptor, error)
	// open makes an instance of one component. An error about one field of the
	// config is a *schema.Error.
	open(ctx context.Context, d component.Descriptor, config json.RawMessage) (instance, error)
	// undescribed is what the program is under a key when it describes nothing.
	undescribed(kind, name string) (component.Descriptor, error)
	digest() string
	close(ctx context.Context) error
}

// instance is one open component of a program.
type instance interface {
	call(ctx context.Context, method string, in []byte) ([]byte, error)
	close(ctx context.Context) error
}

type loading struct {
	once      sync.Once
	described sync.Once
	program   program
	all       []component.Descriptor
	err       error // of its start
	failed    error // of its description
}

type opened struct {
	mu       sync.Mutex
	instance any
}

// New makes a registry with the built-in components.
func New(o Options) *Registry {
	r := &Registry{
		cache:    cache{dir: o.CacheDir},
		log:      o.Log,
		shim:     o.Shim,
		entries:  map[string]*entry{},
		programs: map[string]*loading{},
		open:     map[string]*opened{},
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	for _, c := range o.Builtin {
		r.entries[c.ID()] = &entry{Descriptor: c.Descriptor, key: c.ID(), transport: Builtin, builtin: &c}
	}
	return r
}

// Hold has allow asked of every plugin that is added or offered from now on,
// by its key and the sha256 of what would run, before the plugin is started
// even to describe itself.
func (r *Registry) Hold(allow func(key, digest string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allow = allow
}

// Add loads a plugin: it builds what is given as a Go folder, hashes it,
// copies it into the cache and asks it to describe itself, once for each
// sha256.
func (r *Registry) Add(ctx context.Context, s Source) error {
	if err := r.free(s); err != nil {
		return err
	}
	e, err := r.make(ctx, s)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[s.Key] = e
	return nil
}

// make loads what a source names.
func (r *Registry) make(ctx context.Context, s Source) (*entry, error) {
	kind, name, transport, err := s.check()
	if err != nil {
		return nil, err
	}
	if s.Name != "" {
		name = s.Name
	}
	p, all, err := r.load(ctx, s, transport, kind, name)
	if err != nil {
		return nil, fmt.Errorf("load plugin %s: %w", s.Key, err)
	}
	d, err := pick(all, kind, name)
	if err != nil {
		return nil, fmt.Errorf("load plugin %s: %w", s.Key, err)
	}
	return &entry{Descriptor: d, key: s.Key, transport: transport, program: p}, nil
}

// free reports whether the key of s is taken.
func (r *Registry) free(s Source) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[s.Key]
	switch {
	case r.closed:
		return errClosed
	case e == nil, s.Override && s.Origin == "" && (e.offer != nil || e.transport == Builtin), s.Override && e.transport == Builtin:
		return nil
	case e.offer != nil && s.Origin == "":
		return fmt.Errorf("plugin %s is in a plugin folder, too (%s); set override: true to replace it", s.Key, e.offer.source.Origin)
	case e.offer != nil:
		return fmt.Errorf("plugin %s is in two plugin folders: %s and %s", s.Key, e.offer.source.Origin, s.Origin)
	case e.transport != Builtin:
		return fmt.Errorf("plugin %s is given twice", s.Key)
	}
	return fmt.Errorf("plugin %s is built in; set override: true to replace it", s.Key)
}

// load makes the program of a source, or finds it where another key has
// loaded the same.
func (r *Registry) load(ctx context.Context, s Source, transport, kind, name string) (program, []component.Descriptor, error) {
	same := s
	same.Key, same.Name, same.Override, same.Origin = "", "", false, ""
	id, err := json.Marshal(same)
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	l := r.programs[string(id)]
	if l == nil {
		l = &loading{}
		r.programs[string(id)] = l
	}
	allow := r.allow
	r.mu.Unlock()
	l.once.Do(func() { l.program, l.err = r.start(ctx, s, transport) })
	if l.err != nil {
		return nil, nil, r.unload(ctx, string(id), l, l.err)
	}
	if allow != nil {
		if err := allow(s.Key, l.program.digest()); err != nil {
			return nil, nil, err
		}
	}
	l.described.Do(func() { l.all, l.failed = r.describe(ctx, l.program) })
	if l.failed != nil {
		return nil, nil, r.unload(ctx, string(id), l, l.failed)
	}
	if len(l.all) == 0 {
		d, err := l.program.undescribed(kind, name)
		return l.program, []component.Descriptor{d}, err
	}
	return l.program, l.all, nil
}

// unload forgets a program that can't be used, so that the next Add may
// succeed.
func (r *Registry) unload(ctx context.Context, id string, l *loading, err error) error {
	r.mu.Lock()
	mine := r.programs[id] == l
	if mine {
		delete(r.programs, id)
	}
	r.mu.Unlock()
	if mine && l.program != nil {
		err = errors.Join(err, l.program.close(ctx))
	}
	return err
}

func (r *Registry) start(ctx context.Context, s Source, transport string) (program, error) {
	switch transport {
	case Process:
		return r.loadProcess(ctx, s)
	case Wasm:
		return r.loadWasm(ctx, s)
	default:
		return r.loadExec(s)
	}
}

// describe asks the program, or the cache, for its descriptors.
func (r *Registry) describe(ctx context.Context, p program) ([]component.Descriptor, error) {
	if all, ok := r.cache.description(p.digest()); ok {
		return all, nil
	}
	all, err := p.describe(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if d.Protocol != component.Protocol {
			return nil, fmt.Errorf("%s speaks plugin protocol %d, this penstock speaks %d: rebuild it with the sdk of this version", d.ID(), d.Protocol, component.Protocol)
		}
		if err := checkSchemas(d); err != nil {
			return nil, fmt.Errorf("%s: %w", d.ID(), err)
		}
	}
	if err := r.cache.describe(p.digest(), all); err != nil {
		r.log.Debug("plugin description is not cached", "error", err)
	}
	return all, nil
}

// pick finds a component among those of a program.
func pick(all []component.Descriptor, kind, name string) (component.Descriptor, error) {
	var ids []string
	for _, d := range all {
		if d.Kind == kind && d.Name == name {
			return d, nil
		}
		ids = append(ids, d.ID())
	}
	sort.Strings(ids)
	return component.Descriptor{}, fmt.Errorf("it holds no %s/%s but %v; set name: where it is registered otherwise", kind, name, ids)
}

func (r *Registry) entry(kind, name string) (*entry, error) {
	r.mu.Lock()
	e := r.entries[kind+"/"+name]
	r.mu.Unlock()
	if e == nil {
		return nil, fmt.Errorf("there is no %s %q", kind, name)
	}
	if e.offer != nil {
		return r.take(e)
	}
	return e, nil
}

// Describe returns the descriptor of a component. Its Name is the component's
// own, which differs from name where the source says so.
func (r *Registry) Describe(kind, name string) (component.Descriptor, error) {
	e, err := r.entry(kind, name)
	if err != nil {
		return component.Descriptor{}, err
	}
	return e.Descriptor, nil
}

// Offered lists the keys of the plugin folders' plugins, sorted.
func (r *Registry) Offered() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for key, e := range r.entries {
		if e.offer != nil {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// Names lists the components of a kind, sorted.
func (r *Registry) Names(kind string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for id, e := range r.entries {
		if e.Kind == kind {
			out = append(out, id[len(kind)+1:])
		}
	}
	slices.Sort(out)
	return out
}

// Transport says how a component is loaded, "" if there is none.
func (r *Registry) Transport(kind, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[kind+"/"+name]; e != nil {
		return e.transport
	}
	return ""
}

// Digests returns, by key, the sha256 in hex of what runs, for every plugin
// that isn't compiled in.
func (r *Registry) Digests() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]string{}
	for key, e := range r.entries {
		if e.program != nil {
			out[key] = e.program.digest()
		}
	}
	return out
}

// Judger opens a judger; a judger of groups is a judger.GroupJudger too. Here
// and in the methods below, an equal component and config share one instance,
// which the registry closes, and an error about one field of the config is a
// *schema.Error.
func (r *Registry) Judger(ctx context.Context, name string, config json.RawMessage) (judger.Judger, error) {
	return openAs[judger.Judger](ctx, r, component.Judger, name, config)
}

// Hook opens a hook.
func (r *Registry) Hook(ctx context.Context, name string, config json.RawMessage) (hook.Hook, error) {
	return openAs[hook.Hook](ctx, r, component.Hook, name, config)
}

// Invoker opens an invoker, which is an invoker.Liner too if it reads lines.
func (r *Registry) Invoker(ctx context.Context, name string, config json.RawMessage) (invoker.Invoker, error) {
	return openAs[invoker.Invoker](ctx, r, component.Invoker, name, config)
}

// Converter opens a converter.
func (r *Registry) Converter(ctx context.Context, name string, config json.RawMessage) (converter.Converter, error) {
	return openAs[converter.Converter](ctx, r, component.Converter, name, config)
}

// Format opens a format.
func (r *Registry) Format(ctx context.Context, name string, config json.RawMessage) (format.Format, error) {
	return openAs[format.Format](ctx, r, component.Format, name, config)
}

func openAs[T any](ctx context.Context, r *Registry, kind, name string, config json.RawMessage) (T, error) {
	var none T
	e, err := r.entry(kind, name)
	if err != nil {
		return none, err
	}
	if err := ValidateConfig(e.Descriptor, config); err != nil {
		return none, fmt.Errorf("open %s: %w", e.key, err)
	}
	config, err = canonical(config)
	if err != nil {
		return none, fmt.Errorf("open %s: %w", e.key, err)
	}
	shared, err := r.share(e.key + "\x00" + string(config))
	if err != nil {
		return none, err
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.instance == nil {
		if shared.instance, err = r.instance(ctx, e, config); err != nil {
			shared.instance = nil
			return none, fmt.Errorf("open %s: %w", e.key, err)
		}
	}
	t, ok := shared.instance.(T)
	if !ok {
		return none, fmt.Errorf("open %s: %T is no %s", e.key, shared.instance, kind)
	}
	return t, nil
}

func (r *Registry) share(id string) (*opened, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	o := r.open[id]
	if o == nil {
		o = &opened{}
		r.open[id] = o
	}
	return o, nil
}

func (r *Registry) instance(ctx context.Context, e *entry, config json.RawMessage) (any, error) {
	if e.builtin != nil {
		v, err := e.builtin.Open(ctx, config)
		if err != nil {
			return nil, err
		}
		return guarded(e, r.log, v), nil
	}
	in, err := e.program.open(ctx, e.Descriptor, config)
	if err != nil {
		return nil, err
	}
	adapted, err := adapt(ctx, e, in)
	if err != nil {
		return nil, errors.Join(err, in.close(ctx))
	}
	return adapted, nil
}

// canonical spells equal configs equally: keys sorted, no spaces.
func canonical(config json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(config)) == 0 {
		return json.RawMessage("{}"), nil
	}
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if v == nil {
		return json.RawMessage("{}"), nil
	}
	return chat.Marshal(v)
}

// Close closes every instance, then ends every program. It is bounded by ctx
// and may be called again.
func (r *Registry) Close(ctx context.Context) error {
	r.mu.Lock()
	open, programs := r.open, r.programs
	r.open, r.programs, r.closed = map[string]*opened{}, map[string]*loading{}, true
	r.mu.Unlock()
	var errs []error
	for _, o := range open {
		o.mu.Lock()
		if o.instance != nil {
			errs = append(errs, closeInstance(ctx, o.instance))
		}
		o.mu.Unlock()
	}
	var wg sync.WaitGroup
	results := make(chan error, len(programs))
	for _, l := range programs {
		if l.program != nil {
			wg.Go(func() { results <- l.program.close(ctx) })
		}
	}
	wg.Wait()
	close(results)
	for err := range results {
		errs = append(errs, err)
	}
	errs = append(errs, r.modules.close(ctx))
	return errors.Join(errs...)
}

func closeInstance(ctx context.Context, v any) error {
	if c, ok := v.(interface{ close(context.Context) error }); ok {
		return c.close(ctx)
	}
	return component.Close(v)
}
