package exchange

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/sdk/chat"
)

// TestExactSampling: a body says what was decided, keeps what says so already,
// and, where that is wanted, loses what was decided against.
func TestExactSampling(t *testing.T) {
	body := `{"temperature":0.50,"top_p":0.9,"top_k":5,"max_tokens":100,"seed":3,"stop":["x"],"other":1}`
	half := 0.5
	want := chat.Sampling{Temperature: &half}
	names := Names{MaxTokens: "max_tokens", Seed: "seed", Stop: "stop", TopK: true}
	for exact, out := range map[bool]string{false: body, true: `{"temperature":0.50,"other":1}`} {
		names.Exact = exact
		got, err := Splice([]byte(body), Sampling(gjson.Parse(body), want, names))
		require.NoError(t, err)
		assert.Equal(t, out, string(got))
	}
}
