//go:build linux

package helper

import (
	"os"
	"syscall"
	"time"
)

// A rank writes its standard output straight to a file on the disk of the run.
// Few programs look whether that succeeds: on a full disk, lines would be missing
// at the end. So the file has room ahead of what was written, which is enough
// for a program that says little until somebody makes room on the disk.
const (
	outputRoom  = 256 << 10
	reserveTime = 100 * time.Millisecond
)

// reserveOutput keeps room in a rank's output file until the rank has ended.
func reserveOutput(path string, ended <-chan struct{}) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	tick := time.NewTicker(reserveTime)
	defer tick.Stop()
	for {
		if st, err := f.Stat(); err == nil {
			const keepSize = 1
			// Where that is not known, or the disk is full, it is as it was.
			_ = syscall.Fallocate(int(f.Fd()), keepSize, st.Size(), outputRoom)
		}
		select {
		case <-ended:
			return
		case <-tick.C:
		}
	}
}
