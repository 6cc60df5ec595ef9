package shim

import (
	"os"
	"strconv"
	"syscall"

	"github.com/penstock-dev/penstock/core/agent/kernel"
)

// walker reaches the descendants of a subreaper. Whoever among them loses its
// parent becomes a child of the subreaper, so that none gets out of the tree.
type walker struct{ self int }

// Process is a process as /proc shows it. The start time tells it from a
// later one of the same number.
type Process struct {
	PID, Parent, Session int
	start                uint64
}

func (w *walker) term() {
	for _, p := range w.descendants() {
		p.Signal(syscall.SIGTERM)
		p.Signal(syscall.SIGCONT) // a stopped process would not hear it
	}
}

// kill stops all first: one that is still running could start another while
// the list is read.
func (w *walker) kill() {
	type key struct {
		pid   int
		start uint64
	}
	stopped := map[key]bool{}
	for range 100 {
		before := len(stopped)
		for _, p := range w.descendants() {
			if k := (key{p.PID, p.start}); !stopped[k] {
				p.Signal(syscall.SIGSTOP)
				stopped[k] = true
			}
		}
		if len(stopped) == before {
			break
		}
	}
	for _, p := range w.descendants() {
		p.Signal(syscall.SIGKILL)
	}
}

// descendants lists the tree below the subreaper, parents first.
func (w *walker) descendants() []Process {
	children := map[int][]Process{}
	for _, p := range Processes() {
		children[p.Parent] = append(children[p.Parent], p)
	}
	list := children[w.self]
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i].PID]...)
	}
	return list
}

// Signal signals this very process and no later one of the same number.
func (p Process) Signal(sig syscall.Signal) {
	fd, err := kernel.PidfdOpen(p.PID)
	if err == syscall.ENOSYS {
		_ = syscall.Kill(p.PID, sig)
		return
	}
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	if now, ok := readProcess(p.PID); ok && now.start == p.start {
		_ = kernel.PidfdSignal(fd, sig)
	}
}

// Processes lists all processes of the machine.
func Processes() []Process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	list := make([]Process, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok {
				list = append(list, p)
			}
		}
	}
	return list
}

// readProcess reads /proc/PID/stat: pid (name) state ppid pgrp session ...
// starttime is field 22. The name may hold spaces and brackets.
func readProcess(pid int) (Process, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, false
	}
	fields := split(afterLast(string(data), ')'), ' ') // the first is empty
	if len(fields) < 21 {
		return Process{}, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	start, _ := strconv.ParseUint(fields[20], 10, 64)
	return Process{PID: pid, Parent: number(2), Session: number(4), start: start}, true
}
