//go:build linux

package helper

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestReserveOutput_FullDisk starts no rank whose output would be lost: few
// programs check whether they could print.
func TestReserveOutput_FullDisk(t *testing.T) {
	for size, full := range map[string]bool{"128k": true, "1m": false} {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
			t.Skip("cannot mount a small disk: ", err)
		}
		defer syscall.Unmount(dir, 0)
		f, err := os.Create(filepath.Join(dir, "output"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := reserveOutput(f); errors.Is(err, syscall.ENOSPC) != full {
			t.Errorf("a disk of %s: %v", size, err)
		}
		if st, err := f.Stat(); err != nil || st.Size() != 0 {
			t.Errorf("the file has %d bytes, %v", st.Size(), err)
		}
	}
}
