package shim

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Arg is the first argument of a binary that shall be the shim.
const Arg = "__shim"

// The arguments after it.
const (
	ArgWalk  = "--walk"  // no namespaces
	ArgProbe = "--probe" // say which isolation works, and end
	ArgTemp  = "--temp=" // a folder to remove at the end
	argInit  = "--init"  // this is process 1 of the new namespaces

	// ArgEscape, as the first, is not for the shim: package agent tries its
	// sandboxes with it.
	ArgEscape = "--escape"
)

// The ways in which the processes of a run are held together.
const (
	PIDNS = "pidns" // new process and mount namespaces
	Walk  = "walk"  // a subreaper that walks its descendants
)

// Packages are initialized in the order of their import paths as soon as their
// own imports are, so this runs before nearly all else that is linked in: a
// run needs two shims, and what the rest of the binary sets up takes ten times
// as long as they do.
func init() {
	if len(os.Args) > 1 && os.Args[1] == Arg && !slices.Contains(os.Args[2:], ArgEscape) {
		os.Exit(Main(os.Args[2:]))
	}
}

// exitNoNamespace says that process 1 could not set up its namespaces and has
// started nothing.
const exitNoNamespace = 77

// Main is the shim. It returns an exit code.
func Main(args []string) int {
	// Capabilities and the signal at the parent's death belong to a thread.
	runtime.LockOSThread()
	closeOnExec()
	setSignals(ignore)
	s := &shim{orders: os.NewFile(orderFD, "orders"), reports: os.NewFile(reportFD, "reports")}
	if slices.Contains(args, argInit) {
		return s.init(slices.Contains(args, ArgProbe))
	}
	return s.outer(args)
}

// closeOnExec keeps every file but the standard three from the program, those
// that the host itself was started with among them.
func closeOnExec() {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	unix.CloseOnExec(orderFD)
	unix.CloseOnExec(reportFD)
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

type shim struct {
	orders, reports *os.File
	note            string
}

func (s *shim) report(r Report) {
	// The host may be gone; the pipe of orders tells, not this one.
	_, _ = s.reports.Write(r.encode())
}

// outer is the shim outside of the namespaces.
func (s *shim) outer(args []string) int {
	for _, a := range args {
		if dir, ok := strings.CutPrefix(a, ArgTemp); ok {
			defer os.RemoveAll(dir)
		}
	}
	probe := slices.Contains(args, ArgProbe)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		s.report(Report{Kind: Failed, Text: "become a subreaper: " + err.Error()})
		return 1
	}
	switch {
	case !slices.Contains(args, ArgWalk) && s.inNamespaces(args):
	case probe:
		s.report(Report{Kind: Isolated, Text: Walk})
	default:
		// The program must not write reports through /proc.
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		s.supervise(&walker{self: os.Getpid()}, Walk)
	}
	s.report(Report{Kind: Gone})
	return 0
}

// inNamespaces starts process 1 and waits for its end, with which the kernel
// has killed all others. False: it could not be set up.
func (s *shim) inNamespaces(args []string) bool {
	argv := slices.Clone(os.Args[:len(os.Args)-len(args)])
	argv = append(argv, argInit)
	if slices.Contains(args, ArgProbe) {
		argv = append(argv, ArgProbe)
	}
	pidfd := -1
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL, PidFD: &pidfd,
	}
	switch {
	case os.Geteuid() != 0:
		asUser(attr)
	case !mayAdmin():
		// In a user namespace root would lose its say over the files of others.
		s.note = "root without CAP_SYS_ADMIN"
		return false
	}
	pid, err := fork("/proc/self/exe", argv, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: []uintptr{0, 1, 2, orderFD, reportFD}, Sys: attr,
	})
	if err != nil {
		s.note = "clone: " + err.Error()
		return false
	}
	go killAtHangUp(pid, pidfd)
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	if status.Exited() && status.ExitStatus() == exitNoNamespace {
		s.note = "its own process 1 could not set up"
		return false
	}
	return true
}

// asUser puts a user namespace around the others, in which the user and group
// stay who they are, and keeps the one capability that mounting needs.
func asUser(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= unix.CLONE_NEWUSER
	uid, gid := os.Geteuid(), os.Getegid()
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
}

func mayAdmin() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// killAtHangUp kills process 1 when the host has closed its pipe. Process 1
// reads the pipe itself; this is for the case that it can't.
func killAtHangUp(pid, pidfd int) {
	fds := []unix.PollFd{{Fd: orderFD}}
	for {
		n, err := unix.Poll(fds, -1)
		if err != nil && err != unix.EINTR {
			return
		}
		if n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
			break
		}
	}
	if pidfd < 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
		return
	}
	_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
}

// init is process 1 of the new namespaces.
func (s *shim) init(probe bool) int {
	if err := mountProc(); err != nil {
		s.report(Report{Kind: Noted, Text: err.Error()})
		return exitNoNamespace
	}
	if probe {
		s.report(Report{Kind: Isolated, Text: PIDNS})
		return 0
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	s.supervise(namespace{}, PIDNS)
	return 0
}

// mountProc gives the namespace a /proc of its own. Every mount is made
// private first: without that the new one would replace the machine's.
func mountProc() error {
	if os.Getpid() != 1 {
		return fmt.Errorf("process %d instead of 1", os.Getpid())
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// dropAmbient takes from the calling thread, and so from what it starts, the
// capability that was needed to mount.
func dropAmbient() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}
