//go:build !linux

package shm

import (
	"context"
	"errors"

	"github.com/cairnrun/cairn/internal/transport"
)

var errSystem = errors.New("shm: shared memory between processes works on Linux only; use another transport")

// Driver is a transport.Driver; there is none on this system.
type Driver struct{}

// Open returns an error on this system.
func Open(Options) (*Driver, error) { return nil, errSystem }

// Name returns "shm".
func (*Driver) Name() string { return "shm" }

// Address returns nil.
func (*Driver) Address() []byte { return nil }

// Reaches returns false.
func (*Driver) Reaches([]byte) bool { return false }

// Connect returns an error.
func (*Driver) Connect(context.Context, [][]byte, transport.Handler) (transport.Link, error) {
	return nil, errSystem
}

// Close does nothing.
func (*Driver) Close() error { return nil }
