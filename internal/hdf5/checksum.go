package hdf5

import (
	"encoding/binary"
	"math/bits"
)

// lookup3 is Bob Jenkins's hash with seed 0: the checksum of all version 2
// metadata.
func lookup3(p []byte) uint32 {
	a := 0xdeadbeef + uint32(len(p))
	b, c := a, a
	for len(p) > 12 {
		a += binary.LittleEndian.Uint32(p)
		b += binary.LittleEndian.Uint32(p[4:])
		c += binary.LittleEndian.Uint32(p[8:])
		a = a - c ^ bits.RotateLeft32(c, 4)
		c += b
		b = b - a ^ bits.RotateLeft32(a, 6)
		a += c
		c = c - b ^ bits.RotateLeft32(b, 8)
		b += a
		a = a - c ^ bits.RotateLeft32(c, 16)
		c += b
		b = b - a ^ bits.RotateLeft32(a, 19)
		a += c
		c = c - b ^ bits.RotateLeft32(b, 4)
		b += a
		p = p[12:]
	}
	if len(p) == 0 {
		return c
	}
	var last [12]byte
	copy(last[:], p)
	a += binary.LittleEndian.Uint32(last[:])
	b += binary.LittleEndian.Uint32(last[4:])
	c += binary.LittleEndian.Uint32(last[8:])
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return c
}

// fletcher32 is the checksum of the filter with that name. It sums big-endian
// 16-bit words; an odd last byte is the high half of its word.
func fletcher32(p []byte) uint32 {
	var s1, s2 uint32
	for len(p) > 1 {
		n := min(len(p)/2, 360) // the sums cannot overflow for so many words
		for ; n > 0; n-- {
			s1 += uint32(p[0])<<8 | uint32(p[1])
			s2 += s1
			p = p[2:]
		}
		s1 = s1&0xffff + s1>>16
		s2 = s2&0xffff + s2>>16
	}
	if len(p) == 1 {
		s1 += uint32(p[0]) << 8
		s2 += s1
		s1 = s1&0xffff + s1>>16
		s2 = s2&0xffff + s2>>16
	}
	s1 = s1&0xffff + s1>>16
	s2 = s2&0xffff + s2>>16
	return s2<<16 | s1
}
