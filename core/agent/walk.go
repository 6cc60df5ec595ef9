package agent

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// walker reaches the descendants of a subreaper. Whoever among them loses its
// parent becomes a child of the subreaper, so that none gets out of the tree.
type walker struct{ self int }

// process is a process as /proc shows it. The start time tells it from a
// later one of the same number.
type process struct {
	pid, parent, group, session int
	start                       uint64
}

func (w *walker) term() {
	for _, p := range w.descendants() {
		p.signal(unix.SIGTERM)
		p.signal(unix.SIGCONT) // a stopped process would not hear it
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
			if k := (key{p.pid, p.start}); !stopped[k] {
				p.signal(unix.SIGSTOP)
				stopped[k] = true
			}
		}
		if len(stopped) == before {
			break
		}
	}
	for _, p := range w.descendants() {
		p.signal(unix.SIGKILL)
	}
}

// descendants lists the tree below the subreaper, parents first.
func (w *walker) descendants() []process {
	children := map[int][]process{}
	for _, p := range processes() {
		children[p.parent] = append(children[p.parent], p)
	}
	list := children[w.self]
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i].pid]...)
	}
	return list
}

// signal signals this very process and no later one of the same number.
func (p process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == unix.ENOSYS {
		_ = unix.Kill(p.pid, sig)
		return
	}
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, ok := readProcess(p.pid); ok && now.start == p.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// processes lists all processes of the machine.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	list := make([]process, 0, len(names))
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
func readProcess(pid int) (process, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return process{}, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(string(fields[i])); return n }
	start, _ := strconv.ParseUint(string(fields[19]), 10, 64)
	return process{pid: pid, parent: number(1), group: number(2), session: number(3), start: start}, true
}
