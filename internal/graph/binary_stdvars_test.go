package graph

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// TestStdVars_KeepIdentity restores errors that programs compare by identity.
func TestStdVars_KeepIdentity(t *testing.T) {
	type state struct {
		err  error
		all  []error
		path *fs.PathError
		own  error
		in   *bufio.Reader
	}
	v := &state{err: io.EOF, all: []error{io.EOF, fs.ErrNotExist, nil}, own: errors.New("own"), in: bufio.NewReader(strings.NewReader("x"))}
	v.path = &fs.PathError{Op: "open", Path: "p", Err: os.ErrNotExist}
	io.ReadAll(v.in)
	v.in.Peek(1) // the reader remembers io.EOF
	w := *roundTrip(t, &v, nil)
	if w.err != io.EOF || w.all[0] != io.EOF || w.all[1] != fs.ErrNotExist || w.all[2] != nil {
		t.Errorf("restored %v, %v", w.err, w.all)
	}
	if !errors.Is(w.path, fs.ErrNotExist) {
		t.Errorf("restored %v, which is not fs.ErrNotExist", w.path)
	}
	if w.own.Error() != "own" || w.own == v.own {
		t.Errorf("restored %v", w.own)
	}
	if _, err := w.in.ReadByte(); err != io.EOF {
		t.Errorf("the restored reader says %v", err)
	}
	if io.EOF.Error() != "EOF" {
		t.Errorf("io.EOF is now %q", io.EOF)
	}
}
