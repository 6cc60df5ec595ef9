package workspace

import (
	"syscall"
	"unsafe"
)

// awaitExit waits until a child has ended, and leaves it to be reaped.
func awaitExit(pid int) {
	const byPID, exited, noWait = 1, 0x4, 0x01000000 // P_PID, WEXITED, WNOWAIT
	var info [128]byte
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), exited|noWait, 0, 0)
		if err != syscall.EINTR {
			return
		}
	}
}
