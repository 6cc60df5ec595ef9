package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-dev/penstock/core/agent/shim"
)

// held is a program under a shim: a process between it and the host that holds
// a pipe of the host's and kills the program, and all that it started, at the
// pipe's end. The host's own death ends the pipe, however it dies, and so a
// program that never looks at its standard input ends with its host.
type held struct {
	orders, reports *os.File
	ended           sync.Once
	started         chan error    // has one, when it is known
	told            chan struct{} // closed when the shim has nothing more to say
	last            shim.Report   // how the program ended; after told
}

// hold makes the pipes of a shim and returns its ends, descriptors 3 and 4.
func hold() (*held, []*os.File, error) {
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	reports, theirReports, err := os.Pipe()
	if err != nil {
		closeAll([]*os.File{theirOrders, orders})
		return nil, nil, err
	}
	h := &held{orders: orders, reports: reports, started: make(chan error, 1), told: make(chan struct{})}
	go h.read()
	return h, []*os.File{theirOrders, theirReports}, nil
}

// order says what to start, and waits until it is, or can't be.
func (h *held) order(argv, env []string) error {
	dir, err := os.Getwd()
	if err == nil {
		o := shim.Order{Path: argv[0], Dir: dir, Grace: time.Millisecond, Argv: argv, Env: env}
		_, err = h.orders.Write(o.Encode())
	}
	if err != nil {
		h.close()
		return fmt.Errorf("give the shim its order: %w", err)
	}
	return <-h.started
}

var errShim = errors.New("the shim ended before it started the program")

// read takes what the shim says until it ends.
func (h *held) read() {
	defer close(h.told)
	defer h.reports.Close()
	begun := false
	begin := func(err error) {
		if !begun {
			begun = true
			h.started <- err
		}
	}
	for lines := bufio.NewScanner(h.reports); lines.Scan(); {
		r, err := shim.ParseReport(lines.Text())
		if err != nil {
			continue
		}
		switch r.Kind {
		case shim.Started:
			begin(nil)
		case shim.Failed:
			begin(failure(r))
		case shim.Ended:
			h.last = r
			h.close() // what it left goes at once
		}
	}
	begin(errShim)
}

// failure is the error of a program that could not be started.
func failure(r shim.Report) error {
	if r.Number != 0 {
		return fmt.Errorf("start: %w", syscall.Errno(r.Number))
	}
	return fmt.Errorf("start: %s", r.Text)
}

// close ends the pipe of orders.
func (h *held) close() { h.ended.Do(func() { _ = h.orders.Close() }) }

// state says how the program ended, as os.ProcessState does.
func (h *held) state() string {
	switch {
	case h.last.Kind == "":
		return "signal: killed"
	case h.last.Text != "":
		return "signal: " + h.last.Text
	}
	return fmt.Sprintf("exit status %d", h.last.Number)
}
