package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how close two signals are that count as one: a terminal, or a
// program such as timeout, sends one to the process and one to its group. No
// hand is that fast.
const sameSignal = 100 * time.Millisecond

// interruptible ends the context at the first Ctrl-C or TERM. The second ends the process at once; the agents' shims see that and end
// their agents.
func (a *App) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var first time.Time
		for range signals {
			switch {
			case first.IsZero():
				first = time.Now()
				a.interrupted.Store(true)
				fmt.Fprintln(a.Stderr, "penstock: interrupted; ending what runs and writing what is done; once more kills at once")
				cancel()
			case time.Since(first) > sameSignal:
				os.Exit(130)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel()
	}
}
