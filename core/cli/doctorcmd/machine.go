package doctorcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/penstock-dev/penstock/core/agent/sandbox"
)

// machine is what this machine can do for agents.
type machine struct {
	System    string  `json:"system"`
	Isolation string  `json:"isolation"`
	Hides     bool    `json:"hides"`
	Sandboxes []walls `json:"sandboxes"`
	Node      string  `json:"node,omitempty"`
}

// walls is a sandbox, with what it limits here or why it can't be used.
type walls struct {
	Name   string `json:"name"`
	Limits string `json:"limits,omitempty"`
	Error  string `json:"error,omitempty"`
	Auto   bool   `json:"auto,omitempty"`
}

func (d *doctor) machine(ctx context.Context) *machine {
	m := &machine{System: system(), Isolation: d.runner.Isolation(), Hides: d.runner.Hides()}
	auto := ""
	if s, err := d.runner.Sandbox(ctx, sandbox.Auto, d.image); err == nil {
		auto = s.Name()
	}
	for _, name := range sandbox.Names {
		if name == sandbox.Auto {
			continue
		}
		x := walls{Name: name, Auto: name == auto}
		if s, err := d.runner.Sandbox(ctx, name, d.image); err != nil {
			x.Error = err.Error()
			if errors.Is(err, sandbox.ErrNoImage) {
				x.Error = "not tried: it needs an image: penstock doctor --image NAME"
			}
		} else {
			x.Limits = s.Limits()
		}
		m.Sandboxes = append(m.Sandboxes, x)
	}
	if out, err := exec.CommandContext(ctx, "node", "--version").Output(); err == nil {
		m.Node = strings.TrimSpace(string(out))
	}
	return m
}

func system() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return runtime.GOOS + "/" + runtime.GOARCH
	}
	text := func(b []byte) string { return string(b[:bytes.IndexByte(b, 0)]) }
	return text(u.Sysname[:]) + " " + text(u.Release[:]) + " " + runtime.GOARCH
}

func (m *machine) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "system\t%s\n", m.System)
	kept := "processes of an agent are found by walking its descendants; namespaces can't be made here"
	if m.Isolation != "walk" {
		kept = "an agent's processes are in namespaces of their own"
	}
	fmt.Fprintf(t, "isolation\t%s: %s\n", m.Isolation, kept)
	hidden := "agents can read the run folder"
	if m.Hides {
		hidden = "the run folder is hidden from agents"
	}
	fmt.Fprintf(t, "run folder\t%s\n", hidden)
	for _, s := range m.Sandboxes {
		what := "holds: " + s.Limits
		switch s.Name {
		case sandbox.Landlock:
			what += "; not held: chmod and chown outside, UDP"
			if !m.Hides {
				what += ", /dev/shm"
			}
		case sandbox.Bwrap:
			what += "; not held: UDP"
		}
		if s.Error != "" {
			what = "not here: " + s.Error
		}
		if s.Auto {
			what += " (what auto takes)"
		}
		fmt.Fprintf(t, "sandbox %s\t%s\n", s.Name, what)
	}
	if m.Node != "" {
		fmt.Fprintf(t, "node\t%s\n", m.Node)
	}
	_ = t.Flush()
	fmt.Fprintln(w)
}
