//go:build unix

package zoo

import (
	"fmt"
	"os"
	"os/exec"
)

// fork starts a program that holds standard error open, and returns both
// process ids.
func fork() (string, error) {
	cmd := exec.Command("sleep", "60")
	cmd.Stderr, cmd.Stdout = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %d", os.Getpid(), cmd.Process.Pid), nil
}
