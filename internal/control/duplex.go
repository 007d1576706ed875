package control

import (
	"errors"
	"os"
)

// Duplex is a stream made of two files.
type Duplex struct{ In, Out *os.File }

func (d Duplex) Read(p []byte) (int, error)  { return d.In.Read(p) }
func (d Duplex) Write(p []byte) (int, error) { return d.Out.Write(p) }
func (d Duplex) Close() error                { return errors.Join(d.Out.Close(), d.In.Close()) }
