package formats_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-dev/penstock/sdk/format"
	"github.com/penstock-dev/penstock/sdk/format/cases"
)

// TestAnEmptiedTextIsRefusedOrHarmless empties each text of each file that
// ships, one at a time, as a user may leave one empty. The file is refused, or
// its format reads and renders without a panic and comes to an end.
func TestAnEmptiedTextIsRefusedOrHarmless(t *testing.T) {
	for _, name := range names(t) {
		data, err := os.ReadFile(name + ".yaml")
		require.NoError(t, err)
		var doc yaml.Node
		require.NoError(t, yaml.Unmarshal(data, &doc))
		texts := []string{"x\n<tool_call>\n{\"name\": \"bash\"", "<think>a</think>\n[{\"a\": 1}]</tool_call>\n"}
		for _, c := range readCases(t) {
			if c.Format == name && len(texts) < 5 {
				texts = append(texts, c.Text)
			}
		}
		for _, leaf := range leaves(&doc, nil) {
			for _, as := range []string{"", " "} {
				was := leaf.Value
				leaf.Value = as
				changed, err := yaml.Marshal(&doc)
				leaf.Value = was
				require.NoError(t, err)
				where := fmt.Sprintf("%s.yaml:%d, %q as %q", name, leaf.Line, was, as)
				done := make(chan any, 1)
				go func() {
					defer func() { done <- recover() }()
					hollow(t.Context(), changed, texts)
				}()
				select {
				case bad := <-done:
					require.Nil(t, bad, where)
				case <-time.After(time.Minute):
					require.Fail(t, "it never comes to an end", where)
				}
			}
		}
	}
}

// leaves are the texts of a file, without its keys.
func leaves(n *yaml.Node, out []*yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		return append(out, n)
	}
	for i, c := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			out = leaves(c, out)
		}
	}
	return out
}

// hollow reads texts with the format of a file, where it takes the file.
func hollow(ctx context.Context, file []byte, texts []string) {
	s, err := format.ParseSpec("hollow.yaml", file)
	if err != nil {
		return
	}
	f, err := format.New(s)
	if err != nil {
		return
	}
	for _, text := range texts {
		o := format.ParseOptions{Tools: lawTools}
		_, _ = cases.Parse(ctx, f, o, []string{text})
		_, _ = cases.Parse(ctx, f, o, cases.Bytes(text[:min(len(text), 300)]))
	}
}
