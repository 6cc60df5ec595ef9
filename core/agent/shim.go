package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The arguments of ShimMain.
const (
	argWalk  = "--walk"  // no namespaces
	argInit  = "--init"  // this is process 1 of the new namespaces
	argProbe = "--probe" // say which isolation works, and end
	argTemp  = "--temp=" // a folder to remove at the end
)

// exitNoNamespace says that process 1 could not set up its namespaces and has
// started nothing.
const exitNoNamespace = 77

// ShimMain is the shim. The binary's main calls it first of all, before
// anything is set up, and ends with what it returns.
func ShimMain(args []string) int {
	if len(args) > 0 && args[0] == argEscape {
		return escape(args[1:])
	}
	// Capabilities and the signal at the parent's death belong to a thread.
	runtime.LockOSThread()
	closeOnExec()
	keepSignals()
	s := &shim{orders: os.NewFile(orderFD, "orders"), reports: os.NewFile(reportFD, "reports")}
	if slices.Contains(args, argInit) {
		return s.init(slices.Contains(args, argProbe))
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
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// keepSignals catches what would end the shim: a tool may signal all that it
// can see, and a terminal its whole group. Caught signals, unlike ignored
// ones, are at their default again in the program.
func keepSignals() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGALRM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ,
		unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR)
	go func() {
		for range c {
		}
	}()
}

type shim struct {
	orders, reports *os.File
	note            string
}

func (s *shim) report(r report) {
	line, err := json.Marshal(r)
	if err == nil {
		// The host may be gone; the pipe of orders tells, not this one.
		_, _ = s.reports.Write(append(line, '\n'))
	}
}

// outer is the shim outside of the namespaces.
func (s *shim) outer(args []string) int {
	for _, a := range args {
		if dir, ok := strings.CutPrefix(a, argTemp); ok {
			defer os.RemoveAll(dir)
		}
	}
	probe := slices.Contains(args, argProbe)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		s.report(report{Failed: &startFault{Text: "become a subreaper: " + err.Error()}})
		return 1
	}
	switch {
	case !slices.Contains(args, argWalk) && s.inNamespaces(args):
	case probe:
		s.report(report{Isolation: IsolationWalk, Note: s.note})
	default:
		// The program must not write reports through /proc.
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		s.supervise(&walker{self: os.Getpid()}, IsolationWalk)
	}
	s.report(report{Gone: true})
	return 0
}

// inNamespaces starts process 1 and waits for its end, with which the kernel
// has killed all others. False: it could not be set up.
func (s *shim) inNamespaces(args []string) bool {
	argv := slices.Clone(os.Args[:len(os.Args)-len(args)])
	argv = append(argv, argInit)
	if slices.Contains(args, argProbe) {
		argv = append(argv, argProbe)
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
	pid, err := syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
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
		s.report(report{Note: err.Error()})
		return exitNoNamespace
	}
	if probe {
		s.report(report{Isolation: IsolationPIDNS})
		return 0
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	s.supervise(namespace{}, IsolationPIDNS)
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
