package calculator

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEval(t *testing.T) {
	for expression, want := range map[string]string{
		"23 + 19":                       "42",
		"2+3*4":                         "14",
		"(2+3)*4":                       "20",
		"-3 - -4":                       "1",
		"--3":                           "3",
		"7 / 2":                         "3.5",
		"1/3":                           "0.333333333333",
		"2/3*3":                         "2",
		"0.1 + 0.2":                     "0.3",
		"1.50*2":                        "3",
		".5":                            "0.5",
		"10 - 4 - 3":                    "3",
		"100/10/5":                      "2",
		"99999999999999999999 * 10 + 1": "999999999999999999991",
		"6 × 7 ÷ 2 − 1":                 "20",
		"\t( 1 )\n":                     "1",
		"1/8":                           "0.125",
		"0*-1":                          "0",
	} {
		v, err := Eval(expression)
		require.NoError(t, err, expression)
		assert.Equal(t, want, Format(v), expression)
	}
}

func TestEvalRefuses(t *testing.T) {
	for expression, want := range map[string]string{
		"":                        "empty",
		"  ":                      "empty",
		"1 +":                     "ends where a number is wanted",
		"(1":                      "not closed",
		"1)":                      `unexpected ')'`,
		"1 2":                     `unexpected '2'`,
		"2 ** 3":                  `unexpected '*'`,
		"a+1":                     `unexpected 'a'`,
		"1.2.3":                   "not a number",
		".":                       "not a number",
		"1e9":                     `unexpected 'e'`,
		"1/0":                     "division by zero",
		"1/(2-2)":                 "division by zero",
		strings.Repeat("(", 200):  "nested",
		strings.Repeat("1", 1001): "longer",
	} {
		_, err := Eval(expression)
		assert.ErrorContains(t, err, want, expression)
	}
}

func FuzzEval(f *testing.F) {
	f.Add("(1.5+2)*-3/7")
	f.Fuzz(func(t *testing.T, expression string) {
		if v, err := Eval(expression); err == nil {
			assert.NotEmpty(t, Format(v))
		}
	})
}

func connect(t *testing.T, o Options) *mcp.ClientSession {
	client, server := mcp.NewInMemoryTransports()
	go func() { _ = NewServer(o).Run(t.Context(), server) }()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), client, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func ask(t *testing.T, s *mcp.ClientSession, arguments string) (string, bool) {
	r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "calculator", Arguments: json.RawMessage(arguments)})
	require.NoError(t, err)
	require.Len(t, r.Content, 1)
	return r.Content[0].(*mcp.TextContent).Text, r.IsError
}

func TestServer(t *testing.T) {
	s := connect(t, Options{})
	tools, err := s.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, tools.Tools, 1)
	assert.Equal(t, "calculator", tools.Tools[0].Name)

	for arguments, want := range map[string]string{
		`{"expression":"6 * 7"}`:               "42",
		`{"expression":"1/0"}`:                 "error: invalid expression: division by zero",
		`{"expression":"6 * 7","precision":2}`: `error: invalid arguments: json: unknown field "precision"`,
		`{}`:                                   "error: invalid arguments: expression is missing",
		`{"expression":6}`:                     "error: invalid arguments: json: cannot unmarshal number into Go struct field .expression of type string",
	} {
		text, isError := ask(t, s, arguments)
		if isError {
			text = "error: " + text
		}
		assert.Equal(t, want, text, arguments)
	}
}

func TestWrong(t *testing.T) {
	text, isError := ask(t, connect(t, Options{Wrong: true}), `{"expression":"6 * 7"}`)
	assert.Equal(t, "43", text)
	assert.False(t, isError)
}

func TestEquation(t *testing.T) {
	text, isError := ask(t, connect(t, Options{Equation: true}), `{"expression":"6 * 7"}`)
	assert.Equal(t, "6 * 7 = 42", text)
	assert.False(t, isError)
}
