package mpilib

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Libraries install handlers for signals (UCX does, for crashes) that would
// take them away from Go, whose runtime needs its own for panics and
// preemption, and which run on stacks too small for others. So the handlers
// are noted before a library is opened and put back after it has started.

const signals = 64

// sigaction is the kernel's, as amd64 and arm64 have it.
type sigaction struct {
	handler, flags, restorer, mask uint64
}

type handlers [signals + 1]sigaction

func action(signal int, set, get *sigaction) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), 8, 0, 0)
}

// saveHandlers notes all handlers.
func saveHandlers() *handlers {
	h := new(handlers)
	for s := 1; s <= signals; s++ {
		action(s, nil, &h[s])
	}
	return h
}

// restore puts back those that were changed since.
func (h *handlers) restore() {
	for s := 1; s <= signals; s++ {
		now := new(sigaction)
		if action(s, nil, now); *now != h[s] {
			action(s, &h[s], nil)
		}
	}
}
