package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cairnrun/cairn/compiler/golang"
)

// input lets rank 0 read what the command has as its stdin: a file, or what comes
// through a pipe if the program is known to read it, which is then read to its
// end first. A program that is started again reads it again. The function that
// is returned removes what is not needed any more.
func (r *runFlags) input(c *call, made *golang.Made) (func(), error) {
	none := func() {}
	st, err := os.Stdin.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice != 0 || st.IsDir() {
		return none, nil
	}
	if st.Mode().IsRegular() {
		name, err := os.Readlink("/proc/self/fd/0")
		at, serr := os.Stdin.Seek(0, io.SeekCurrent)
		if err == nil && serr == nil && at == 0 && filepath.IsAbs(name) {
			if now, err := os.Stat(name); err == nil && os.SameFile(st, now) {
				r.o.Input = name
				return none, nil
			}
		}
	} else if made == nil || !made.Reads {
		return none, nil
	}
	f, err := os.CreateTemp("", "cairn-stdin-")
	if err != nil {
		return none, err
	}
	gone := func() { os.Remove(f.Name()) }
	if !c.quiet {
		fmt.Fprintln(c.stderr, "cairn: reading stdin to its end, so that it can be read again")
	}
	if _, err = io.Copy(f, os.Stdin); err == nil {
		err = f.Close()
	}
	if err != nil {
		f.Close()
		gone()
		return none, fmt.Errorf("stdin could not be kept: %w", err)
	}
	r.o.Input = f.Name()
	return gone, nil
}
