package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/format"
	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/token"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/connect"
	"github.com/penstock-dev/penstock/core/upstream/script"
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
	out := &gateway.Model{
		Entry: m.Name, ServeAs: m.ServeAs, Name: m.Model, FormatName: m.Format,
		Aliases: m.Aliases, UnknownModels: m.UnknownModels, Capture: m.Capture, Context: m.Context, Sampling: m.Sampling,
		Prices: m.Prices,
	}
	if out.ServeAs == "" {
		out.ServeAs = m.Name
	}
	var markers []string
	if m.Format != formatUpstream {
		f, name, hash, err := format.ResolveFor(ctx, m.Format, m.Template, e.Pipeline.Dir, e.Plugins)
		if err != nil {
			return nil, fmt.Errorf("open format: %w", err)
		}
		out.Format, out.FormatName, out.FormatHash, markers = f, name, hash, f.Markers()
	}
	if err := e.openUpstream(ctx, m, out, markers); err != nil {
		return nil, fmt.Errorf("open upstream: %w", err)
	}
	e.closers = append(e.closers, out.Upstream.Close)
	var err error
	out.Hooks, err = e.openHooks(ctx, m.Hooks)
	return out, err
}

// formatUpstream is the format of a model whose upstream renders and parses.
const formatUpstream = "upstream"

// openUpstream opens who generates, and the tokenizer.
func (e *Engine) openUpstream(ctx context.Context, m *pipeline.Model, out *gateway.Model, markers []string) (err error) {
	if m.Upstream.Kind == script.Kind {
		s, err := script.Load(m.Upstream.File)
		if err != nil {
			return err
		}
		out.Tokenizer = token.NewBytes(markers)
		out.Upstream = script.New(s, out.Tokenizer, script.Options{Log: e.Log})
		return nil
	}
	if out.Tokenizer, err = token.Open(m.Tokenizer, markers); err != nil {
		return err
	}
	c := connection(m)
	c.Log = e.Log
	if out.Upstream, err = connect.Open(ctx, c); err != nil {
		return err
	}
	info := upstream.InfoOf(out.Upstream)
	if out.Context == 0 {
		out.Context = info.Context
	}
	e.named(m.Name, info)
	return nil
}

// named puts who generates into the run's file.
func (e *Engine) named(model string, info upstream.Info) {
	if e.File == nil {
		return
	}
	if e.File.Engines == nil {
		e.File.Engines = map[string]string{}
	}
	name := info.Server
	if info.Version != "" {
		name += ", version " + info.Version
	}
	e.File.Engines[model] = name
}

// connection is how a model's upstream is reached.
func connection(m *pipeline.Model) connect.Config {
	return connect.Config{
		Kind: m.Upstream.Kind, URL: m.Upstream.URL, APIKey: m.Upstream.APIKey, Model: m.Model,
		Capture: m.Capture, OwnFormat: m.Format != formatUpstream, Context: m.Context, Prices: m.Prices, With: m.Upstream.With,
	}
}

// CheckModels finds what is wrong with the models' own files and upstreams,
// before anything starts.
func CheckModels(ctx context.Context, p *pipeline.Pipeline) error {
	files := map[string]string{} // of formats, by name
	for _, name := range p.ModelOrder {
		m := p.Models[name]
		if m.FormatFile {
			format, err := format.CheckFile(m.Format)
			switch {
			case err != nil:
				return fmt.Errorf("model %s: format: %w", name, err)
			case slices.Contains(p.Plugins, "format/"+format):
				return fmt.Errorf("model %s: format: %s is named %s, as a format of a plugin is: give one of them another name", name, m.Format, format)
			case files[format] != "" && files[format] != m.Format:
				return fmt.Errorf("model %s: format: %s and %s are both named %s: give one of them another name, as records and rows name the format and nothing else", name, m.Format, files[format], format)
			}
			files[format] = m.Format
		}
		if err := checkModel(ctx, m, p.Dir); err != nil {
			return fmt.Errorf("model %s: %w", name, err)
		}
	}
	return nil
}

func checkModel(ctx context.Context, m *pipeline.Model, dir string) error {
	if err := checkTemplate(ctx, m, dir); err != nil {
		return fmt.Errorf("format: %w", err)
	}
	if m.Upstream.Kind == script.Kind {
		if _, err := script.Load(m.Upstream.File); err != nil {
			return fmt.Errorf("upstream: %w", err)
		}
		return nil
	}
	if _, err := token.Open(m.Tokenizer, nil); err != nil {
		return err
	}
	if unresolved(m) {
		return nil // the file is checked without the environment
	}
	return connect.Check(connection(m))
}

// checkTemplate holds the format against the model's chat template, if there is
// one.
func checkTemplate(ctx context.Context, m *pipeline.Model, dir string) error {
	if m.Template == "" || m.Format == formatUpstream {
		return nil
	}
	return format.CheckTemplate(ctx, m.Format, m.Template, dir)
}

// unresolved says that a model's upstream has references left.
func unresolved(m *pipeline.Model) bool {
	with, err := json.Marshal(m.Upstream.With)
	text := m.Upstream.URL + string(with)
	return err == nil && (strings.Contains(text, "${env:") || strings.Contains(text, "${file:"))
}

// Secrets are the keys of the models' upstreams, which must not be written
// anywhere.
func Secrets(p *pipeline.Pipeline) []string {
	var out []string
	for _, name := range p.ModelOrder {
		if m := p.Models[name]; m.Upstream.Kind != script.Kind {
			out = append(out, connect.Secrets(connection(m))...)
		}
	}
	return out
}
