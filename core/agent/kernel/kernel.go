// Package kernel has the few system calls that the shim needs and that package
// syscall lacks. It stands in for golang.org/x/sys/unix, which is initialized
// after most of what is linked into penstock; the shim, which may depend on
// next to nothing for that reason, would have to wait for it.
package kernel

import (
	"strconv"
	"syscall"
	"unsafe"
)

// The numbers of calls that are the same on every machine of Linux.
const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434
	sysCloseRange      = 436
)

// Options of Prctl.
const (
	SetDumpable       = 4
	SetChildSubreaper = 36
	SetNoNewPrivs     = 38
	capBoundRead      = 23
	capBoundDrop      = 24
	capAmbient        = 47
	capAmbientClear   = 4 // its argument
)

// CapSysAdmin is the number of the capability to mount.
const CapSysAdmin = 21

// Unhiding are the capabilities with which root gets at files that a mount
// hides: by taking it away, by their number on the disk, by the disk itself,
// by another process, or by the kernel's memory.
var Unhiding = []uint{
	CapSysAdmin,
	2,  // DAC_READ_SEARCH: open_by_handle_at
	16, // SYS_MODULE
	17, // SYS_RAWIO
	19, // SYS_PTRACE
	27, // MKNOD
	38, // PERFMON
	39, // BPF
}

func check(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// Prctl changes something of the calling thread or process.
func Prctl(option, argument uintptr) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, argument, 0, 0, 0, 0)
	return check(errno)
}

// PidfdOpen opens a process.
func PidfdOpen(pid int) (fd int, err error) {
	r, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(pid), 0, 0)
	return int(r), check(errno)
}

// PidfdSignal signals an open process.
func PidfdSignal(fd int, sig syscall.Signal) error {
	_, _, errno := syscall.RawSyscall6(sysPidfdSendSignal, uintptr(fd), uintptr(sig), 0, 0, 0, 0)
	return check(errno)
}

// CloseOnExecFrom marks all files from a number on. An old kernel has no such
// call.
func CloseOnExecFrom(fd int) error {
	const cloexec, last = 4, 1<<31 - 1
	_, _, errno := syscall.RawSyscall(sysCloseRange, uintptr(fd), last, cloexec)
	return check(errno)
}

// WaitHangUp waits until the other end of a pipe is closed. It reads nothing.
func WaitHangUp(fd int) error {
	const hangUp = 0x10 | 0x8 | 0x20 // POLLHUP, POLLERR, POLLNVAL
	for {
		poll := struct {
			fd              int32
			events, revents int16
		}{fd: int32(fd)}
		_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, 0, 0, 0, 0)
		if errno != 0 && errno != syscall.EINTR {
			return errno
		}
		if errno == 0 && poll.revents&hangUp != 0 {
			return nil
		}
	}
}

// WaitChild waits until a child has ended, and leaves it to be collected.
func WaitChild() error {
	const all, exited, leave = 0, 4, 0x01000000 // P_ALL, WEXITED, WNOWAIT
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, all, 0, 0, exited|leave, 0, 0)
		if errno != syscall.EINTR {
			return check(errno)
		}
	}
}

// The header and the data of the calls for capabilities, version 3.
type capHeader struct {
	version uint32
	pid     int32
}

// capData is 32 of each set.
type capData struct{ effective, permitted, inheritable uint32 }

const capVersion = 0x20080522

// HasCap tells whether the calling thread has a capability below 32.
func HasCap(number uint) bool {
	header := capHeader{version: capVersion}
	var data [2]capData
	_, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
	return errno == 0 && data[0].effective&(1<<number) != 0
}

// DropCaps takes all capabilities from the calling thread.
func DropCaps() error {
	if err := Prctl(capAmbient, capAmbientClear); err != nil {
		return err
	}
	header := capHeader{version: capVersion}
	var none [2]capData
	_, _, errno := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	return check(errno)
}

// LoseCaps takes these capabilities from the calling thread and from all that
// it starts, programs with capabilities of their own included.
func LoseCaps(numbers []uint) error {
	if err := Prctl(capAmbient, capAmbientClear); err != nil {
		return err
	}
	header := capHeader{version: capVersion}
	var data [2]capData
	_, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
	if errno != 0 {
		return errno
	}
	for _, n := range numbers {
		// A kernel that does not know it has nothing to take.
		bound, _, _ := syscall.RawSyscall6(syscall.SYS_PRCTL, capBoundRead, uintptr(n), 0, 0, 0, 0)
		if bound == 1 {
			if err := Prctl(capBoundDrop, uintptr(n)); err != nil {
				return err
			}
		}
		d, bit := &data[n/32], uint32(1)<<(n%32)
		d.effective, d.permitted, d.inheritable = d.effective&^bit, d.permitted&^bit, d.inheritable&^bit
	}
	_, _, errno = syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
	return check(errno)
}

// SetSignal gives a signal its default, or has it ignored.
func SetSignal(sig syscall.Signal, ignored bool) {
	// The kernel's struct sigaction on the 64-bit machines of Linux: handler,
	// flags, restorer, mask.
	var action [4]uintptr
	if ignored {
		action[0] = 1
	}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

var signals = [...]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1", 11: "SEGV",
	12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN",
	22: "TTOU", 23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS",
}

// SignalName is the name of a signal, as "SIGTERM".
func SignalName(sig syscall.Signal) string {
	if i := int(sig); i > 0 && i < len(signals) {
		return "SIG" + signals[i]
	}
	return "SIG" + strconv.Itoa(int(sig))
}
