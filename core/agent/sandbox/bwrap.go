package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/agent/landlock"
)

const maxBwrapArgs = 9000 // as compiled into it

// unhiding are the capabilities of kernel.Unhiding that a user namespace gives.
var unhiding = []string{"CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_MKNOD"}

type bwrap struct {
	path    string
	version int // of landlock, for the network; 0 where there is none
}

func newBwrap() (Sandbox, error) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, errors.New("sandbox bwrap: no program bwrap in PATH; it is in the package bubblewrap")
	}
	return &bwrap{path: path, version: landlock.ABI()}, nil
}

func (b *bwrap) Name() string { return Bwrap }

func (b *bwrap) Limits() string {
	text := "bwrap: files"
	if b.version >= landlock.ABITCP {
		text += ", TCP"
	}
	if b.version >= landlock.ABIScopes {
		text += ", signals"
	}
	return text
}

// Command wraps the program. Its file system has the system's folders and what
// the policy names, nothing else; what is not named does not exist. The
// network is the host's, because the gateway is there; landlock bounds it
// where the kernel can. Processes are left to the shim: with a namespace of
// bwrap's own, SIGTERM would leave the program no time to end. What a signal
// ended has the exit code 128 and its number, as bwrap tells it.
//
// Root gets a user namespace, as every other user does, and loses there what it
// could take a mount away with. Without that it would find the host's files
// below /proc/PID/root of bwrap itself. The price is that files of other users
// are nobody's in it.
func (b *bwrap) Command(p Policy, dir, path string, argv []string) (Command, error) {
	if err := p.check(); err != nil {
		return Command{}, err
	}
	args := []string{
		"bwrap", "--unshare-ipc", "--unshare-uts",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
	}
	if os.Geteuid() == 0 {
		args = append(args, "--unshare-user")
		for _, c := range unhiding {
			args = append(args, "--cap-drop", c)
		}
	}
	for _, system := range systemRead {
		args = append(args, "--ro-bind-try", system, system)
	}
	for _, read := range outermost(p.Read) {
		args = append(args, "--ro-bind", read, read)
	}
	for _, write := range p.Write {
		args = append(args, "--bind", write, write)
	}
	args = append(args, "--chdir", dir, "--", path)
	args = append(args, argv[1:]...)
	if len(args) > maxBwrapArgs {
		return Command{}, fmt.Errorf("sandbox bwrap: %d arguments are more than it takes", len(args))
	}
	return Command{Path: b.path, Argv: args, Rules: &landlock.Rules{TCP: !p.Network && b.version >= landlock.ABITCP, Ports: p.Ports}}, nil
}

// outermost leaves out what lies below another of the paths: it is there with
// that one, and a link in a folder that is bound can't be bound over.
func outermost(paths []string) []string {
	var out []string
	for i, p := range paths {
		inside := slices.ContainsFunc(paths, func(other string) bool {
			return other != p && strings.HasPrefix(p, strings.TrimSuffix(other, "/")+"/")
		})
		if !inside && !slices.Contains(paths[:i], p) {
			out = append(out, p)
		}
	}
	return out
}
