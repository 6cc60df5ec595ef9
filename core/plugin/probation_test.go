package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/sdk/chat"
	"github.com/penstock-dev/penstock/sdk/component"
	"github.com/penstock-dev/penstock/sdk/format"
)

// lettersPool is a format in a module, and the pool of its instances.
func lettersPool(t *testing.T) (format.Format, *pool) {
	f, err := transports(component.Format, "letters")[Wasm](t).Format(t.Context(), "letters", nil)
	require.NoError(t, err)
	return f, f.(remoteFormat).instance.(*pool)
}

func TestWhateverEndsAnInstancePutsItsModuleOnProbation(t *testing.T) {
	parse := func(text string) func(*testing.T, format.Format) error {
		return func(t *testing.T, f format.Format) error {
			p, err := f.Open(t.Context(), &format.ParseOptions{})
			require.NoError(t, err)
			defer p.Close()
			f.(remoteFormat).instance.(*pool).wasm.limits.Timeout = 200 * time.Millisecond // once it is open
			p.Finish(p.Feed(nil, []byte(text)))
			return p.Err()
		}
	}
	for name, c := range map[string]struct {
		text   string
		reason Reason
	}{
		"a feed that traps":                {"a!", Trapped},
		"a feed that runs out of time":     {"a@", Timeout},
		"the finish that runs out of time": {"a#", Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			f, p := lettersPool(t)
			assert.False(t, p.onProbation())
			fails(t, parse(c.text)(t, f), c.reason)
			assert.True(t, p.onProbation())
		})
	}
	for act, reason := range map[string]Reason{"loop": Timeout, "panic": Trapped} {
		t.Run("a call that does "+act, func(t *testing.T) {
			_, j := wildModule(t, Limits{})
			p := j.(remoteJudger).instance.(*pool)
			p.wasm.limits.Timeout = 200 * time.Millisecond
			_, err := ask(j, act)
			fails(t, err, reason)
			assert.True(t, p.onProbation())
		})
	}
	t.Run("a call that says no", func(t *testing.T) {
		_, j := wildModule(t, Limits{})
		_, err := ask(j, "nan")
		fails(t, err, Failed)
		assert.False(t, j.(remoteJudger).instance.(*pool).onProbation())
	})
}

// TestAModuleOnProbationRunsOneThingAtATime: a call, one of a stream, or the
// making of an instance.
func TestAModuleOnProbationRunsOneThingAtATime(t *testing.T) {
	f, p := lettersPool(t)
	stream, err := f.Open(t.Context(), &format.ParseOptions{})
	require.NoError(t, err)
	defer stream.Close()
	p.fault()
	p.solo <- struct{}{} // somebody else's call
	done := make(chan string)
	go func() {
		assert.Len(t, stream.Feed(nil, []byte("aB")), 2)
		done <- "feed"
	}()
	go func() {
		_, err := f.Render(t.Context(), &format.RenderRequest{Chat: &chat.Conversation{}})
		assert.NoError(t, err)
		done <- "render"
	}()
	go func() {
		other, err := f.Open(t.Context(), &format.ParseOptions{})
		if assert.NoError(t, err) {
			assert.NoError(t, other.Close())
		}
		done <- "open"
	}()
	select {
	case what := <-done:
		t.Fatalf("%s ran beside a call", what)
	case <-time.After(200 * time.Millisecond):
	}
	<-p.solo
	assert.ElementsMatch(t, []string{"feed", "render", "open"}, []string{<-done, <-done, <-done})
	require.NoError(t, stream.Err())
}
