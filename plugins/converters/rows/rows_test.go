package rows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/converter"
)

// memory is an output that keeps what is written.
type memory struct {
	files   map[string]*bytes.Buffer
	refused []string
}

type file struct{ *bytes.Buffer }

func (file) Close() error { return nil }

func (m *memory) Create(ending string) (io.WriteCloser, error) {
	if m.files == nil {
		m.files = map[string]*bytes.Buffer{}
	}
	m.files[ending] = &bytes.Buffer{}
	return file{m.files[ending]}, nil
}

func (m *memory) Refuse(row *converter.Row, why []string) {
	m.refused = append(m.refused, row.Row+": "+strings.Join(why, ", "))
}

func sequence(rows []*converter.Row, end error) iter.Seq2[*converter.Row, error] {
	return func(yield func(*converter.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
		if end != nil {
			yield(nil, end)
		}
	}
}

func TestConvertWritesARowALineAndRefusesFatalOnes(t *testing.T) {
	var c component.Component
	for _, r := range component.Registered() {
		if r.ID() == "converter/rows" {
			c = r
		}
	}
	instance, err := c.Open(context.Background(), nil)
	require.NoError(t, err)
	p, n := -0.25, 1
	out := &memory{}
	err = instance.(converter.Converter).Convert(context.Background(), sequence([]*converter.Row{
		{Row: "a", InputIDs: []int32{1, 2}, LossMask: []int8{0, 1}, Logprobs: []*float64{nil, &p}, PromptLen: &n, Model: "<m&>"},
		{Row: "b", Integrity: converter.Integrity{Fatal: []string{"broken"}}},
		{Row: "c"},
	}, nil), out)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(out.files["jsonl"].String(), "\n"), "\n")
	require.Len(t, lines, 2)
	assert.Contains(t, lines[0], `"input_ids":[1,2],"loss_mask":[0,1],"logprobs":[null,-0.25],"prompt_len":1`)
	assert.Contains(t, lines[0], `"model":"<m&>"`)
	assert.Contains(t, lines[1], `"reward":null`)
	for _, l := range lines {
		assert.True(t, json.Valid([]byte(l)))
	}
	assert.Equal(t, `{"row":"b","why":["broken"]}`+"\n", out.files["refused.jsonl"].String())
	assert.Equal(t, []string{"b: broken"}, out.refused)
}

func TestConvertWithoutRowsMakesAnEmptyFile(t *testing.T) {
	out := &memory{}
	require.NoError(t, rows{}.Convert(context.Background(), sequence(nil, nil), out))
	require.Len(t, out.files, 1)
	assert.Empty(t, out.files["jsonl"].String())
}

func TestConvertReturnsTheErrorOfItsRows(t *testing.T) {
	broken := errors.New("store gone")
	assert.ErrorIs(t, rows{}.Convert(context.Background(), sequence(nil, broken), &memory{}), broken)
}
