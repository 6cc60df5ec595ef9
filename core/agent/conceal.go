package agent

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Conceal keeps other processes of this user from reading this one's memory
// and environment, in which upstream keys are, through /proc or ptrace. In
// namespaces an agent doesn't see the host anyway; with IsolationWalk this is
// all that is between them. It doesn't hold against root, and there is no core
// dump any more. The host calls it once, early.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("conceal this process from others: %w", err)
	}
	return nil
}
