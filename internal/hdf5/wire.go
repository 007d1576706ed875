package hdf5

import "encoding/binary"

// undef is the address that means "none".
const undef = ^uint64(0)

var le = binary.LittleEndian

// appendUint appends the low n bytes of v.
func appendUint(b []byte, v uint64, n int) []byte {
	for ; n > 0; n-- {
		b = append(b, byte(v))
		v >>= 8
	}
	return b
}

// cursor parses bytes. Reading past the end returns zeros and sets bad. A
// parser checks bad at its end, and before it trusts a count.
type cursor struct {
	b    []byte
	pos  int
	bad  bool
	at   uint64 // file address of b[0], for errors
	base uint64 // added to addresses
	osz  int    // size of an address in bytes
	lsz  int    // size of a length in bytes
}

func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)-c.pos) {
		c.bad = true
		c.pos = len(c.b)
		return nil
	}
	p := c.b[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return p
}

func (c *cursor) uint(n int) uint64 {
	var v uint64
	p := c.bytes(uint64(n))
	for i := len(p) - 1; i >= 0; i-- {
		v = v<<8 | uint64(p[i])
	}
	return v
}

func (c *cursor) u8() int {
	if c.pos >= len(c.b) {
		c.bad = true
		return 0
	}
	c.pos++
	return int(c.b[c.pos-1])
}

func (c *cursor) u16() int    { return int(c.uint(2)) }
func (c *cursor) u32() uint32 { return uint32(c.uint(4)) }
func (c *cursor) u64() uint64 {
	if p := c.bytes(8); p != nil {
		return le.Uint64(p)
	}
	return 0
}
func (c *cursor) skip(n int)     { c.bytes(uint64(n)) }
func (c *cursor) length() uint64 { return c.uint(c.lsz) }
func (c *cursor) left() int      { return len(c.b) - c.pos }
func (c *cursor) here() uint64   { return c.at + uint64(c.pos) }

// align skips to a multiple of n bytes from the start, or to the end.
func (c *cursor) align(n int) {
	if r := c.pos % n; r != 0 {
		c.skip(min(n-r, c.left()))
	}
}

// addr reads an address and makes it absolute. undef stays undef.
func (c *cursor) addr() uint64 {
	v := c.uint(c.osz)
	if v == undef>>(64-8*c.osz) {
		return undef
	}
	if v+c.base < v {
		c.bad = true
		return undef
	}
	return v + c.base
}

// sig reads a signature and reports whether it is s.
func (c *cursor) sig(s string) bool { return string(c.bytes(uint64(len(s)))) == s }

// cstring reads the bytes up to and including a NUL, and returns them without
// it.
func (c *cursor) cstring() string {
	for i := c.pos; i < len(c.b); i++ {
		if c.b[i] == 0 {
			s := string(c.b[c.pos:i])
			c.pos = i + 1
			return s
		}
	}
	c.bad = true
	return ""
}

// mul returns a*b, and whether the product fits.
func mul(a, b uint64) (uint64, bool) {
	if a != 0 && b > undef/a {
		return 0, false
	}
	return a * b, true
}
