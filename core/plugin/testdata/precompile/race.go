//go:build race

package precompile

func init() { needed = true }
