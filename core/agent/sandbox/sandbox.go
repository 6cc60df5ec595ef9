// Package sandbox says what an agent's processes may touch: which folders they
// may read and change, and where they may connect. There are none, landlock
// (rules that the kernel puts on the shim's child), bwrap (a file system of its
// own, made by the bubblewrap program), and docker and podman (a container of
// an image).
//
// Promised, and tried by a probe before one is chosen: nothing outside of the
// named folders is changed, and nothing but them and the system's own programs
// is read. Where the kernel can, TCP goes to the named ports only, and no
// process outside is signalled. Not promised: protection from faults of the
// kernel; limits on UDP before the kernel has them; and, with landlock alone
// on a kernel that can't, sockets of the system that are files.
//
// Starting programs is not done here; package agent does it.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-dev/penstock/core/agent/landlock"
)

// The names of sandboxes.
const (
	None     = "none"
	Landlock = "landlock"
	Bwrap    = "bwrap"
	Docker   = "docker"
	Podman   = "podman"
	Auto     = "auto" // the strongest that passes its probe
)

// Names lists what may be asked for.
var Names = []string{Auto, None, Landlock, Bwrap, Docker, Podman}

// Policy is what a program may touch. Paths are absolute and exist; the
// system's own folders may always be read, and /dev/null and its like be used.
type Policy struct {
	Read  []string
	Write []string
	// Ports are the TCP ports that may be connected to. Network leaves the
	// network as it is.
	Ports   []int
	Network bool
}

// Command is how a program is started in a sandbox.
type Command struct {
	Path  string
	Argv  []string
	Rules *landlock.Rules // what the shim puts on the program before it starts
}

// Sandbox puts a program into its bounds.
type Sandbox interface {
	Name() string
	// Limits says in a few words what is limited on this machine.
	Limits() string
	// Command changes how a program is started in dir.
	Command(p Policy, dir, path string, argv []string) (Command, error)
}

// New makes the sandbox of a name other than auto. The image is that of docker
// and podman. The error says what this machine lacks.
func New(ctx context.Context, name, image string) (Sandbox, error) {
	switch name {
	case None, "":
		return none{}, nil
	case Landlock:
		return newLandlock()
	case Bwrap:
		return newBwrap()
	case Docker, Podman:
		return newContainer(ctx, name, image)
	}
	return nil, fmt.Errorf("no sandbox %q; there are %s", name, strings.Join(Names, ", "))
}

type none struct{}

func (none) Name() string   { return None }
func (none) Limits() string { return "nothing" }

func (none) Command(_ Policy, _, path string, argv []string) (Command, error) {
	return Command{Path: path, Argv: argv}, nil
}

// systemRead are the folders of programs, libraries and settings. Homes,
// /root, /var, /tmp and /mnt are not among them.
var systemRead = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc", "/nix/store", "/run/systemd/resolve",
}

// devices are those that programs count on.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/shm", "/dev/ptmx", "/dev/pts"}

// existing leaves out the paths that do not exist.
func existing(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		_, err := os.Stat(p)
		return err != nil
	})
}

// check refuses a policy that would not do what it reads as.
func (p Policy) check() error {
	var errs []error
	for _, path := range slices.Concat(p.Read, p.Write) {
		if !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s is no absolute path", path))
		} else if _, err := os.Stat(path); err != nil {
			errs = append(errs, err)
		}
	}
	for _, port := range p.Ports {
		if port < 1 || port > 65535 {
			errs = append(errs, fmt.Errorf("%d is no port", port))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

// ProgramPaths are what a program needs to read besides the system's folders:
// those of PATH, the program itself, and the installation that it belongs to.
// The folder that a program merely lies in is not among them; that may be
// somebody's project.
func ProgramPaths(path, search string) []string {
	var paths []string
	add := func(p string) {
		if filepath.IsAbs(p) && p != "/" && !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	for _, dir := range filepath.SplitList(search) {
		add(dir)
		add(prefixOf(dir))
	}
	add(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		add(real)
		add(prefixOf(filepath.Dir(real)))
		if i := strings.Index(real, "/node_modules/"); i >= 0 {
			add(real[:i] + "/node_modules")
		}
	}
	return existing(paths)
}

// prefixOf is the folder of an installation whose programs are in dir, as in
// ~/.nvm/versions/node/v22/bin with a lib beside it. A home and its .local are
// none: they hold all sorts of things.
func prefixOf(dir string) string {
	prefix := filepath.Dir(dir)
	home, _ := os.UserHomeDir()
	if filepath.Base(dir) != "bin" || prefix == home || filepath.Base(prefix) == ".local" {
		return ""
	}
	if info, err := os.Stat(filepath.Join(prefix, "lib")); err != nil || !info.IsDir() {
		return ""
	}
	return prefix
}
