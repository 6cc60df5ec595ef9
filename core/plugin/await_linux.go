package plugin

import "golang.org/x/sys/unix"

// awaitExit waits until a child has ended and leaves it to be reaped, so that
// its number can't be given to another process before its group is killed. It
// reports whether it could.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
