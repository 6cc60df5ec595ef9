package enter

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strconv"
	"sync"
	"time"
)

// Door is the host's end of the way out of one container.
type Door struct {
	listener *net.UnixListener
	job      []byte
	ports    []int
	life     context.Context
	end      context.CancelFunc
	all      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	shut   bool          // nothing is started any more
	held   *net.UnixConn // that of process 1
	gone   chan struct{} // closed with held
	got    *started
}

// patience is how long a container may take to kill what is in it.
const patience = 15 * time.Second

// lineMax is the longest that a connection may ask for, its newline included.
const lineMax = 16

// Open makes the socket, where process 1 gets the job, and others are let
// through to the ports of the job alone.
func Open(socket string, job Job) (*Door, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("write the order for a container: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("open the way out of a container: %w", err)
	}
	d := &Door{listener: l, job: text, ports: job.Ports, gone: make(chan struct{})}
	d.life, d.end = context.WithCancel(context.Background())
	d.all.Go(d.serve)
	return d, nil
}

// End asks what is in the container to end within the grace of the job. What
// has not entered yet does not start any more.
func (d *Door) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held != nil {
		d.write([]byte("true\n"))
	}
	d.shut = true
}

// write gives process 1 something to read. Its end is found out by who reads.
func (d *Door) write(text []byte) {
	_ = d.held.SetWriteDeadline(time.Now().Add(patience))
	_, _ = d.held.Write(text)
}

// Close kills what is left in the container and lets go of all connections. An
// error says that the container did not tell in time that all is dead. It may
// be called again, and for none.
func (d *Door) Close() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed, d.shut = true, true
	held := d.held
	d.mu.Unlock()
	_ = d.listener.Close()
	var err error
	if held != nil {
		_ = held.CloseWrite()
		limit := time.NewTimer(patience)
		select {
		case <-d.gone:
		case <-limit.C:
			err = errors.New("a container did not end in time")
		}
		limit.Stop()
	}
	d.end()
	d.all.Wait()
	return err
}

// Started says after Close how the program's start went. The error is
// fs.ErrNotExist where the container has no such program. False: nothing in
// the container ever asked.
func (d *Door) Started() (entered bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.got == nil:
		return d.held != nil, nil
	case d.got.Missing:
		return true, fs.ErrNotExist
	case d.got.Error != "":
		return true, errors.New(d.got.Error)
	}
	return true, nil
}

func (d *Door) serve() {
	for {
		c, err := d.listener.AcceptUnix()
		if err != nil {
			return
		}
		d.all.Go(func() {
			stop := context.AfterFunc(d.life, func() { _ = c.Close() })
			defer stop()
			defer c.Close()
			d.answer(c)
		})
	}
}

// answer serves one connection to its end.
func (d *Door) answer(c *net.UnixConn) {
	r := bufio.NewReaderSize(c, lineMax)
	text, err := r.ReadSlice('\n')
	if err != nil {
		return
	}
	what := string(text[:len(text)-1])
	if what == hold {
		d.hold(c, r)
		return
	}
	for _, port := range d.ports {
		if what != strconv.Itoa(port) {
			continue
		}
		var dialer net.Dialer
		out, err := dialer.DialContext(d.life, "tcp4", net.JoinHostPort("127.0.0.1", what))
		if err != nil {
			return
		}
		stop := context.AfterFunc(d.life, func() { _ = out.Close() })
		defer stop()
		join(out.(*net.TCPConn), c, r)
		return
	}
}

// hold gives the job to the first that asks, which is process 1, and stays
// until that has ended.
func (d *Door) hold(c *net.UnixConn, r io.Reader) {
	d.mu.Lock()
	if d.shut || d.held != nil {
		d.mu.Unlock()
		return
	}
	d.held = c
	d.write(d.job)
	d.mu.Unlock()
	defer close(d.gone)
	var got started
	answers := json.NewDecoder(r)
	if answers.Decode(&got) != nil {
		return
	}
	d.mu.Lock()
	d.got = &got
	d.mu.Unlock()
	_, _ = io.Copy(io.Discard, r)
}
