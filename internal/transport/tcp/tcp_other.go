//go:build !linux

package tcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/cairnrun/cairn/internal/transport"
)

var errSystem = fmt.Errorf("tcp: this transport is written for Linux: %w", errors.ErrUnsupported)

// Driver reaches peers over TCP; only Linux has it.
type Driver struct{}

// Open returns an error: this system has no such transport.
func Open(Options) (*Driver, error) { return nil, errSystem }

func (*Driver) Name() string        { return "tcp" }
func (*Driver) Address() []byte     { return nil }
func (*Driver) Reaches([]byte) bool { return false }
func (*Driver) Close() error        { return nil }

func (*Driver) Connect(context.Context, [][]byte, transport.Handler) (transport.Link, error) {
	return nil, errSystem
}
