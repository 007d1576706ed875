//go:build !linux || (!amd64 && !arm64) || static

package dl

import (
	"errors"
	"testing"
)

func TestOpen_Error(t *testing.T) {
	if _, err := Open("libc.so.6"); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}
