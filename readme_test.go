package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadmeShowsTheFiles keeps the README's copies of files true.
func TestReadmeShowsTheFiles(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, path := range []string{"examples/calculator/pipeline.yaml", "examples/calculator/exact42/main.go"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Contains(t, string(readme), string(text), "README.md shows %s as it was", path)
	}
}
