package mem

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// bell wakes a link that sleeps. It is an eventfd. The fabric's lock is held
// during its methods, except wait and fd.
type bell struct {
	efd  int
	none bool // there is no descriptor, or it is closed
}

func (b *bell) open(none bool) (err error) {
	b.none = none
	if none {
		return nil
	}
	if b.efd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("no eventfd: %w (raise the limit of open files)", err)
	}
	return nil
}

func (b *bell) fd() int {
	if b.none {
		return -1
	}
	return b.efd
}

func (b *bell) ring(armed bool) {
	if armed && !b.none {
		unix.Write(b.efd, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

func (b *bell) clear() {
	if !b.none {
		var n [8]byte
		unix.Read(b.efd, n[:])
	}
}

// wait waits until the bell rings, a while has passed, or ctx ends.
func (b *bell) wait(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if b.none {
		time.Sleep(time.Millisecond)
		return nil
	}
	unix.Poll([]unix.PollFd{{Fd: int32(b.efd), Events: unix.POLLIN}}, 10)
	return nil
}

func (b *bell) close() {
	if !b.none {
		unix.Close(b.efd)
		b.none = true
	}
}
