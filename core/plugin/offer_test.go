package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/component"
)

func TestAnOfferIsLoadedWhenItIsAskedFor(t *testing.T) {
	r, _ := newRegistry(t)
	require.NoError(t, r.Offer(Source{Key: "judger/tame", Process: []string{zooBuilt.process}, Origin: "d/plugin.yaml"}))
	require.NoError(t, r.Offer(Source{Key: "judger/broken", Process: []string{"/no/such/program"}, Origin: "d/plugin.yaml"}))
	assert.Equal(t, []string{"broken", "tame"}, r.Names("judger"))
	assert.Empty(t, r.Digests(), "nothing is loaded yet")
	d, err := r.Describe("judger", "tame")
	require.NoError(t, err)
	assert.Equal(t, "judger/tame", d.ID())
	assert.Contains(t, r.Digests(), "judger/tame")
	_, err = r.Judger(t.Context(), "broken", nil)
	require.ErrorContains(t, err, "d/plugin.yaml: load plugin judger/broken: /no/such/program does not exist")
	assert.Equal(t, Process, r.Transport("judger", "broken"))
}

func TestThePipelineComesBeforeAPluginFolderAndThatBeforeABuiltIn(t *testing.T) {
	key := "judger/tame"
	process := Source{Key: key, Process: []string{zooBuilt.process}}
	offer := process
	offer.Origin = "d/plugin.yaml"
	over := func(s Source) Source { s.Override = true; return s }

	r, _ := newRegistry(t, component.Registered()...)
	require.ErrorContains(t, r.Offer(offer), "judger/tame is built in; set override: true")
	require.NoError(t, r.Offer(over(offer)))
	assert.Equal(t, Process, r.Transport("judger", "tame"))

	r, _ = newRegistry(t)
	require.NoError(t, r.Offer(offer))
	again := offer
	again.Origin = "e/plugin.yaml"
	require.ErrorContains(t, r.Offer(over(again)), "is in two plugin folders: d/plugin.yaml and e/plugin.yaml")
	require.ErrorContains(t, r.Add(t.Context(), process), "is in a plugin folder, too (d/plugin.yaml); set override: true")
	require.NoError(t, r.Add(t.Context(), over(process)))
	require.ErrorContains(t, r.Add(t.Context(), process), "is given twice")
	require.ErrorContains(t, r.Offer(Source{Key: "judger/x", Wasm: "x"}), "is offered by no file")
}

func TestInspectNeedsNoKey(t *testing.T) {
	r, _ := newRegistry(t)
	in, err := r.Inspect(t.Context(), Source{Process: []string{zooBuilt.process}}, "zoo")
	require.NoError(t, err)
	assert.True(t, in.Described)
	assert.Greater(t, len(in.Components), 3)
	in, err = r.Inspect(t.Context(), Source{Wasm: wat(t, "exact")}, "exact")
	require.NoError(t, err)
	assert.False(t, in.Described)
	require.Len(t, in.Components, 1)
	assert.Equal(t, "judger/exact", in.Components[0].ID())
	assert.Len(t, in.Digest, 64)
}
