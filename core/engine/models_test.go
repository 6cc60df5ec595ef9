package engine

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/pipeline"
	"github.com/penstock-dev/penstock/core/upstream/connect"
	"github.com/penstock-dev/penstock/sdk/component"
)

// none is a catalog without components.
type none struct{}

func (none) Describe(string, string) (component.Descriptor, error) {
	return component.Descriptor{}, assert.AnError
}
func (none) Names(string) []string { return nil }

// TestUpstreamKeys: the pipeline file's language, which knows no upstream, has
// just the kinds and keys that upstreams have.
func TestUpstreamKeys(t *testing.T) {
	var enable []string
	for _, k := range connect.Kinds() {
		require.Contains(t, pipeline.Features, "upstream "+k)
		enable = append(enable, "upstream "+k)
	}
	schema, err := pipeline.Schema(none{}, enable...)
	require.NoError(t, err)
	upstream := gjson.GetBytes(schema, "properties.models.additionalProperties.properties.upstream")
	keys := func(v gjson.Result) []string {
		var out []string
		for name := range v.Get("properties").Map() {
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
	settings := tags(reflect.TypeFor[connect.Settings]())
	first := slices.Concat(settings, []string{"kind", "url", "api_key", "file"})
	slices.Sort(first)
	assert.Equal(t, first, keys(upstream))
	second := slices.DeleteFunc(slices.Concat(settings, tags(reflect.TypeFor[connect.Fallback]())), func(s string) bool { return s == "fallback" })
	slices.Sort(second)
	assert.Equal(t, second, keys(upstream.Get("properties.fallback.items")))
	for _, at := range []string{"properties.kind.enum", "properties.fallback.items.properties.kind.enum"} {
		var kinds []string
		require.NoError(t, json.Unmarshal([]byte(upstream.Get(at).Raw), &kinds))
		kinds = slices.DeleteFunc(kinds, func(k string) bool { return k == "script" })
		assert.ElementsMatch(t, connect.Kinds(), kinds)
	}
}

// tags are the names of a type's own fields.
func tags(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		if f := t.Field(i); !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out = append(out, name)
		}
	}
	return out
}

// TestCheckModels: what the positions of the file don't tell is found before
// anything starts, and what isn't known yet is not held against it.
func TestCheckModels(t *testing.T) {
	model := func(change func(*pipeline.Model)) *pipeline.Pipeline {
		m := &pipeline.Model{Name: "m", Model: "x", Format: "upstream", Capture: "text", Upstream: pipeline.Upstream{Kind: "vllm", URL: "http://127.0.0.1:1", APIKey: "k-of-one"}}
		change(m)
		return &pipeline.Pipeline{Models: map[string]*pipeline.Model{"m": m}, ModelOrder: []string{"m"}}
	}
	require.NoError(t, CheckModels(t.Context(), model(func(*pipeline.Model) {})))
	require.NoError(t, CheckModels(t.Context(), model(func(m *pipeline.Model) { m.Upstream.URL = "${env:URL}" })))
	require.ErrorContains(t, CheckModels(t.Context(), model(func(m *pipeline.Model) { m.Upstream.URL = "ftp://x" })), "model m: upstream vllm: url")
	require.ErrorContains(t, CheckModels(t.Context(), model(func(m *pipeline.Model) { m.Tokenizer = "qwen.json" })), `tokenizer "qwen.json" is not built yet; there is: bytes`)
	require.ErrorContains(t, CheckModels(t.Context(), model(func(m *pipeline.Model) { m.Upstream.Kind = "anthropic"; m.Format = "hermes" })), "format: upstream")
	assert.Equal(t, []string{"k-of-one", "k-of-two"}, Secrets(model(func(m *pipeline.Model) {
		m.Upstream.With = map[string]any{"fallback": []any{map[string]any{"kind": "openai", "url": "http://x", "api_key": "k-of-two"}}}
	})))
}
