package hdf5

import (
	"errors"
	"fmt"
)

// Every error of the reader wraps one of these, unless it comes from the
// io.ReaderAt.
var (
	ErrCorrupt     = errors.New("hdf5: corrupt file")
	ErrNotFound    = errors.New("hdf5: not found")
	ErrUnsupported = errors.New("hdf5: unsupported")
)

// ErrType reports a datatype that this package cannot represent. It is an
// ErrUnsupported.
var ErrType = fmt.Errorf("%w datatype", ErrUnsupported)

func corrupt(at uint64, format string, args ...any) error {
	return fmt.Errorf("%w: %s (offset %#x)", ErrCorrupt, fmt.Sprintf(format, args...), at)
}

func unsupported(at uint64, format string, args ...any) error {
	return fmt.Errorf("%w: %s (offset %#x)", ErrUnsupported, fmt.Sprintf(format, args...), at)
}
