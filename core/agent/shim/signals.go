package shim

import (
	"syscall"

	"github.com/penstock-dev/penstock/core/agent/kernel"
)

// deadly are the signals that would end the shim. A tool may signal all that
// it can see, and a terminal its whole group. Package os/signal, which is the
// usual way, is initialized too late: see init.
var deadly = [...]syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGUSR1,
	syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM,
	syscall.SIGIO, syscall.SIGPWR,
}

func ignoreSignals(ignored bool) {
	for _, sig := range deadly {
		kernel.SetSignal(sig, ignored)
	}
}

// fork starts a program for which every signal has its default again, as what
// is ignored would stay so.
func fork(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	ignoreSignals(false)
	defer ignoreSignals(true)
	return syscall.ForkExec(path, argv, attr)
}
