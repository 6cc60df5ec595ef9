package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/proto"
)

// TestTheNumbersOfTheProcessTransport are those that the contract gives; what
// they bound is in tests of its own.
func TestTheNumbersOfTheProcessTransport(t *testing.T) {
	assert.Equal(t, 64<<20, proto.MaxMessage)
	assert.Equal(t, 8<<20, proto.MaxInline)
	assert.Equal(t, 100*time.Millisecond, firstPause)
	assert.Equal(t, 10*time.Second, longPause)
	assert.Equal(t, 5, maxDeaths)
	assert.Equal(t, time.Minute, deathWindow)
	assert.Equal(t, 30*time.Second, startTimeout)
}

// TestAnExportThatIsNotKnownIsIgnored, so that one module can serve this
// version of the contract and a later one.
func TestAnExportThatIsNotKnownIsIgnored(t *testing.T) {
	r, _ := load(t, Source{Key: "judger/later", Wasm: wat(t, "later")})
	v, err := ask(open(t, r, "later"), "")
	require.NoError(t, err)
	assert.InDelta(t, 1, *v.Reward, 0)
}
