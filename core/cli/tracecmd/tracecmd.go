// Package tracecmd is `penstock trace`: it shows what a run's database holds,
// while the run goes on or after it. It only ever reads. What never enters:
// how formats are found, which the caller passes in.
package tracecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/cli/shown"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Options is what the commands need from the program.
type Options struct {
	// Format opens the format of a call, so that the markers among its ids
	// can be named. Without it, or where it fails, they are shown as numbers.
	Format func(ctx context.Context, name string) (format.Format, error)
}

// Command is `penstock trace`.
func Command(o Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Show what a run recorded: rollouts, sessions, every model call",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(lsCommand(), showCommand(o), diffCommand(o), doctorCommand(o))
	return cmd
}

// view is an open run.
type view struct {
	*trace.Store
	out   io.Writer // for people: what models and agents wrote is escaped
	exact io.Writer // for JSON
	texts *texts
}

// open opens the run folder dir and calls f.
func open(cmd *cobra.Command, dir string, o Options, f func(ctx context.Context, v *view) error) (err error) {
	store, err := trace.Open(filepath.Join(dir, "trace", "penstock.db"), trace.StoreOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return f(ctx, &view{Store: store, out: shown.Writer(cmd.OutOrStdout()), exact: cmd.OutOrStdout(), texts: newTexts(o)})
}

// line writes v as one line of JSON.
func (v *view) line(x any) error {
	b, err := chat.Marshal(x)
	if err != nil {
		return err
	}
	_, err = v.exact.Write(append(b, '\n'))
	return err
}

// call finds a call, with advice where the id is none.
func (v *view) call(ctx context.Context, id string) (*trace.Call, error) {
	c, err := v.Call(ctx, id)
	if errors.Is(err, trace.ErrNotFound) {
		return nil, fmt.Errorf("no call %q; penstock trace ls DIR lists rollouts and sessions, and with one of them its calls", id)
	}
	return c, err
}

// one makes text fit a line of at most n runes.
func one(text string, n int) string {
	text = shown.Line(strings.Join(strings.Fields(text), " "))
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// short is the part of a path-like name after its session.
func short(lineage string) string {
	if _, s, ok := strings.Cut(lineage, "/"); ok {
		return s
	}
	return lineage
}
