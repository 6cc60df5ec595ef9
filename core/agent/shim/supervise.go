package shim

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/penstock-dev/penstock/core/agent/kernel"
)

// holder reaches every process of a run but the shim itself.
type holder interface {
	term() // asks all to end
	kill() // kills all; called again until none is left
}

// namespace is all that process 1 can see.
type namespace struct{}

func (namespace) term() {
	_ = syscall.Kill(-1, syscall.SIGTERM)
	_ = syscall.Kill(-1, syscall.SIGCONT) // a stopped process would not hear it
}

func (namespace) kill() { _ = syscall.Kill(-1, syscall.SIGKILL) }

// clientPatience is how long a client may take to end after its host.
const clientPatience = time.Minute

// client is the number of a client of a container engine. What the engine
// starts for it is not the shim's.
type client int

func (c client) term() {}

func (c client) kill() { _ = syscall.Kill(-int(c), syscall.SIGKILL) }

// supervise starts the program and returns when no process of it is left. It
// is the only one that waits for children, so that no number of a child that
// is still to be signalled can be given to another process.
func (s *shim) supervise(held func(pid int) holder, isolation string) {
	o, err := readOrder(s.orders)
	if err != nil {
		s.report(Report{Kind: Failed, Text: err.Error()})
		return
	}
	if s.note != "" {
		s.report(Report{Kind: Noted, Text: s.note})
	}
	s.report(Report{Kind: Isolated, Text: isolation})
	// An order to hide is an order: without it nothing is started.
	switch {
	case len(o.Hide) == 0:
	case isolation != PIDNS:
		err = errors.New("hide " + o.Hide[0] + ": there are no namespaces this time: " + s.note)
	default:
		err = o.hide()
	}
	if err != nil {
		s.report(Report{Kind: Failed, Text: err.Error()})
		return
	}
	pid, err := start(o, isolation)
	if err != nil {
		failed := Report{Kind: Failed, Text: err.Error()}
		if errno, ok := err.(syscall.Errno); ok {
			failed.Number = int(errno)
		}
		s.report(failed)
		return
	}
	letGo()
	s.report(Report{Kind: Started, Number: pid})
	s.watch(held(pid), pid, o.Grace)
}

// watch follows the program to the end of all its processes.
func (s *shim) watch(h holder, pid int, grace time.Duration) {
	requests, changed := make(chan bool), make(chan bool)
	go s.listen(requests)
	go childEnds(changed)
	var killAt, again <-chan time.Time
	ending := false
	end := func() {
		if !ending {
			ending = true
			h.term()
			killAt = time.After(grace)
		}
	}
	kill := func() {
		ending, killAt = true, nil
		h.kill()
		again = time.After(10 * time.Millisecond)
	}
	for {
		left, ended := s.reap(pid)
		if !left {
			return
		}
		if ended {
			end()
		}
		select {
		case <-changed:
		case <-killAt:
			kill()
		case <-again:
			kill()
		case alive := <-requests:
			_, waits := h.(client)
			switch {
			case alive:
				end()
			case waits:
				ending, killAt = true, time.After(clientPatience)
			default:
				kill()
			}
		}
	}
}

// childEnds tells each time that a child has ended and is to be collected.
func childEnds(changed chan<- bool) {
	for {
		if kernel.WaitChild() != nil { // none is left, which reap finds, too
			return
		}
		changed <- true
	}
}

// reap collects every child that has ended. Left is false when there is none
// any more: whoever loses its parent becomes a child of the shim, so then no
// descendant is left. Ended says that the program itself was among them.
func (s *shim) reap(pid int) (left, ended bool) {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return false, ended
		case got == 0:
			return true, ended
		case got == pid:
			ended = true
			e := Report{Kind: Ended, Number: status.ExitStatus()}
			if status.Signaled() {
				e.Number, e.Text = -1, kernel.SignalName(status.Signal())
			}
			s.report(e)
		}
	}
}

// listen sends true for a request to end and false at the end of the pipe.
func (s *shim) listen(requests chan<- bool) {
	b := make([]byte, 1)
	for {
		n, err := s.orders.Read(b)
		if n > 0 && b[0] == RequestEnd {
			requests <- true
		}
		if err != nil {
			requests <- false
			return
		}
	}
}

// start starts the program. Rules of a sandbox and the loss of capabilities are
// for good, and hold for the thread that they are put on: it is one that does
// nothing else, and that stays, because the program dies with the thread that
// started it.
func start(o *Order, isolation string) (pid int, err error) {
	root := len(o.Hide) > 0 && os.Geteuid() == 0
	if o.Rules == nil && !root {
		return startHere(o, isolation)
	}
	type result struct {
		pid int
		err error
	}
	started := make(chan result)
	go func() {
		runtime.LockOSThread()
		if o.Rules != nil {
			if err := o.Rules.Restrict(); err != nil {
				started <- result{err: err}
				return
			}
		}
		if root {
			if err := kernel.LoseCaps(kernel.Unhiding); err != nil {
				started <- result{err: errors.New("drop capabilities: " + err.Error())}
				return
			}
		}
		pid, err := startHere(o, isolation)
		started <- result{pid, err}
		select {}
	}()
	r := <-started
	return r.pid, r.err
}

// startHere starts the program in a session of its own, without the shim's
// files.
func startHere(o *Order, isolation string) (pid int, err error) {
	if os.Geteuid() != 0 && isolation != Container {
		if err := kernel.DropCaps(); err != nil {
			return 0, errors.New("drop capabilities: " + err.Error())
		}
		// A program that became another user could not be killed by this one.
		_ = kernel.Prctl(kernel.SetNoNewPrivs, 1)
	}
	attr := &syscall.ProcAttr{
		Dir: o.Dir, Env: o.Env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	for wait := time.Millisecond; ; wait *= 2 {
		pid, err = fork(o.Path, o.Argv, attr)
		// Another process of the host may, for a moment, still hold the file
		// of a program that was just written.
		if err != syscall.ETXTBSY || wait > 500*time.Millisecond {
			return pid, err
		}
		time.Sleep(wait)
	}
}

// letGo closes the shim's own ends of the standard three, so that the host
// sees when the program's are closed.
func letGo() {
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = syscall.Dup3(null, fd, 0)
	}
	_ = syscall.Close(null)
}
