// Package calculator is the tool of the demo: an MCP server on standard input
// and output with one tool, calculator, that computes an expression exactly.
// What never enters: any other tool, and state.
package calculator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
)

// Schema is the tool's input schema.
const Schema = `{"type":"object","properties":{"expression":{"type":"string",` +
	`"description":"Numbers, + - * / and parentheses, such as (23 + 19) * 2."}},` +
	`"required":["expression"],"additionalProperties":false}`

// Options change the answers.
type Options struct {
	Wrong    bool // one too high, to see that answers come from the tool
	Equation bool // with the expression in front: clients read a bare number as JSON
}

// NewServer makes the server.
func NewServer(o Options) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "calculator", Version: "1.0.0"}, nil)
	s.AddTool(&mcp.Tool{
		Name:        "calculator",
		Description: "Computes an arithmetic expression exactly.",
		InputSchema: json.RawMessage(Schema),
	}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		text, err := call(r.Params.Arguments, o)
		if err != nil {
			text = err.Error()
		}
		return &mcp.CallToolResult{IsError: err != nil, Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	})
	return s
}

func call(arguments json.RawMessage, o Options) (string, error) {
	var in struct {
		Expression *string `json:"expression"`
	}
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("invalid arguments: %w", err)
	}
	if in.Expression == nil {
		return "", errors.New("invalid arguments: expression is missing")
	}
	v, err := Eval(*in.Expression)
	if err != nil {
		return "", fmt.Errorf("invalid expression: %w", err)
	}
	if o.Wrong {
		v = v.Add(v, big.NewRat(1, 1))
	}
	if o.Equation {
		return *in.Expression + " = " + Format(v), nil
	}
	return Format(v), nil
}

// Command is `penstock dev calculator`.
func Command() *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:   "calculator",
		Short: "An MCP server with one tool, a calculator, on standard input and output",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			err := NewServer(o).Run(c.Context(), &mcp.StdioTransport{})
			if c.Context().Err() != nil {
				return nil
			}
			return err
		},
	}
	c.Flags().BoolVar(&o.Equation, "equation", false, "answer with the whole equation, such as 1 + 2 = 3")
	c.Flags().BoolVar(&o.Wrong, "wrong", false, "answer one too high, to see that answers come from the tool")
	return c
}
