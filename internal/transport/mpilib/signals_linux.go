package mpilib

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Some libraries install signal handlers (UCX does, for crashes). These would
// replace handlers that the Go runtime needs for panics and preemption, and
// they may not fit on Go's signal stacks. So the handlers are saved before a
// library is opened, and restored after MPI has started.

const signals = 64

// sigaction is the kernel's structure on amd64 and arm64.
type sigaction struct {
	handler, flags, restorer, mask uint64
}

type handlers [signals + 1]sigaction

func action(signal int, set, get *sigaction) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), 8, 0, 0)
}

// saveHandlers returns all current handlers.
func saveHandlers() *handlers {
	h := new(handlers)
	for s := 1; s <= signals; s++ {
		action(s, nil, &h[s])
	}
	return h
}

// restore restores the handlers that have changed since.
func (h *handlers) restore() {
	for s := 1; s <= signals; s++ {
		now := new(sigaction)
		if action(s, nil, now); *now != h[s] {
			action(s, &h[s], nil)
		}
	}
}
