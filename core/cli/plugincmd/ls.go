package plugincmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/sdk/component"
)

// listing is a line of ls.
type listing struct {
	Plugin    string `json:"plugin"`
	Transport string `json:"transport"`
	Version   string `json:"version,omitempty"`
	Summary   string `json:"summary,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (o Options) lsCommand() *cobra.Command {
	var f struct {
		kind string
		dirs []string
		json bool
	}
	c := &cobra.Command{
		Use:   "ls [PIPELINE]",
		Short: "list plugins: those that are built in, of plugin folders, and of a pipeline",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if f.kind != "" && !slices.Contains(component.Kinds, f.kind) {
				return fmt.Errorf("there is no kind %q; the kinds are %s", f.kind, strings.Join(component.Kinds, ", "))
			}
			return o.with(c.Context(), func(r *plugin.Registry) error {
				if err := Offer(r, f.dirs); err != nil {
					return err
				}
				for _, path := range args {
					if _, err := o.load(c.Context(), r, path); err != nil {
						return err
					}
				}
				all := list(r, f.kind)
				if f.json {
					return printJSON(c.OutOrStdout(), all)
				}
				return printList(c.OutOrStdout(), all)
			})
		},
	}
	c.Flags().StringVar(&f.kind, "kind", "", "this kind alone: "+strings.Join(component.Kinds, ", "))
	c.Flags().StringArrayVar(&f.dirs, "plugin-dir", nil, "a folder of plugins")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return c
}

func list(r *plugin.Registry, only string) []listing {
	all := []listing{}
	for _, kind := range component.Kinds {
		if only != "" && kind != only {
			continue
		}
		for _, name := range r.Names(kind) {
			l := listing{Plugin: kind + "/" + name, Transport: r.Transport(kind, name)}
			d, err := r.Describe(kind, name)
			if err != nil {
				l.Error = err.Error()
			}
			l.Version, l.Summary = d.Version, d.Summary
			all = append(all, l)
		}
	}
	return all
}

func printList(w io.Writer, all []listing) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range all {
		text := l.Summary
		if l.Error != "" {
			text = "error: " + strings.ReplaceAll(l.Error, "\n", " ")
		}
		version := l.Version
		if version == "" {
			version = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.Plugin, l.Transport, version, text)
	}
	return t.Flush()
}

func (o Options) inspectCommand() *cobra.Command {
	var f struct {
		dirs []string
		json bool
	}
	c := &cobra.Command{
		Use:     "inspect KIND/NAME|DIR|FILE",
		Short:   "show what a plugin takes and answers: schemas, hook points, methods, sha256",
		Example: "  penstock plugin inspect judger/answer\n  penstock plugin inspect ./my_judge",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.with(c.Context(), func(r *plugin.Registry) error {
				if err := Offer(r, f.dirs); err != nil {
					return err
				}
				all, err := inspect(c.Context(), r, args[0])
				if err != nil {
					return err
				}
				if f.json {
					return printJSON(c.OutOrStdout(), all)
				}
				for _, in := range all {
					if err := printInspection(c.OutOrStdout(), in); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().StringArrayVar(&f.dirs, "plugin-dir", nil, "a folder of plugins")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// inspect finds a component by its id, or what a path holds.
func inspect(ctx context.Context, r *plugin.Registry, what string) ([]*plugin.Inspection, error) {
	if kind, name, ok := strings.Cut(what, "/"); ok && slices.Contains(component.Kinds, kind) && r.Transport(kind, name) != "" {
		d, err := r.Describe(kind, name)
		if err != nil {
			return nil, err
		}
		return []*plugin.Inspection{{Transport: r.Transport(kind, name), Digest: r.Digest(kind, name), Described: true, Components: []component.Descriptor{d}}}, nil
	}
	sources, err := at(what)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no plugin %s, nor a file of that name; penstock plugin ls shows those that are built in", what)
	}
	if err != nil {
		return nil, err
	}
	var all []*plugin.Inspection
	for _, s := range sources {
		in, err := r.Inspect(ctx, s, nameOf(what))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		if s.Key != "" && !in.Described {
			in.Components = under(in.Components, s.Key)
		}
		all = append(all, in)
	}
	return all, nil
}

// under is the one component that an undescribed plugin is under a key.
func under(all []component.Descriptor, key string) []component.Descriptor {
	kind, name, _ := strings.Cut(key, "/")
	var out []component.Descriptor
	for _, d := range all {
		if d.Kind == kind {
			d.Name = name
			out = append(out, d)
		}
	}
	return out
}

// nameOf is what a plugin that neither describes itself nor has a key is shown
// as.
func nameOf(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

func printInspection(w io.Writer, in *plugin.Inspection) error {
	var b strings.Builder
	for _, d := range in.Components {
		fmt.Fprintf(&b, "%s\n", d.ID())
		field := func(name, value string) {
			if value != "" {
				fmt.Fprintf(&b, "  %-10s %s\n", name, value)
			}
		}
		field("summary", d.Summary)
		field("version", d.Version)
		field("transport", in.Transport)
		field("sha256", in.Digest)
		field("protocol", fmt.Sprint(d.Protocol))
		field("methods", strings.Join(d.Methods, " "))
		field("changes", strings.Join(d.Changes, " "))
		field("observes", strings.Join(d.Observes, " "))
		field("wants", strings.Join(d.Wants, " "))
		field("config", string(d.Config))
		field("input", string(d.Input))
		field("output", string(d.Output))
		if !in.Described {
			field("note", "it does not describe itself; this is what its exports or its transport allow")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
