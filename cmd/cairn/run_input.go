package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/compiler/golang"
	"github.com/cairnrun/cairn/internal/control"
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
	} else if !r.reads(made) {
		if st.Mode()&os.ModeNamedPipe != 0 && !c.quiet && made == nil {
			fmt.Fprintf(c.stderr, "cairn: stdin is a pipe, and nothing of it is given to %s, of which it is not known that it reads stdin: if it does, give it a file (< FILE)\n", r.o.Command[0])
		}
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

// reads reports whether a program is known to read stdin: by its source, by a mark
// that 'cairn build' has put into it, or by its arguments.
func (r *runFlags) reads(made *golang.Made) bool {
	for _, arg := range r.o.Command[1:] {
		if fd, ok := control.StreamOf(arg); ok && fd == 0 {
			return true
		}
	}
	if made != nil {
		return made.ReadsStdin
	}
	path, err := exec.LookPath(r.o.Command[0])
	if err != nil {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	mark := []byte(control.InputMark)
	buf := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := f.Read(buf[kept:])
		n += kept
		if bytes.Contains(buf[:n], mark) {
			return true
		}
		if err != nil {
			return false
		}
		kept = copy(buf, buf[max(0, n-len(mark)):n])
	}
}
