package agent

import (
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock-dev/penstock/core/agent/sandbox"
	"github.com/penstock-dev/penstock/core/agent/shim"
)

// The ways in which the processes of a run are held together.
const (
	IsolationPIDNS = shim.PIDNS // new process and mount namespaces
	IsolationWalk  = shim.Walk  // a subreaper that walks its descendants
	// IsolationContainer is that of a container engine.
	IsolationContainer = shim.Container
)

// Sizes and times that hold unless a Spec says otherwise.
const (
	DefaultGrace     = 5 * time.Second
	DefaultStdoutMax = 16 << 20
	stderrMax        = 64 << 10
	lineMax          = 16 << 20
)

// Spec is one program to run.
type Spec struct {
	// Argv is the program and its arguments. A program without a slash is
	// looked for in the PATH of Env; one with a slash is relative to Dir.
	Argv []string
	// Env is all of the program's environment, as NAME=value. Only TMPDIR is
	// added where Env has none: a private folder with a short path, since
	// sockets in it have to fit in 108 bytes. It goes when the run has ended.
	Env []string
	// Dir is the working folder.
	Dir string
	// Stdin is written to the program's standard input, which is then closed.
	Stdin []byte
	// Stdout and Stderr are files that get all that the program writes, made
	// with mode 0600. Empty: nothing is stored.
	Stdout, Stderr string
	// Redact, where given, stands between the program and each of these files.
	// Its Close writes what it holds back and leaves the file open. Line and
	// Exit get the output as it was.
	Redact func(io.Writer) io.WriteCloser
	// Line is called with each line of standard output as it comes, without
	// its newline. The slice is only valid during the call. A line longer than
	// 16 MiB is left out and counted in Exit.LongLines.
	Line func(line []byte)
	// Tee gets all of standard output as it comes, as it was. It has to take
	// what it is given: an error of it ends what it gets, and nothing else.
	Tee io.Writer
	// Active is called whenever the program wrote something.
	Active func()
	// Timeout ends the program after this long; 0 means never.
	Timeout time.Duration
	// Grace is the time between the request to end (SIGTERM) and SIGKILL.
	// 0 means DefaultGrace, less than 0 none.
	Grace time.Duration
	// Hide are folders that the program finds empty and can't change, Keep what
	// stays of them nevertheless, and View what stays but can't be changed.
	// Paths are absolute; those of Keep and View, and a TMPDIR that Run makes,
	// are below a folder of Hide or have no effect. Where the machine has no
	// namespaces nothing is hidden: see Runner.Hides and Exit.Hidden. Where it
	// has them, a program from which the folders can't be hidden is not
	// started.
	//
	// What the program and its children open themselves is kept from them, not
	// what they can have another program of the machine open: a cron daemon, a
	// container engine, a terminal of the same user.
	Hide, Keep, View []string
	// Sandbox bounds what the program may touch; nil is no bound. Dir, TMPDIR
	// where Run makes it, the folders of PATH and the program are added to
	// Policy. In a container the program is one of the image, or of a folder of
	// Policy; those folders of PATH that are named in Policy come first there.
	Sandbox sandbox.Sandbox
	Policy  sandbox.Policy
	// StdoutMax bounds Exit.Stdout, in bytes; 0 means DefaultStdoutMax.
	StdoutMax int
}

// Exit is how a program ended. Nothing that it started is alive any more,
// unless Lost is set.
type Exit struct {
	Code   int    // exit code, or -1 when a signal ended it or it isn't known
	Signal string // the signal that ended it, as "SIGTERM", else empty
	// TimedOut and Cancelled say that the program was ended from outside, by
	// Spec.Timeout or by the context, and had not ended before, whatever its
	// exit code says. At most one of them is set.
	TimedOut, Cancelled bool
	// Lost says that the shim died or hung, so that the end of the program was
	// not seen and a process of it may be left.
	Lost bool

	Stdout    string // the end of standard output, cut at a line
	Cut       bool   // there was more of it
	Stderr    string // the last 64 KiB of standard error
	LongLines int    // lines of standard output too long for Spec.Line
	// OutputErr says why Stdout or Stderr could not be stored whole.
	OutputErr error

	Isolation      string // IsolationPIDNS, IsolationWalk or IsolationContainer
	Hidden         bool   // Spec.Hide was hidden
	Started, Ended time.Time
}

// RunnerOptions are the options of a Runner.
type RunnerOptions struct {
	// Shim is the start of the argv that runs ShimMain, as
	// ["/usr/bin/penstock", "__shim"].
	Shim []string
	// Isolation is IsolationWalk to leave out the namespaces; empty means the
	// strongest that the machine allows.
	Isolation string
	Log       *slog.Logger
}

// Runner runs programs. It is safe for concurrent use and holds nothing that
// has to be closed.
type Runner struct {
	shim  []string
	walk  bool
	log   *slog.Logger
	probe func() (isolation string, hides bool)
}

// NewRunner makes a Runner.
func NewRunner(o RunnerOptions) *Runner {
	r := &Runner{shim: append([]string(nil), o.Shim...), walk: o.Isolation == IsolationWalk, log: o.Log}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if len(r.shim) > 0 {
		// The shim starts in / so as to hold no folder of the host.
		if abs, err := filepath.Abs(r.shim[0]); err == nil {
			r.shim[0] = abs
		}
	}
	r.probe = sync.OnceValues(r.probeIsolation)
	return r
}

// Isolation tells which isolation this machine allows. It is tried once.
func (r *Runner) Isolation() string {
	isolation, _ := r.probe()
	return isolation
}

// Hides tells whether this machine allows to hide folders. It is tried once.
func (r *Runner) Hides() bool {
	_, hides := r.probe()
	return hides
}
