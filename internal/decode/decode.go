// Package decode reads binary messages: numbers in little-endian order, and the
// bytes between them.
package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Cursor is a position in a message. After a read beyond the end, or Fail, the
// message is bad: nothing is left of it, and all values are zero.
type Cursor struct {
	p   []byte
	bad bool
}

// New returns a cursor at the start of a message.
func New(p []byte) Cursor { return Cursor{p: p} }

// Take reads n bytes. They are a part of the message.
func (c *Cursor) Take(n uint64) []byte {
	if n > uint64(len(c.p)) {
		c.Fail()
		return nil
	}
	p := c.p[:n:n]
	c.p = c.p[n:]
	return p
}

// Rest reads all that is left.
func (c *Cursor) Rest() []byte { return c.Take(uint64(len(c.p))) }

// Left returns the number of bytes that are left.
func (c *Cursor) Left() int { return len(c.p) }

// U32 reads a number of four bytes.
func (c *Cursor) U32() uint32 {
	if p := c.Take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// U64 reads a number of eight bytes.
func (c *Cursor) U64() uint64 {
	if p := c.Take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// F64 reads a floating-point number of eight bytes.
func (c *Cursor) F64() float64 { return math.Float64frombits(c.U64()) }

// Fail makes the message bad.
func (c *Cursor) Fail() { c.p, c.bad = nil, true }

// Bad reports whether the message is bad.
func (c *Cursor) Bad() bool { return c.bad }

// End returns an error if the message is bad, or if something is left of it.
func (c *Cursor) End() error {
	if c.bad {
		return errors.New("it ends early")
	}
	if len(c.p) > 0 {
		return fmt.Errorf("%d bytes too many", len(c.p))
	}
	return nil
}
