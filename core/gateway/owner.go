package gateway

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// busy says who holds a port, where /proc tells it.
func busy(addr string, err error) error {
	_, port, _ := net.SplitHostPort(addr)
	n, convErr := strconv.Atoi(port)
	if convErr != nil {
		return err
	}
	pid, name := portOwner(n)
	if pid == 0 {
		return fmt.Errorf("port %d is taken: %w", n, err)
	}
	return fmt.Errorf("port %d is taken by process %d (%s): %w", n, pid, name, err)
}

// portOwner finds the process that listens on a TCP port; pid is 0 when the
// system doesn't tell.
func portOwner(port int) (pid int, name string) {
	inodes := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		listening(file, port, inodes)
	}
	if len(inodes) == 0 {
		return 0, ""
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !inodes[target] {
			continue
		}
		dir := filepath.Dir(filepath.Dir(link))
		pid, _ = strconv.Atoi(filepath.Base(dir))
		comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
		return pid, strings.TrimSpace(string(comm))
	}
	return 0, ""
}

// listening adds, as link targets, the sockets of a /proc/net table that
// listen on the port.
func listening(file string, port int, inodes map[string]bool) {
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	const listen = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local_address rem_address st queues timer retrnsmt uid timeout inode
		field := strings.Fields(lines.Text())
		if len(field) > 9 && field[3] == listen && strings.HasSuffix(field[1], suffix) {
			inodes["socket:["+field[9]+"]"] = true
		}
	}
}
