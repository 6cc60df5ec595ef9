//go:build linux || darwin

package plugin

import "golang.org/x/sys/unix"

// reserve takes n bytes of addresses, without pages.
func reserve(n uint64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(n), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// commit makes the bytes from one offset to another usable; they are zero. Both
// are multiples of the size of a page.
func commit(room []byte, from, to int) error {
	if from >= to {
		return nil
	}
	return unix.Mprotect(room[from:to], unix.PROT_READ|unix.PROT_WRITE)
}

func unreserve(room []byte) { _ = unix.Munmap(room) }
