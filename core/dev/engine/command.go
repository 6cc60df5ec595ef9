package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/upstream/script"
)

type flags struct {
	kind, script, addr, model, key string
	context, retryAfter            int
	faults, without, markers       []string
	incremental                    bool
}

// Command is `penstock dev engine`.
func Command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "engine --kind KIND --script FILE",
		Short: "A stand-in for a model server, with faults on demand",
		Long: "Serves the wire shapes of vLLM, SGLang, LMDeploy, OpenAI or Anthropic on top of a\n" +
			"scripted model, prints its URL, and goes on until it is told to end. The shapes\n" +
			"are those of the servers' documentation.\n\n" +
			"A fault is WHAT[@EVENT][xTIMES]: a status such as 429x2 (the first two requests),\n" +
			"refuse, hang; or in place of an event, counted from 0: stall@3, cut@3, end@3,\n" +
			"garbage@3, broken@3, error@3; or harmless ones: long@3, comment@3.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	s := c.Flags()
	s.StringVar(&f.kind, "kind", VLLM, "vllm, sglang, lmdeploy, openai or anthropic")
	s.StringVar(&f.script, "script", "", "the scripted model's file")
	s.StringVar(&f.addr, "addr", "127.0.0.1:0", "address to listen on")
	s.StringVar(&f.model, "model", "stand-in", "name of the model")
	s.StringVar(&f.key, "key", "", "key that requests must have")
	s.IntVar(&f.context, "context", 32768, "length of the context in tokens")
	s.IntVar(&f.retryAfter, "retry-after", 0, "seconds of Retry-After beside a status that is a fault")
	s.StringArrayVar(&f.faults, "fault", nil, "a fault; may be repeated")
	s.StringArrayVar(&f.without, "without", nil, "a path, or token_ids, prompt_token_ids or logprobs, that the server lacks")
	s.StringArrayVar(&f.markers, "marker", nil, "a string that is a single token; default those of ChatML and of tool calls")
	s.BoolVar(&f.incremental, "incremental", false, "SGLang's --incremental-streaming-output")
	return c
}

func (f *flags) run(c *cobra.Command) error {
	if f.script == "" {
		return errors.New("--script is needed")
	}
	s, err := script.Load(f.script)
	if err != nil {
		return err
	}
	o := Options{
		Kind: f.kind, Script: s, Model: f.model, Context: f.context, Key: f.key, Markers: f.markers,
		RetryAfter: f.retryAfter, Without: f.without, Incremental: f.incremental,
	}
	for _, text := range f.faults {
		fault, err := ParseFault(text)
		if err != nil {
			return err
		}
		o.Faults = append(o.Faults, fault)
	}
	e, err := New(o)
	if err != nil {
		return err
	}
	defer e.Close()
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if _, err := fmt.Fprintf(c.OutOrStdout(), "http://%s\n", l.Addr()); err != nil {
		return err
	}
	return serve(ctx, l, e)
}

// serve serves until ctx ends. What hangs then is cut.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-done
	return err
}
