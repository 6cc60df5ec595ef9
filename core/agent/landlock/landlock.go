// Package landlock puts the kernel's Landlock rules on a thread: which files
// what it starts may touch, and which ports it may connect to. It is linked
// into the shim and so imports next to nothing; which rules there are for an
// agent is package sandbox's affair.
package landlock

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/penstock-dev/penstock/core/agent/kernel"
)

// Rules are what Restrict puts on a thread, and so on what it starts.
type Rules struct {
	// Files says that Read and Write are all that may be touched; without it
	// files are not limited.
	Files       bool
	Read, Write []string
	// TCP says that Ports are all that may be connected to.
	TCP   bool
	Ports []int
}

// The versions of the kernel's interface that brought something.
const (
	ABITruncate = 3 // files can't be truncated
	ABITCP      = 4 // ports
	abiIoctl    = 5
	ABIScopes   = 6 // signals and abstract sockets
)

// The rights, as include/uapi/linux/landlock.h numbers them.
const (
	execute   = 1 << 0
	writeFile = 1 << 1
	readFile  = 1 << 2
	readDir   = 1 << 3
	truncate  = 1 << 14
	ioctl     = 1 << 15

	readRights = execute | readFile | readDir
	allRights  = truncate<<1 - 1
	fileRights = execute | writeFile | readFile | truncate | ioctl

	connectTCP = 1 << 1
	scopes     = 1<<0 | 1<<1 // abstract sockets, signals
)

// The calls, the same on every machine of Linux, and their arguments.
const (
	sysCreateRuleset = 444
	sysAddRule       = 445
	sysRestrictSelf  = 446

	askVersion      = 1
	rulePathBeneath = 1
	rulePort        = 2
	openPath        = 0x200000 // O_PATH
)

// pathAttr is a packed struct in the kernel: 12 bytes.
type pathAttr struct {
	allowed uint64
	fd      int32
}

type rulesetAttr struct{ fs, net, scoped uint64 }

type portAttr struct{ allowed, port uint64 }

// Error says which step failed.
type Error struct {
	Doing string
	Err   error
}

func (e *Error) Error() string { return "landlock: " + e.Doing + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ABI is the version of the kernel's interface, 0 where there is none.
func ABI() int {
	v, _, errno := syscall.Syscall(sysCreateRuleset, 0, 0, askVersion)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// Restrict puts rules on the calling thread, for good. What it starts from
// then on inherits them.
func (r *Rules) Restrict() error {
	version := ABI()
	attr := rulesetAttr{}
	if r.Files {
		attr.fs = allRights
		if version >= abiIoctl {
			attr.fs |= ioctl
		}
	}
	if r.TCP {
		attr.net = connectTCP
	}
	if version >= ABIScopes {
		attr.scoped = scopes
	}
	if attr == (rulesetAttr{}) {
		return nil
	}
	set, _, errno := syscall.Syscall(sysCreateRuleset, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return &Error{"make rules", errno}
	}
	defer syscall.Close(int(set))
	if err := r.add(int(set), attr); err != nil {
		return err
	}
	if err := kernel.Prctl(kernel.SetNoNewPrivs, 1); err != nil {
		return &Error{"give up new privileges", err}
	}
	if _, _, errno := syscall.Syscall(sysRestrictSelf, set, 0, 0); errno != 0 {
		return &Error{"put rules on", errno}
	}
	return nil
}

func (r *Rules) add(set int, attr rulesetAttr) error {
	for _, path := range r.Read {
		if err := addPath(set, path, readRights, attr.fs); err != nil {
			return err
		}
	}
	for _, path := range r.Write {
		if err := addPath(set, path, attr.fs, attr.fs); err != nil {
			return err
		}
	}
	if attr.net == 0 {
		return nil
	}
	for _, port := range r.Ports {
		rule := portAttr{allowed: connectTCP, port: uint64(port)}
		_, _, errno := syscall.Syscall6(sysAddRule, uintptr(set), rulePort, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
		if errno != 0 {
			return &Error{"allow port " + strconv.Itoa(port), errno}
		}
	}
	return nil
}

func addPath(set int, path string, rights, handled uint64) error {
	if handled == 0 {
		return nil
	}
	fd, err := syscall.Open(path, openPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return &Error{"allow " + path, err}
	}
	defer syscall.Close(fd)
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		rights &= fileRights
	}
	rule := pathAttr{allowed: rights & handled, fd: int32(fd)}
	_, _, errno := syscall.Syscall6(sysAddRule, uintptr(set), rulePathBeneath,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return &Error{"allow " + path, errno}
	}
	return nil
}
