//go:build !linux

package plugin

// awaitExit reports that only Linux can wait for a child without reaping it.
func awaitExit(int) bool { return false }
