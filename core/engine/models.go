package engine

import (
	"context"
	"fmt"

	"github.com/penstock-dev/penstock/core/format"
	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/script"
	"github.com/penstock-dev/penstock/sdk/hook"
)

// openModels opens models, with their formats, upstreams and hooks.
func (e *Engine) openModels(ctx context.Context, names []string) error {
	for _, name := range names {
		m, err := e.openModel(ctx, e.Pipeline.Models[name])
		if err != nil {
			return fmt.Errorf("model %s: %w", name, err)
		}
		e.models[name] = m
	}
	return nil
}

func (e *Engine) openModel(ctx context.Context, m *pipeline.Model) (*gateway.Model, error) {
	f, name, hash, err := format.Resolve(ctx, m.Format, e.Pipeline.Dir, e.Plugins)
	if err != nil {
		return nil, fmt.Errorf("open format: %w", err)
	}
	out := &gateway.Model{
		Entry: m.Name, ServeAs: m.ServeAs, Name: m.Model, Format: f, FormatName: name, FormatHash: hash,
		Aliases: m.Aliases, UnknownModels: m.UnknownModels, Capture: m.Capture, Context: m.Context, Sampling: m.Sampling,
	}
	if out.ServeAs == "" {
		out.ServeAs = m.Name
	}
	if out.Upstream, out.Tokenizer, err = e.openUpstream(m, f.Markers()); err != nil {
		return nil, fmt.Errorf("open upstream: %w", err)
	}
	e.closers = append(e.closers, out.Upstream.Close)
	for _, use := range m.Hooks {
		h, err := e.Plugins.Hook(ctx, use.Name, use.Config)
		if err != nil {
			return nil, fmt.Errorf("open hook/%s: %w", use.Name, err)
		}
		d, err := e.Plugins.Describe("hook", use.Name)
		if err != nil {
			return nil, err
		}
		out.Hooks = append(out.Hooks, gateway.Hook{
			Name: "hook/" + use.Name, Hook: h, Observes: points(d.Observes), Changes: points(d.Changes), FailOpen: use.FailOpen,
		})
	}
	return out, nil
}

func points(names []string) []hook.Point {
	var out []hook.Point
	for _, n := range names {
		out = append(out, hook.Point(n))
	}
	return out
}

// CheckModels finds what is wrong with the models' own files, before anything
// starts.
func CheckModels(p *pipeline.Pipeline) error {
	for _, name := range p.ModelOrder {
		m := p.Models[name]
		if m.Upstream.Kind != "script" {
			continue
		}
		if _, err := script.Load(m.Upstream.File); err != nil {
			return fmt.Errorf("model %s: upstream: %w", name, err)
		}
	}
	return nil
}

func (e *Engine) openUpstream(m *pipeline.Model, markers []string) (upstream.Upstream, token.Tokenizer, error) {
	if m.Upstream.Kind != "script" {
		return nil, nil, fmt.Errorf("upstream kind %q is not built yet; there is: script", m.Upstream.Kind)
	}
	s, err := script.Load(m.Upstream.File)
	if err != nil {
		return nil, nil, err
	}
	t := token.NewBytes(markers)
	return script.New(s, t, script.Options{Log: e.Log}), t, nil
}
