// Package landlock puts the kernel's Landlock rules on a thread: which files
// what it starts may touch, and which ports it may connect to. It is linked
// into the shim and so imports next to nothing; which rules there are for an
// agent is package sandbox's affair.
package landlock

import (
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
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

const (
	readRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	allRights  = 0x7fff // up to and with LANDLOCK_ACCESS_FS_TRUNCATE
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	scopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL

	rulePort = 2 // LANDLOCK_RULE_NET_PORT
)

type rulesetAttr struct{ fs, net, scoped uint64 }

type portAttr struct{ allowed, port uint64 }

// ABI is the version of the kernel's interface, 0 where there is none.
func ABI() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
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
			attr.fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
		}
	}
	if r.TCP {
		attr.net = unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= ABIScopes {
		attr.scoped = scopes
	}
	if attr == (rulesetAttr{}) {
		return nil
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("landlock: make rules: %w", errno)
	}
	defer unix.Close(int(set))
	if err := r.add(int(set), attr); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: put rules on: %w", errno)
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
		rule := portAttr{allowed: unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, port: uint64(port)}
		_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), rulePort, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
		if errno != 0 {
			return fmt.Errorf("landlock: allow port %d: %w", port, errno)
		}
	}
	return nil
}

func addPath(set int, path string, rights, handled uint64) error {
	if handled == 0 {
		return nil
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("landlock: allow %s: %w", path, &fs.PathError{Op: "open", Path: path, Err: err})
	}
	defer unix.Close(fd)
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights & handled, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: allow %s: %w", path, errno)
	}
	return nil
}
