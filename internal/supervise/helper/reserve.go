//go:build linux

package helper

import (
	"errors"
	"fmt"
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

// reserveOutput reserves room after the written part of a rank's output file.
// Where files have no reservations, it does nothing; a full disk is an error.
func reserveOutput(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	const keepSize = 1
	err = syscall.Fallocate(int(f.Fd()), keepSize, st.Size(), outputRoom)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("no room for the output: %s: %w; free space there, and start the same command again", f.Name(), err)
	}
	return nil
}

// keepReserved keeps room in a rank's output file until the rank has ended.
func keepReserved(path string, ended <-chan struct{}) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	tick := time.NewTicker(reserveTime)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		_ = reserveOutput(f) // a disk that is full now has the room from before
	}
}
