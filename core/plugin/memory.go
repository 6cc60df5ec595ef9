package plugin

import (
	"errors"
	"sync"

	"github.com/tetratelabs/wazero/experimental"
)

// guestMemory is the memory of one instance. It is the system's, not Go's: a
// guest that grows and is thrown away would set off one garbage collection
// after the other, in which all others have to help, and its memory would be
// copied every few steps as it grows. The addresses up to its limit are taken
// at once; pages come as it grows, and go when its instance is closed.
//
// An instance may be closed while a call is at work in it. Its memory then goes
// when the call has ended.
type guestMemory struct {
	max uint64

	mu    sync.Mutex
	room  []byte // of max bytes, where the system gave it; else nil
	buf   []byte // what the guest has of it, or memory of Go's
	calls int    // at work
	freed bool
}

var errMemoryGone = errors.New("the instance was closed")

func newGuestMemory(max uint64) *guestMemory {
	m := &guestMemory{max: max}
	m.room, _ = reserve(max)
	return m
}

// enter keeps the memory until leave, unless it is gone.
func (m *guestMemory) enter() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.freed {
		return errMemoryGone
	}
	m.calls++
	return nil
}

func (m *guestMemory) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls--
	m.release()
}

// release gives the memory back if nobody has a use for it.
func (m *guestMemory) release() {
	if !m.freed || m.calls > 0 {
		return
	}
	if m.room != nil {
		unreserve(m.room)
	}
	m.room, m.buf = nil, nil
}

// Reallocate implements experimental.LinearMemory. What it returns has no room
// behind it, which no page would be there for.
func (m *guestMemory) Reallocate(size uint64) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if size > m.max || m.freed && m.calls == 0 {
		return nil
	}
	if m.room != nil {
		if commit(m.room, len(m.buf), int(size)) == nil {
			m.buf = m.room[:size:size]
			return m.buf
		}
		if m.buf != nil {
			return nil // the system has no more
		}
		unreserve(m.room) // it gives addresses, but no pages
		m.room = nil
	}
	if size > uint64(cap(m.buf)) {
		grown := make([]byte, size, min(m.max, max(2*uint64(cap(m.buf)), size)))
		copy(grown, m.buf)
		m.buf = grown
	}
	m.buf = m.buf[:size]
	return m.buf
}

// Free implements experimental.LinearMemory.
func (m *guestMemory) Free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.freed = true
	m.release()
}

var _ experimental.LinearMemory = (*guestMemory)(nil)
