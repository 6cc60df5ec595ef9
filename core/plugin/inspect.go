package plugin

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/penstock-dev/penstock/sdk/component"
)

// Inspection is what can be known of a plugin without opening it.
type Inspection struct {
	Transport  string                 `json:"transport"`
	Digest     string                 `json:"sha256"`
	Described  bool                   `json:"described"` // by itself; else Components is what its exports allow
	Components []component.Descriptor `json:"components"`
}

// Inspect loads a plugin without adding it and says what it holds. The
// source needs no key; the components of a plugin that doesn't describe
// itself are then named as it would be under name.
func (r *Registry) Inspect(ctx context.Context, s Source, name string) (*Inspection, error) {
	transport, err := s.transport()
	if err != nil {
		return nil, err
	}
	p, err := r.start(ctx, s, transport)
	if err != nil {
		return nil, err
	}
	defer func() { _ = p.close(context.WithoutCancel(ctx)) }()
	all, err := r.describe(ctx, p)
	if err != nil {
		return nil, err
	}
	in := &Inspection{Transport: transport, Digest: p.digest(), Described: len(all) > 0, Components: all}
	for _, kind := range allowed[transport] {
		if in.Described {
			break
		}
		if d, err := p.undescribed(kind, name); err == nil {
			in.Components = append(in.Components, d)
		}
	}
	if len(in.Components) == 0 {
		return nil, fmt.Errorf("it holds no component of any kind that %s plugins can be", transport)
	}
	return in, nil
}

// Digest is the sha256 of what runs for one component, "" if it is compiled
// in, isn't there, or was not asked for yet.
func (r *Registry) Digest(kind, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[kind+"/"+name]; e != nil && e.program != nil {
		return e.program.digest()
	}
	return ""
}

// Crash ends the program behind a component as its own death would, so that
// what follows can be tried: the next call starts it again. It reports whether
// there is such a program.
func (r *Registry) Crash(kind, name string) bool {
	e, err := r.entry(kind, name)
	if err != nil {
		return false
	}
	p, ok := e.program.(interface{ crash() })
	if ok {
		p.crash()
	}
	return ok
}

// Open opens a component of any kind, as the methods of its kind do.
func (r *Registry) Open(ctx context.Context, kind, name string, config json.RawMessage) (any, error) {
	return openAs[any](ctx, r, kind, name, config)
}
