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

// input gives rank 0 the command's stdin: a file, or the content of a pipe if
// the program is known to read it; then the pipe is read to its end first. A
// program that restarts reads it again, which a terminal does not allow. The
// function that input returns removes what is not needed any more.
func (r *runFlags) input(c *call, made *golang.Made) (func(), error) {
	none := func() {}
	st, err := os.Stdin.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice != 0 || st.IsDir() {
		if isTerminal(os.Stdin) && !c.quiet && r.reads(made) {
			fmt.Fprintf(c.stderr, "cairn: stdin is a terminal, and %s gets nothing of it, because a restart could not read it again; if it needs input, use a file (< FILE) or a pipe\n", r.o.Command[0])
		}
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
			fmt.Fprintf(c.stderr, "cairn: stdin is a pipe, and %s gets nothing of it, because cairn does not know that it reads stdin; if it does, use a file (< FILE)\n", r.o.Command[0])
		}
		return none, nil
	}
	f, err := os.CreateTemp("", "cairn-stdin-")
	if err != nil {
		return none, err
	}
	gone := func() { os.Remove(f.Name()) }
	if !c.quiet {
		fmt.Fprintln(c.stderr, "cairn: reading stdin to its end, so that a restart can read it again")
	}
	if _, err = io.Copy(f, os.Stdin); err == nil {
		err = f.Close()
	}
	if err != nil {
		f.Close()
		gone()
		return none, fmt.Errorf("cannot keep stdin: %w", err)
	}
	r.o.Input = f.Name()
	return gone, nil
}

// reads reports whether a program is known to read stdin: from its source, from
// a mark that 'cairn build' has put into it, or from its arguments.
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
