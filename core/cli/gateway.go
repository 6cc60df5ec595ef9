package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/engine"
	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/run"
	"github.com/penstock-dev/penstock/core/shell"
	"github.com/penstock-dev/penstock/core/trace"
)

func (a *App) gatewayCommand() *cobra.Command {
	var f struct {
		set   []string
		out   string
		model string
	}
	c := &cobra.Command{
		Use:   "gateway PIPELINE",
		Short: "serve a pipeline's models, for agents that you start yourself",
		Long: "Serve the models of a pipeline until Ctrl-C, and record every call in a run folder. One session is opened and\n" +
			"printed as environment variables; the operator's token in gateway.json opens more.",
		Example: "  penstock gateway examples/calculator/pipeline.yaml --gateway-addr 127.0.0.1:8787",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.gateway(c.Context(), args[0], f.set, f.out, f.model)
		},
	}
	c.Flags().StringArrayVar(&f.set, "set", nil, "set a value of the pipeline, as in penstock run")
	c.Flags().StringVar(&f.out, "out", "", "the run folder; it must be new or empty")
	c.Flags().StringVar(&f.model, "model", "", "the model of the session that is opened (default: the first)")
	c.Flags().String("gateway-addr", "", "where the gateway listens, on loopback (default 127.0.0.1:0, a port that the system picks)")
	return c
}

func (a *App) gateway(ctx context.Context, path string, set []string, out, model string) (err error) {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	plugins, err := a.registry()
	if err != nil {
		return err
	}
	defer closeAll(&err, func() error { return plugins.Close(context.WithoutCancel(ctx)) })
	parsed, err := pipeline.Parse(path, pipeline.ParseOptions{Set: set, Env: os.LookupEnv, Enable: features, NoStages: true})
	if parsed == nil {
		return &exitError{exitUsage, err}
	}
	p, err := a.check(ctx, parsed, plugins, sources{})
	if err != nil {
		return err
	}
	if len(p.ModelOrder) == 0 {
		return &exitError{exitUsage, errors.New("the pipeline has no models")}
	}
	if model == "" {
		model = p.ModelOrder[0]
	}
	if p.Models[model] == nil {
		return &exitError{exitUsage, fmt.Errorf("the pipeline has no model %s; it has %s", model, strings.Join(p.ModelOrder, ", "))}
	}
	folder, err := run.Create(out, a.settings.Runs)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	defer closeAll(&err, folder.Close)
	store, err := trace.Open(folder.Database(), trace.StoreOptions{Durability: a.settings.Trace.Durability})
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, store.Close)
	file := a.describe(p, folder, plugins)
	seen, flush, err := a.telemetry(ctx, p, folder)
	if err != nil {
		return err
	}
	defer closeAll(&err, flush)
	e, err := engine.NewGateway(ctx, engine.Options{
		Pipeline: p, Folder: folder, File: file, Store: store, Plugins: plugins, Log: a.log, Redact: a.redactor(p), Telemetry: seen, Gateway: a.gatewayOptions(),
	})
	if err != nil {
		return &exitError{exitInfra, err}
	}
	defer closeAll(&err, e.Close)
	if err := folder.WriteFile(file); err != nil { // who generates is known now
		return &exitError{exitInfra, err}
	}
	s, err := e.Session(ctx, model)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	name := p.Models[model].ServeAs
	if name == "" {
		name = model
	}
	fmt.Fprintf(a.Stdout, "# session %s of model %s, recorded in %s; Ctrl-C ends it\n", s.ID(), name, a.relative(folder.Dir))
	fmt.Fprintf(a.Stdout, "export ANTHROPIC_BASE_URL=%s ANTHROPIC_API_KEY=%s ANTHROPIC_MODEL=%s\n", s.Root(), s.Token(), shell.Quote(name))
	fmt.Fprintf(a.Stdout, "export OPENAI_BASE_URL=%s/v1 OPENAI_API_KEY=%s OPENAI_MODEL=%s\n", s.Root(), s.Token(), shell.Quote(name))
	fmt.Fprintf(a.Stdout, "export GOOGLE_GEMINI_BASE_URL=%s GEMINI_API_KEY=%s GEMINI_MODEL=%s\n", s.Root(), s.Token(), shell.Quote(name))
	<-ctx.Done()
	file.Status = trace.Completed
	return folder.WriteFile(file)
}

// gatewayOptions are the settings of the gateway.
func (a *App) gatewayOptions() gateway.Options {
	s := a.settings
	return gateway.Options{
		Addr: s.Gateway.Addr, KeepAlive: s.Gateway.KeepAlive, SessionTTL: s.Gateway.SessionTTL, BodyLimit: s.Limits.Body,
		Limits: gateway.Limits{
			Calls: s.Limits.Calls, Messages: s.Limits.Messages, Tools: s.Limits.Tools,
			Sessions: s.Limits.Sessions, SessionBytes: s.Limits.SessionBytes, TraceBytes: s.Limits.TraceBytes,
		},
	}
}
