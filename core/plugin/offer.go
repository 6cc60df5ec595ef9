package plugin

import (
	"context"
	"fmt"
	"sync"

	"github.com/penstock-dev/penstock/sdk/component"
)

// offer is a plugin of a plugin folder. It is neither built nor started until
// something asks for it, so that a folder may hold many.
type offer struct {
	source Source
	once   sync.Once
	loaded *entry
	err    error
}

// Offer makes a plugin known that is loaded when it is first asked for, by
// Describe, by opening it, or for its schemas. An entry of the pipeline's own,
// given to Add, comes before it, and it before a built-in; both need
// Source.Override, and two offers of one key are an error. Source.Origin
// names the file that it comes from.
func (r *Registry) Offer(s Source) error {
	kind, name, transport, err := s.check()
	if err != nil {
		return err
	}
	if s.Origin == "" {
		return fmt.Errorf("plugin %s is offered by no file", s.Key)
	}
	if err := r.free(s); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[s.Key] = &entry{key: s.Key, transport: transport, offer: &offer{source: s},
		Descriptor: component.Descriptor{Kind: kind, Name: name}}
	return nil
}

// take loads an offer, once. The catalog's methods take no context; what is
// loaded is bounded by the limits of its transport.
func (r *Registry) take(e *entry) (*entry, error) {
	o := e.offer
	o.once.Do(func() {
		o.loaded, o.err = r.make(context.Background(), o.source)
		if o.err != nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.entries[e.key] == e {
			r.entries[e.key] = o.loaded
		}
	})
	if o.err != nil {
		return nil, fmt.Errorf("%s: %w", o.source.Origin, o.err)
	}
	return o.loaded, nil
}
