package sdk

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPython runs the tests of the Python sdk, whose warnings are errors.
func TestPython(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "python3", "-B", "-W", "error", "-m", "unittest", "discover", "-s", "python", "-p", "*_test.py").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
