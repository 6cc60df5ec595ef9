package shim

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the shim imports has to be initialized before it, and so does all that
// comes before that by its path. Package strings alone makes it wait for half
// of the binary.
func TestImportsNextToNothing(t *testing.T) {
	allowed := []string{
		"cmp", "errors", "io", "io/fs", "iter", "math/bits", "os", "path", "runtime", "slices", "strconv", "sync", "sync/atomic",
		"syscall", "time", "unicode/utf8", "unsafe",
		"github.com/penstock-dev/penstock/core/agent/kernel", "github.com/penstock-dev/penstock/core/agent/landlock",
		"github.com/penstock-dev/penstock/core/agent/shim",
	}
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for _, path := range strings.Fields(string(out)) {
		if !strings.HasPrefix(path, "internal/") {
			require.Contains(t, allowed, path)
		}
	}
}
