//go:build linux

package helper

import (
	"os"
	"syscall"
	"time"
)

// A rank writes its standard output directly to a file on the disk of the run.
// Few programs check whether that succeeds: on a full disk, lines would be
// missing at the end. So space is reserved after the written part of the file.
// It is enough for a program with little output until there is room on the disk
// again.
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
			// If the file system does not support it, or the disk is full,
			// nothing changes.
			_ = syscall.Fallocate(int(f.Fd()), keepSize, st.Size(), outputRoom)
		}
		select {
		case <-ended:
			return
		case <-tick.C:
		}
	}
}
