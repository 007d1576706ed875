//go:build !linux

package mem

import (
	"context"
	"time"
)

// bell does nothing on this system: a link without a descriptor is polled.
type bell struct{}

func (*bell) open(bool) error { return nil }
func (*bell) fd() int         { return -1 }
func (*bell) ring(bool)       {}
func (*bell) clear()          {}
func (*bell) close()          {}

func (*bell) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Millisecond):
		return nil
	}
}
