package pool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/upstream"
)

// TestNeedsOfADialect: what only one dialect can say is asked of no stand-in
// that doesn't speak it.
func TestNeedsOfADialect(t *testing.T) {
	speaks := upstream.Info{Parses: true, Dialect: "a"}
	for needs, want := range map[string]string{"": "second", "response_format": "third"} {
		first := &fake{name: "first", info: speaks, errs: []error{refused(529, 0)}}
		second, third := &fake{name: "second", info: upstream.Info{Parses: true}}, &fake{name: "third", info: speaks}
		f, err := NewFailover(nil, first, second, third)
		require.NoError(t, err)
		raw := &upstream.RawRequest{Dialect: "a"}
		if needs != "" {
			raw.Needs = []string{needs}
		}
		s, err := f.Generate(t.Context(), &upstream.Request{Raw: raw})
		require.NoError(t, err)
		c, err := s.Next()
		require.NoError(t, err)
		assert.Equal(t, want, string(c.Text))
		require.NoError(t, s.Close())
	}
}
