//go:build !linux

package ckpt

import (
	"errors"
	"os"
)

// errNoHelper means that this system has no shared staging memory.
var errNoHelper = errors.New("a helper process for checkpoints needs Linux; leave Options.Helper nil, and the program writes its checkpoints itself")

// helperSupport returns why a helper process cannot write, or nil.
func helperSupport() error { return errNoHelper }

func (w *wire) sendFile([]byte, *os.File) error { return errNoHelper }

func (w *wire) read(p []byte) (int, error) { return w.conn.Read(p) }
