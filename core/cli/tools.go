package cli

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/cli/doctorcmd"
	"github.com/penstock-dev/penstock/core/cli/formatcmd"
	"github.com/penstock-dev/penstock/core/cli/plugincmd"
	"github.com/penstock-dev/penstock/core/cli/tracecmd"
	"github.com/penstock-dev/penstock/core/dev/agent"
	"github.com/penstock-dev/penstock/core/dev/calculator"
	"github.com/penstock-dev/penstock/core/dev/claude"
	"github.com/penstock-dev/penstock/core/dev/engine"
	coreformat "github.com/penstock-dev/penstock/core/format"
	"github.com/penstock-dev/penstock/core/plugin"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/format"
)

func (a *App) devCommand() *cobra.Command {
	c := &cobra.Command{Use: "dev", Short: "stand-ins for trying things out: a calculator, an agent, Claude Code, model servers"}
	c.AddCommand(calculator.Command(), agent.Command(), engine.Command(), claude.Command())
	return c
}

// doctorCommand looks at the machine and at the agent programs on it.
func (a *App) doctorCommand() *cobra.Command {
	var invokers []component.Descriptor
	for _, c := range component.Registered() {
		if c.Kind == component.Invoker {
			invokers = append(invokers, c.Descriptor)
		}
	}
	return doctorcmd.Command(doctorcmd.Options{Invokers: invokers, Self: os.Executable})
}

// traceCommand shows what a run recorded.
func (a *App) traceCommand() *cobra.Command {
	return tracecmd.Command(tracecmd.Options{Format: a.resolveFormat})
}

// resolveFormat opens a format of this binary, or of a file.
func (a *App) resolveFormat(ctx context.Context, spec string) (format.Format, error) {
	plugins, err := a.registry()
	if err != nil {
		return nil, err
	}
	f, _, _, err := coreformat.Resolve(ctx, spec, ".", plugins)
	return f, err
}

// resolveTemplate opens a format that renders with a model's chat template.
func (a *App) resolveTemplate(ctx context.Context, spec, template string) (format.Format, error) {
	plugins, err := a.registry()
	if err != nil {
		return nil, err
	}
	f, _, _, err := coreformat.ResolveFor(ctx, spec, template, ".", plugins)
	return f, err
}

// formatsOf opens the formats of a plugin. Its registry has nothing else.
func (a *App) formatsOf(path string) (formatcmd.Resolve, func() error) {
	plugins := plugin.New(plugin.Options{CacheDir: a.settings.Cache, Log: a.log})
	resolve := func(ctx context.Context, name string) (format.Format, error) {
		s := plugin.Source{Key: component.Format + "/" + name}
		if strings.HasSuffix(path, ".wasm") {
			s.Wasm = path
		} else {
			s.Process = []string{path}
		}
		if err := plugins.Add(ctx, s); err != nil {
			return nil, err
		}
		return plugins.Format(ctx, name, nil)
	}
	return resolve, func() error { return plugins.Close(context.Background()) }
}

// pluginCommand writes, tests, lists and locks plugins.
func (a *App) pluginCommand() *cobra.Command {
	return plugincmd.Command(plugincmd.Options{Registry: a.registry, Enable: features})
}

// formatCommand works on the formats of this binary and on format files.
func (a *App) formatCommand() *cobra.Command {
	list := func() []component.Descriptor {
		var out []component.Descriptor
		for _, c := range component.Registered() {
			if c.Kind == component.Format {
				out = append(out, c.Descriptor)
			}
		}
		return out
	}
	return formatcmd.Command(a.resolveTemplate, a.formatsOf, list)
}
