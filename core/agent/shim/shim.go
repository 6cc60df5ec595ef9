package shim

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"github.com/penstock-dev/penstock/core/agent/kernel"
)

// Arg is the first argument of a binary that shall be the shim.
const Arg = "__shim"

// The arguments after it.
const (
	ArgWalk  = "--walk"  // no namespaces
	ArgProbe = "--probe" // say which isolation works, and end
	ArgTemp  = "--temp=" // a folder to remove at the end
	// ArgClient says that the program is the client of a container engine: whom
	// it starts may outlive it, and it may become another user. It ends with its
	// container, which the host ends, also by its own end: one that is killed
	// meanwhile may leave a container that never started.
	ArgClient = "--client"
	argInit   = "--init" // this is process 1 of the new namespaces

	// ArgEscape, as the first, is not for the shim: package agent tries its
	// sandboxes with it.
	ArgEscape = "--escape"
	// ArgEnter, as the first, is not for the shim either: process 1 of a
	// container starts with it.
	ArgEnter = "--enter"
)

// The ways in which the processes of a run are held together.
const (
	PIDNS = "pidns" // new process and mount namespaces
	Walk  = "walk"  // a subreaper that walks its descendants
	// Container is that of an engine, of which the shim holds the client alone.
	Container = "container"
)

// Packages are initialized in the order of their import paths as soon as their
// own imports are, so this runs before nearly all else that is linked in, as
// long as the shim imports next to nothing (a test holds it to that). A run
// needs two shims, and what the rest of the binary sets up takes ten times as
// long as they do.
func init() {
	if len(os.Args) > 1 && os.Args[1] == Arg && !notHere(os.Args[2:]) {
		syscall.Exit(Main(os.Args[2:])) // os.Exit sleeps for a second under the race detector
	}
}

// notHere tells whether the arguments are for another than the shim.
func notHere(args []string) bool {
	return len(args) > 0 && (args[0] == ArgEscape || args[0] == ArgEnter)
}

// exitNoNamespace says that process 1 could not set up its namespaces and has
// started nothing.
const exitNoNamespace = 77

// Main is the shim. It returns an exit code.
func Main(args []string) int {
	// Capabilities and the signal at the parent's death belong to a thread.
	runtime.LockOSThread()
	closeOnExec()
	ignoreSignals(true)
	s := &shim{orders: os.NewFile(orderFD, "orders"), reports: os.NewFile(reportFD, "reports")}
	if slices.Contains(args, argInit) {
		return s.init(slices.Contains(args, ArgProbe))
	}
	return s.outer(args)
}

// closeOnExec keeps every file but the standard three from the program, those
// that the host itself was started with among them.
func closeOnExec() {
	if kernel.CloseOnExecFrom(3) == nil {
		return
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	syscall.CloseOnExec(orderFD)
	syscall.CloseOnExec(reportFD)
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
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
		if len(a) > len(ArgTemp) && a[:len(ArgTemp)] == ArgTemp {
			holdFolder(a[len(ArgTemp):])
			defer os.RemoveAll(a[len(ArgTemp):])
		}
	}
	if slices.Contains(args, ArgClient) {
		s.supervise(func(pid int) holder { return client(pid) }, Container)
		s.report(Report{Kind: Gone})
		return 0
	}
	probe := slices.Contains(args, ArgProbe)
	if err := kernel.Prctl(kernel.SetChildSubreaper, 1); err != nil {
		s.report(Report{Kind: Failed, Text: "become a subreaper: " + err.Error()})
		return 1
	}
	switch {
	case !slices.Contains(args, ArgWalk) && s.inNamespaces(args):
	case probe:
		s.report(Report{Kind: Isolated, Text: Walk})
	default:
		// The program must not write reports through /proc.
		_ = kernel.Prctl(kernel.SetDumpable, 0)
		s.supervise(func(int) holder { return &walker{self: os.Getpid()} }, Walk)
	}
	s.report(Report{Kind: Gone})
	return 0
}

// holdFolder holds a folder of package temp to the end of the process: the host
// may die first, and then it is still in use.
func holdFolder(path string) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err == nil {
		_ = syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB)
	}
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
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd,
	}
	switch {
	case os.Geteuid() != 0:
		asUser(attr)
	case !kernel.HasCap(kernel.CapSysAdmin):
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
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	uid, gid := os.Geteuid(), os.Getegid()
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	attr.AmbientCaps = []uintptr{kernel.CapSysAdmin}
}

// killAtHangUp kills process 1 when the host has closed its pipe. Process 1
// reads the pipe itself; this is for the case that it can't.
func killAtHangUp(pid, pidfd int) {
	if kernel.WaitHangUp(orderFD) != nil {
		return
	}
	if pidfd < 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return
	}
	_ = kernel.PidfdSignal(pidfd, syscall.SIGKILL)
}

// init is process 1 of the new namespaces.
func (s *shim) init(probe bool) int {
	if err := mountProc(); err != nil {
		s.report(Report{Kind: Noted, Text: err.Error()})
		return exitNoNamespace
	}
	if probe {
		s.report(Report{Kind: Isolated, Text: PIDNS})
		if err := (&Order{Hide: []string{"/sys"}}).hide(); err != nil {
			s.report(Report{Kind: Noted, Text: err.Error()})
		} else {
			s.report(Report{Kind: Hides})
		}
		return 0
	}
	_ = kernel.Prctl(kernel.SetDumpable, 0)
	s.supervise(func(int) holder { return namespace{} }, PIDNS)
	return 0
}

// mountProc gives the namespace a /proc of its own. Every mount is made
// private first: without that the new one would replace the machine's.
func mountProc() error {
	if os.Getpid() != 1 {
		return errors.New("not process 1 of its namespace")
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return errors.New("make / private: " + err.Error())
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return errors.New("mount /proc: " + err.Error())
	}
	return nil
}
