package shim

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The two things that can be done with a signal here. A tool may signal all
// that it can see, and a terminal its whole group, so the shim ignores what
// would end it. Package os/signal is not for this: it would bring most of the
// binary's packages with it, see init.
const (
	byDefault = 0
	ignore    = 1
)

var deadly = [...]syscall.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGALRM, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR,
}

// setSignals sets what becomes of the deadly signals.
func setSignals(handler uintptr) {
	// The kernel's struct sigaction on the 64-bit machines of Linux: handler,
	// flags, restorer, mask.
	action := [4]uintptr{handler}
	for _, sig := range deadly {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
}

// fork starts a program for which every signal has its default again, as what
// is ignored would stay so.
func fork(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	setSignals(byDefault)
	defer setSignals(ignore)
	return syscall.ForkExec(path, argv, attr)
}
