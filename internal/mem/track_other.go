//go:build !linux

package mem

import "errors"

// Tracker asks the kernel which pages were written; only Linux has it.
type Tracker struct{}

// NewTracker returns an error: this system has no such tracking.
func NewTracker() (*Tracker, error) {
	return nil, errors.New("write tracking needs Linux 6.7 or later")
}

func (*Tracker) Close()               {}
func (*Tracker) Watch([]byte) error   { return errors.ErrUnsupported }
func (*Tracker) Unwatch(_, _ uintptr) {}

func (*Tracker) Scan([]byte, func(lo, hi int)) error { return errors.ErrUnsupported }
