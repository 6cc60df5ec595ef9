// Package claude is a stand-in for Claude Code as a pure completion, for trying
// out stages that a subscription answers: it takes that program's command line,
// reads the prompt from standard input, and prints a scripted answer as the
// program's stream-json. It opens no connection and needs no token.
//
// What never enters: tools, turns and the Messages API; package agent has those.
package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/script"
	"github.com/penstock-dev/penstock/sdk/chat"
)

// Options are the stand-in's own; all else on its command line is the
// program's.
type Options struct {
	Script string // file of a scripted model, which answers the prompt
	Lines  string // file of lines that are printed as they are instead
	Dump   string // folder in which a file is made that tells how it was started
}

// structured is the tool by which the program gives output that fits a schema.
const structured = "StructuredOutput"

// Command is `penstock dev claude`.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "claude [--script FILE | --lines FILE] [--dump DIR] [ARGS OF THE PROGRAM]",
		Short: "A stand-in for Claude Code that gives one scripted answer",
		Long: "Reads the prompt from standard input and prints an answer as Claude Code does with\n" +
			"-p --output-format stream-json: the reply that the rules of --script have for the\n" +
			"prompt, or the lines of --lines as they are. --dump writes a file of arguments,\n" +
			"environment, folder and prompt. For a stage with invoker/llm:\n\n" +
			"  with: { mode: subscription, command: [penstock, dev, claude, --script, /PATH/model.yaml], ... }",
		DisableFlagParsing: true,
		SilenceUsage:       true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return c.Help()
			}
			o, rest, err := parse(args)
			if err != nil {
				return err
			}
			return Run(c.Context(), o, rest, c.InOrStdin(), c.OutOrStdout())
		},
	}
}

func parse(args []string) (o Options, rest []string, err error) {
	own := map[string]*string{"--script": &o.Script, "--lines": &o.Lines, "--dump": &o.Dump}
	for len(args) > 0 && own[args[0]] != nil {
		if len(args) < 2 {
			return o, nil, fmt.Errorf("%s needs a value", args[0])
		}
		*own[args[0]] = args[1]
		args = args[2:]
	}
	if (o.Script == "") == (o.Lines == "") {
		return o, nil, errors.New("one of --script and --lines is needed, before the arguments of the program")
	}
	return o, args, nil
}

// Run answers once.
func Run(ctx context.Context, o Options, args []string, in io.Reader, out io.Writer) error {
	prompt, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read the prompt: %w", err)
	}
	if o.Dump != "" {
		if err := dump(o.Dump, args, string(prompt)); err != nil {
			return err
		}
	}
	if o.Lines != "" {
		b, err := os.ReadFile(o.Lines)
		if err == nil {
			_, err = out.Write(b)
		}
		return err
	}
	s, err := script.Load(o.Script)
	if err != nil {
		return err
	}
	reply, err := generate(ctx, s, string(prompt))
	if err != nil {
		return err
	}
	return print(out, args, string(prompt), reply)
}

// Dump is what --dump writes.
type Dump struct {
	Args   []string `json:"args"`
	Env    []string `json:"env"`
	Dir    string   `json:"dir"`
	Prompt string   `json:"prompt"`
}

func dump(folder string, args []string, prompt string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	b, err := chat.Marshal(Dump{args, os.Environ(), dir, prompt})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, "start-*.json")
	if err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func generate(ctx context.Context, s *script.Script, prompt string) (string, error) {
	m := script.New(s, nil, script.Options{})
	defer m.Close()
	stream, err := m.Generate(ctx, &upstream.Request{Prompt: prompt, LastMessage: prompt})
	if err != nil {
		return "", err
	}
	defer stream.Close()
	var b strings.Builder
	for {
		c, err := stream.Next()
		b.Write(c.Text)
		switch {
		case errors.Is(err, io.EOF):
			return b.String(), nil
		case err != nil:
			return "", err
		}
	}
}

type line map[string]any

// print writes the lines of a run that answered. A byte counts as a token, and
// a million of them cost a dollar.
func print(out io.Writer, args []string, prompt, reply string) error {
	tools := []string{}
	for _, t := range strings.Split(value(args, "--tools"), ",") {
		if t != "" {
			tools = append(tools, t)
		}
	}
	cost := float64(len(prompt)+len(reply)) / 1e6
	result := line{
		"type": "result", "subtype": "success", "is_error": false, "result": reply, "num_turns": 1,
		"stop_reason": "end_turn", "terminal_reason": "completed", "api_error_status": nil, "permission_denials": []string{},
		"total_cost_usd": cost,
		"usage":          line{"input_tokens": len(prompt), "output_tokens": len(reply), "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
	}
	if most, err := strconv.ParseFloat(value(args, "--max-budget-usd"), 64); err == nil && cost >= most { // looked at after a turn
		result["subtype"], result["is_error"], result["errors"] = "error_max_budget_usd", true, []string{fmt.Sprintf("Reached maximum budget ($%g)", most)}
		delete(result, "result")
	} else if value(args, "--json-schema") != "" {
		tools = append(tools, structured)
		if json.Valid([]byte(reply)) {
			result["structured_output"], result["num_turns"] = json.RawMessage(reply), 2
		}
	}
	for _, l := range []line{
		{"type": "system", "subtype": "init", "tools": tools, "mcp_servers": []string{}, "model": value(args, "--model")},
		{"type": "assistant", "parent_tool_use_id": nil, "message": line{"role": "assistant", "content": []line{{"type": "text", "text": reply}}}},
		result,
	} {
		b, err := chat.Marshal(l)
		if err != nil {
			return err
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// value is that of an option on a command line, "" if it isn't there.
func value(args []string, name string) string {
	for i, a := range args {
		if rest, ok := strings.CutPrefix(a, name+"="); ok {
			return rest
		}
		if a == name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}
