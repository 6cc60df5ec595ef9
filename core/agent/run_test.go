package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	for _, iso := range []string{"", IsolationWalk} {
		r := NewRunner(RunnerOptions{Shim: []string{"/proc/self/exe", "__shim"}, Isolation: iso})
		e, err := r.Run(t.Context(), Spec{Argv: []string{"sh", "-c", "echo hi; ps ax 2>/dev/null | tail -3; cat; exit 3"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: t.TempDir(), Stdin: []byte("in")})
		require.NoError(t, err)
		t.Logf("%+v %s", e, e.Stdout)
		t.Log(r.Isolation())
	}
}
