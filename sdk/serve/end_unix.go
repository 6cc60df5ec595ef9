//go:build unix

package serve

import (
	"os"
	"syscall"
)

// endProcess ends the plugin and everything it started that is still in its
// process group. The socket's folder is removed, as the host can't do so any
// more.
func endProcess() {
	if dir := os.Getenv(socketDir); dir != "" {
		_ = os.RemoveAll(dir)
	}
	if syscall.Getpgrp() == os.Getpid() {
		_ = syscall.Kill(0, syscall.SIGKILL)
	}
	os.Exit(0)
}
