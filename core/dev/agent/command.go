package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// ExitError is the error of a run that ended without an answer.
type ExitError struct {
	Code int // 1, or 128 and the number of the signal
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode is the code for the process to exit with.
func (e *ExitError) ExitCode() int { return e.Code }

type flags struct {
	promptFile, model, system, mcpConfig, output string
	bash                                         bool
	maxTurns, maxTokens, retries                 int
}

// Command is `penstock dev agent`.
func Command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "agent [PROMPT]",
		Short: "A small reference agent: Anthropic Messages, MCP tools, a shell if asked",
		Long: "Runs one prompt against the Messages API at ANTHROPIC_BASE_URL with the key in\n" +
			"ANTHROPIC_API_KEY. The prompt is the argument, --prompt-file or standard input.\n" +
			"Exits with 0 when the model has answered and with 1 when it has not.",
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	s := c.Flags()
	s.StringVar(&f.promptFile, "prompt-file", "", "file with the prompt")
	s.StringVar(&f.model, "model", "", "name of the model (default ANTHROPIC_MODEL)")
	s.StringVar(&f.system, "system", "", "system prompt")
	s.StringVar(&f.mcpConfig, "mcp-config", "", "JSON file with mcpServers, in the form of Claude Code")
	s.BoolVar(&f.bash, "bash", false, "offer the model a shell")
	s.IntVar(&f.maxTurns, "max-turns", 0, "most replies of the model, 0 for no limit")
	s.IntVar(&f.maxTokens, "max-tokens", 8192, "most tokens of one reply")
	s.IntVar(&f.retries, "retries", 8, "tries of a call after the first")
	s.StringVar(&f.output, "output-format", "text", "text, or stream-json")
	return c
}

func (f *flags) run(c *cobra.Command, args []string) error {
	if f.output != "text" && f.output != "stream-json" {
		return fmt.Errorf("--output-format %q: want text or stream-json", f.output)
	}
	if f.model == "" {
		f.model = os.Getenv("ANTHROPIC_MODEL")
	}
	base := os.Getenv("ANTHROPIC_BASE_URL")
	if base == "" || f.model == "" {
		return errors.New("ANTHROPIC_BASE_URL and a model (--model or ANTHROPIC_MODEL) are needed")
	}
	prompt, err := f.prompt(c.InOrStdin(), args)
	if err != nil {
		return err
	}
	servers := map[string]serverConfig{}
	if f.mcpConfig != "" {
		if servers, err = readServers(f.mcpConfig); err != nil {
			return err
		}
	}
	ctx, stop := untilSignal(c.Context())
	defer stop()

	var out printer = textPrinter{c.OutOrStdout()}
	if f.output == "stream-json" {
		out = linePrinter{c.OutOrStdout(), rand.Text()}
	}
	tools := openTools(ctx, servers, f.bash)
	defer tools.close()
	cwd, _ := os.Getwd()
	out.init(f.model, cwd, tools.names(), tools.servers)
	stderr := c.ErrOrStderr()
	a := &agent{
		client: &client{
			base: strings.TrimRight(base, "/"), key: os.Getenv("ANTHROPIC_API_KEY"), http: &http.Client{},
			retries: f.retries, backoff: time.Second / 2,
			warn: func(text string) { _, _ = fmt.Fprintln(stderr, text) },
		},
		tools: tools, print: out, model: f.model, system: f.system, maxTokens: f.maxTokens, maxTurns: f.maxTurns,
	}
	o := a.run(ctx, prompt)
	var sig *signalError
	if errors.As(o.err, &sig) {
		return &ExitError{128 + int(sig.signal), o.err}
	}
	out.result(o)
	if o.err != nil {
		return &ExitError{1, o.err}
	}
	return nil
}

func (f *flags) prompt(stdin io.Reader, args []string) (string, error) {
	var data []byte
	var err error
	switch {
	case len(args) == 1 && f.promptFile != "":
		return "", errors.New("a prompt as argument and --prompt-file exclude each other")
	case len(args) == 1:
		data = []byte(args[0])
	case f.promptFile != "":
		data, err = os.ReadFile(f.promptFile)
	default:
		data, err = io.ReadAll(stdin)
	}
	if err != nil {
		return "", fmt.Errorf("read prompt: %w", err)
	}
	if strings.TrimSpace(string(data)) == "" {
		return "", errors.New("the prompt is empty")
	}
	return string(data), nil
}

type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return "ended by signal: " + e.signal.String() }

// untilSignal is a context that ends with the first signal that asks the
// program to end, which is then its cause.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			cancel(&signalError{s.(syscall.Signal)})
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
