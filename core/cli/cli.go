// Package cli is the command line: it reads arguments and files, opens what a
// command needs, and shows what came of it. What never enters: anything that
// another program could want to do without a terminal.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/redact"
	"github.com/penstock-dev/penstock/core/settings"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // some rollouts failed
	exitUsage  = 2 // bad configuration or usage
	exitParked = 3 // parked rollouts wait
	exitInfra  = 4 // infrastructure
)

// App is the program: its streams and what is known of the binary.
type App struct {
	Version string
	Stdout  io.Writer
	Stderr  io.Writer

	log         *slog.Logger
	interrupted atomic.Bool
	settings    *settings.Settings
	secrets     atomic.Pointer[redact.Redactor] // that no log may say
}

// exitError carries an exit code with what to say, which may be nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// Main runs one command and returns its exit code.
func (a *App) Main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := exitUsage // what cobra itself returns is bad usage
	var exit *exitError
	var program interface{ ExitCode() int } // of the programs under dev
	switch {
	case errors.As(err, &exit):
		code = exit.code
	case errors.As(err, &program):
		code = program.ExitCode()
	}
	if a.interrupted.Load() && (code == exitUsage || errors.Is(err, context.Canceled)) {
		return exitFailed // the interrupt was said when it came; what it cut short is no news
	}
	if text := err.Error(); text != "" {
		var found pipeline.Diagnostics
		if errors.As(err, &found) {
			fmt.Fprintln(a.Stderr, text)
		} else {
			fmt.Fprintf(a.Stderr, "penstock: %s\n", arguments(command, text))
			if exit == nil && a.settings == nil { // cobra refused the line before the command was reached
				fmt.Fprintf(a.Stderr, "  usage: %s\n  hint: %s --help\n", command.UseLine(), command.CommandPath())
			}
		}
	}
	return code
}

// arguments names those that a command takes, where cobra only counts them.
func arguments(c *cobra.Command, text string) string {
	if !strings.HasPrefix(text, "accepts ") {
		return text
	}
	_, got, _ := strings.Cut(text, "received ")
	_, names, _ := strings.Cut(c.Use, " ")
	return fmt.Sprintf("%s takes %s, got %s", c.CommandPath(), names, got)
}

func (a *App) root() *cobra.Command {
	var level string
	root := &cobra.Command{
		Use:           "penstock",
		Short:         "run any agent program against any model, judge it, and make training rows of it",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			flags := map[string]string{}
			if level != "" {
				flags["log.level"] = level
			}
			if f := c.Flags().Lookup("gateway-addr"); f != nil && f.Changed {
				flags["gateway.addr"] = f.Value.String()
			}
			return a.setUp(flags)
		},
	}
	root.PersistentFlags().StringVar(&level, "log-level", "", "what is logged to stderr: debug, info, warn or error (default info)")
	root.AddCommand(a.runCommand(), a.resumeCommand(), a.parkCommand(), a.validateCommand(), a.gatewayCommand(), a.traceCommand(), a.convertCommand(), a.judgeCommand(), a.formatCommand(), a.pluginCommand(), a.schemaCommand(), a.devCommand(), a.doctorCommand(), a.versionCommand())
	return root
}

// setUp reads the settings and makes the logger: colours on a terminal, plain
// text elsewhere.
func (a *App) setUp(flags map[string]string) error {
	s, err := settings.Load(settings.Options{Flags: flags})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	a.settings = s
	var l slog.Level
	if err := l.UnmarshalText([]byte(s.Log.Level)); err != nil {
		return &exitError{exitUsage, fmt.Errorf("log.level: %w", err)}
	}
	switch {
	case s.Log.Format == "json":
		a.log = slog.New(slog.NewJSONHandler(a.Stderr, &slog.HandlerOptions{Level: l}))
	case s.Log.Format == "auto" && isTerminal(a.Stderr):
		a.log = slog.New(tint.NewTextHandler(a.Stderr, &tint.Options{Level: l, TimeFormat: "15:04:05"}))
	default:
		a.log = slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: l}))
	}
	a.log = slog.New(redact.Handler(a.log.Handler(), a.secrets.Load))
	for _, name := range s.Unknown {
		a.log.Debug("environment variable means nothing to penstock", "name", name)
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
