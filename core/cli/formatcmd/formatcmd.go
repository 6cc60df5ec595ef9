// Package formatcmd is `penstock format`: it lists formats, parses and renders
// with one, and runs parser cases. What never enters: how a format is found,
// which the caller passes in.
package formatcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/format"
)

// Resolve opens the format that spec names.
type Resolve func(ctx context.Context, spec string) (format.Format, error)

// failure is an error of the cases that were run, not of how they were asked
// for.
type failure string

func (f failure) Error() string { return string(f) }

// ExitCode is that of a test that failed.
func (failure) ExitCode() int { return 1 }

// ResolveTemplate opens the format that spec names, auto among them, with a
// model's chat template to render with; "" is none.
type ResolveTemplate func(ctx context.Context, spec, template string) (format.Format, error)

// FromPlugin opens formats that a plugin brings, a program or a WASM module, in
// place of the built-in ones, until close.
type FromPlugin func(path string) (resolve Resolve, close func() error)

// ErrFailed is returned when cases failed; what failed is printed already.
const ErrFailed = failure("cases failed")

// ErrNothing is wrapped when no case was run, which shows nothing of a format.
const ErrNothing = failure("no case was run")

// Command is `penstock format`. list gives the descriptors of all formats.
func Command(open ResolveTemplate, plugin FromPlugin, list func() []component.Descriptor) *cobra.Command {
	resolve := func(ctx context.Context, spec string) (format.Format, error) { return open(ctx, spec, "") }
	cmd := &cobra.Command{
		Use:   "format",
		Short: "List formats, parse and render with one, run parser cases, fuzz",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(lsCommand(list), parseCommand(resolve), renderCommand(open), testCommand(resolve, plugin, list), fuzzCommand(resolve))
	return cmd
}

func lsCommand(list func() []component.Descriptor) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the formats",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return printJSON(cmd.OutOrStdout(), list())
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tVERSION\tSUMMARY")
			for _, d := range list() {
				version := d.Version
				if version == "" {
					version = "-"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", d.Name, version, d.Summary)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the descriptors as JSON")
	return cmd
}

func parseCommand(resolve Resolve) *cobra.Command {
	var name, tools string
	var open, events bool
	var chunk int
	cmd := &cobra.Command{
		Use:   "parse -f FORMAT [FILE|-]",
		Short: "Parse text that a model wrote",
		Long: "Parse text that a model wrote, from a file or standard input, and print what is in it as JSON.\n" +
			"Without --tools every tool's markup counts as a call and every value as text.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := resolve(cmd.Context(), name)
			if err != nil {
				return err
			}
			text, err := readInput(cmd, args)
			if err != nil {
				return err
			}
			o := &format.ParseOptions{State: format.State{ReasoningOpen: open}}
			if o.Tools, err = readTools(tools); err != nil {
				return err
			}
			got, err := parse(cmd.Context(), f, o, text, chunk)
			if err != nil {
				return err
			}
			if events {
				return printLines(cmd.OutOrStdout(), format.Join(got))
			}
			return printJSON(cmd.OutOrStdout(), format.Collect(got))
		},
	}
	cmd.Flags().StringVarP(&name, "format", "f", "", "format: a name, or a YAML file")
	cmd.Flags().StringVar(&tools, "tools", "", "JSON file with the tools that were offered: a list of {name, parameters}, or of OpenAI's definitions")
	cmd.Flags().BoolVar(&open, "reasoning-open", false, "the prompt had opened the reasoning")
	cmd.Flags().BoolVar(&events, "events", false, "print the parser's events, one a line")
	cmd.Flags().IntVar(&chunk, "chunk", 0, "feed the text in chunks of so many bytes; 0 is whole")
	must(cmd.MarkFlagRequired("format"))
	return cmd
}

func parse(ctx context.Context, f format.Format, o *format.ParseOptions, text []byte, chunk int) ([]format.Event, error) {
	p, err := f.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open parser: %w", err)
	}
	defer p.Close()
	var events []format.Event
	for chunk > 0 && len(text) > chunk {
		events = p.Feed(events, text[:chunk])
		text = text[chunk:]
	}
	events = p.Feed(events, text)
	events = p.Finish(events)
	return events, p.Err()
}

// readTools reads tools from a file. Without one, a single tool without a
// schema makes the parser look for calls.
func readTools(file string) ([]chat.Tool, error) {
	if file == "" {
		return []chat.Tool{{}}, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read tools: %w", err)
	}
	var raw []givenTool
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("read tools: %s: %w", file, err)
	}
	var tools []chat.Tool
	for i := range raw {
		tools = append(tools, raw[i].tool())
	}
	return tools, nil
}

func renderCommand(resolve ResolveTemplate) *cobra.Command {
	var name, template string
	var segments bool
	cmd := &cobra.Command{
		Use:   "render -f FORMAT [FILE|-]",
		Short: "Render a conversation, given as chat JSON, to a prompt",
		Long:  "Render a conversation, from a file or standard input, to the prompt that a model gets. It is JSON:\n\n" + shape,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := resolve(cmd.Context(), name, template)
			if err != nil {
				return err
			}
			data, err := readInput(cmd, args)
			if err != nil {
				return err
			}
			c, err := readConversation(data)
			if err != nil {
				return err
			}
			r, err := f.Render(cmd.Context(), &format.RenderRequest{Chat: c})
			if err != nil {
				return err
			}
			if segments {
				return printJSON(cmd.OutOrStdout(), r)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), format.Text(r.Segments))
			return err
		},
	}
	cmd.Flags().StringVarP(&name, "format", "f", "", "format: a name, or a YAML file")
	cmd.Flags().StringVar(&template, "template", "", "render with a model's chat template: a .jinja file, a tokenizer_config.json, or their folder; --format may then be auto")
	cmd.Flags().BoolVar(&segments, "segments", false, "print segments, stops and the parser's state as JSON")
	must(cmd.MarkFlagRequired("format"))
	return cmd
}

// readInput reads the file that args name, or standard input.
func readInput(cmd *cobra.Command, args []string) ([]byte, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	return os.ReadFile(args[0])
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func printLines(w io.Writer, events []format.Event) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, event := range events {
		if err := e.Encode(event); err != nil {
			return err
		}
	}
	return nil
}

// must is for flags that are declared a line above.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
