package tracecmd

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/sdk/chat"
)

func diffCommand(o Options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff DIR CALL CALL",
		Short: "Show where two calls part: messages, tools, sampling, prompt, what was sampled",
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return open(cmd, args[0], o, func(ctx context.Context, v *view) error {
				a, err := v.call(ctx, args[1])
				if err != nil {
					return err
				}
				b, err := v.call(ctx, args[2])
				if err != nil {
					return err
				}
				d := v.diff(ctx, a, b)
				if asJSON {
					return v.line(d)
				}
				_, err = fmt.Fprint(v.out, d.text())
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the difference as JSON")
	return cmd
}

// comparison is what differs between two calls; nil or empty is equal.
type comparison struct {
	A        string      `json:"a"`
	B        string      `json:"b"`
	Messages *difference `json:"messages,omitempty"` // At counts messages
	Tools    *difference `json:"tools,omitempty"`
	Sampling *difference `json:"sampling,omitempty"` // as applied
	Prompt   *difference `json:"prompt,omitempty"`
	Sampled  *difference `json:"sampled,omitempty"`
}

func (v *view) diff(ctx context.Context, a, b *trace.Call) *comparison {
	d := &comparison{A: a.ID, B: b.ID,
		Sampling: differ(compact(a.Effective), compact(b.Effective)), Sampled: differ(a.Raw, b.Raw)}
	if a.Chat != nil && b.Chat != nil {
		d.Messages = differMessages(a.Chat.Messages, b.Chat.Messages)
		d.Tools = differ(compact(a.Chat.Tools), compact(b.Chat.Tools))
	}
	d.Prompt = v.differPrompts(ctx, a, b)
	return d
}

// differPrompts compares prompts as text where both can be told, else by id.
func (v *view) differPrompts(ctx context.Context, a, b *trace.Call) *difference {
	at, aok := v.texts.prompt(ctx, a)
	bt, bok := v.texts.prompt(ctx, b)
	if aok && bok {
		return differ(at, bt)
	}
	return differIDs(a.PromptIDs, b.PromptIDs)
}

func differMessages(a, b []chat.Message) *difference {
	n := 0
	for n < len(a) && n < len(b) && reflect.DeepEqual(a[n], b[n]) {
		n++
	}
	if n == len(a) && n == len(b) {
		return nil
	}
	show := func(m []chat.Message) string {
		if n == len(m) {
			return ""
		}
		return compact(m[n])
	}
	d := &difference{Unit: "messages"}
	if inner := differ(show(a), show(b)); inner != nil {
		d.A, d.B, d.Same = inner.A, inner.B, inner.Same
	}
	d.At = n
	return d
}

func (d *comparison) text() string {
	var b strings.Builder
	for _, part := range []struct {
		name string
		d    *difference
	}{{"messages", d.Messages}, {"tools", d.Tools}, {"sampling", d.Sampling}, {"prompt", d.Prompt}, {"sampled", d.Sampled}} {
		if part.d == nil {
			fmt.Fprintf(&b, "%s: equal\n", part.name)
			continue
		}
		fmt.Fprintf(&b, "%s:\n", part.name)
		part.d.print(&b, "  ", d.A, d.B)
	}
	return b.String()
}
