//go:build unix

package serve

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// endProcess ends the plugin and everything it started that is still in its
// process group. The socket's folder is removed, with the one around it that
// the host made for it, as the host can't do so any more.
func endProcess() {
	if dir := os.Getenv(socketDir); dir != "" {
		_ = os.RemoveAll(dir)
		if outer := filepath.Dir(dir); strings.HasPrefix(filepath.Base(outer), "penstock-") {
			_ = os.Remove(outer) // fails where there is more in it
		}
	}
	if syscall.Getpgrp() == os.Getpid() {
		_ = syscall.Kill(0, syscall.SIGKILL)
	}
	os.Exit(0)
}
