// Package xxh3 computes XXH3-128 without a seed, in Go alone. It has the part
// of github.com/zeebo/xxh3 that Cairn's run time uses, and replaces it in
// programs that Cairn builds, which can rely on the standard library only. On
// processors with AVX-512, internal/mem computes digests of long inputs itself.
//
// The algorithm and the names are those of the XXH3 specification.
package xxh3

import (
	"encoding/binary"
	"math/bits"
)

// Uint128 is a digest.
type Uint128 struct{ Hi, Lo uint64 }

// Bytes returns the digest in its canonical form, the highest byte first.
func (u Uint128) Bytes() (b [16]byte) {
	binary.BigEndian.PutUint64(b[:], u.Hi)
	binary.BigEndian.PutUint64(b[8:], u.Lo)
	return b
}

const (
	prime32x1 = 0x9E3779B1
	prime32x2 = 0x85EBCA77
	prime32x3 = 0xC2B2AE3D
	prime64x1 = 0x9E3779B185EBCA87
	prime64x2 = 0xC2B2AE3D27D4EB4F
	prime64x3 = 0x165667B19E3779F9
	prime64x4 = 0x85EBCA77C2B2AE63
	prime64x5 = 0x27D4EB2F165667C5
	primeMx1  = 0x165667919E3779F9
	primeMx2  = 0x9FB21C651E98DF25

	stripeLen  = 64
	perBlock   = 16 // stripes
	blockLen   = stripeLen * perBlock
	secretSize = 192
)

// words is the secret as little-endian numbers.
var words = [secretSize / 8]uint64{
	0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
	0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
	0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
	0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
	0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
	0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
}

// secret is the same as bytes, for keys that do not begin at a word.
var secret = func() (s [secretSize]byte) {
	for i, w := range words {
		binary.LittleEndian.PutUint64(s[8*i:], w)
	}
	return s
}()

func le64(p []byte) uint64 { return binary.LittleEndian.Uint64(p) }
func le32(p []byte) uint32 { return binary.LittleEndian.Uint32(p) }

// fold multiplies to 128 bits and folds them to 64.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func avalanche(h uint64) uint64 {
	h ^= h >> 37
	h *= primeMx1
	return h ^ h>>32
}

func avalanche64(h uint64) uint64 {
	h ^= h >> 33
	h *= prime64x2
	h ^= h >> 29
	h *= prime64x3
	return h ^ h>>32
}

// Hash128 returns the XXH3-128 of p.
func Hash128(p []byte) Uint128 {
	switch n := len(p); {
	case n > 240:
		return long(p)
	case n > 128:
		return to240(p)
	case n > 16:
		return to128(p)
	case n > 8:
		return to16(p)
	case n >= 4:
		return to8(p)
	case n > 0:
		return to3(p)
	}
	return Uint128{Lo: avalanche64(words[8] ^ words[9]), Hi: avalanche64(words[10] ^ words[11])}
}

func to3(p []byte) Uint128 {
	n := len(p)
	lo := uint32(p[0])<<16 | uint32(p[n>>1])<<24 | uint32(p[n-1]) | uint32(n)<<8
	hi := bits.RotateLeft32(bits.ReverseBytes32(lo), 13)
	return Uint128{
		Lo: avalanche64(uint64(lo) ^ uint64(le32(secret[0:])^le32(secret[4:]))),
		Hi: avalanche64(uint64(hi) ^ uint64(le32(secret[8:])^le32(secret[12:]))),
	}
}

func to8(p []byte) Uint128 {
	n := len(p)
	in := uint64(le32(p)) + uint64(le32(p[n-4:]))<<32
	hi, lo := bits.Mul64(in^words[2]^words[3], prime64x1+uint64(n)<<2)
	hi += lo << 1
	lo ^= hi >> 3
	lo ^= lo >> 35
	lo *= primeMx2
	return Uint128{Lo: lo ^ lo>>28, Hi: avalanche(hi)}
}

func to16(p []byte) Uint128 {
	n := len(p)
	inLo, inHi := le64(p), le64(p[n-8:])
	hi, lo := bits.Mul64(inLo^inHi^words[4]^words[5], prime64x1)
	lo += uint64(n-1) << 54
	inHi ^= words[6] ^ words[7]
	hi += inHi + uint64(uint32(inHi))*(prime32x2-1)
	lo ^= bits.ReverseBytes64(hi)
	h, l := bits.Mul64(lo, prime64x2)
	h += hi * prime64x2
	return Uint128{Lo: avalanche(l), Hi: avalanche(h)}
}

// pair is the state for inputs of middle length.
type pair struct{ lo, hi uint64 }

// mix adds 16 bytes of a and 16 of b, with 32 bytes of key.
func (s *pair) mix(a, b, key []byte) {
	_, _, _ = a[15], b[15], key[31]
	a0, a1, b0, b1 := le64(a), le64(a[8:]), le64(b), le64(b[8:])
	s.lo += fold(a0^le64(key), a1^le64(key[8:]))
	s.lo ^= b0 + b1
	s.hi += fold(b0^le64(key[16:]), b1^le64(key[24:]))
	s.hi ^= a0 + a1
}

func (s *pair) digest(n int) Uint128 {
	return Uint128{
		Lo: avalanche(s.lo + s.hi),
		Hi: -avalanche(s.lo*prime64x1 + s.hi*prime64x4 + uint64(n)*prime64x2),
	}
}

func to128(p []byte) Uint128 {
	n := len(p)
	s := pair{lo: uint64(n) * prime64x1}
	for i := (n - 1) / 32; i >= 0; i-- {
		s.mix(p[16*i:], p[n-16*i-16:], secret[32*i:])
	}
	return s.digest(n)
}

func to240(p []byte) Uint128 {
	n := len(p)
	s := pair{lo: uint64(n) * prime64x1}
	for i := 0; i < 128; i += 32 {
		s.mix(p[i:], p[i+16:], secret[i:])
	}
	s.lo, s.hi = avalanche(s.lo), avalanche(s.hi)
	for i := 128; i+32 <= n; i += 32 {
		s.mix(p[i:], p[i+16:], secret[i-128+3:])
	}
	s.mix(p[n-16:], p[n-32:], secret[136-17-16:])
	return s.digest(n)
}

type accumulators [8]uint64

// stripes adds whole stripes. The key of the first is the secret's first 8
// words; each further key begins a word later.
func (acc *accumulators) stripes(p []byte) {
	a0, a1, a2, a3, a4, a5, a6, a7 := acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7]
	for k := 0; len(p) >= stripeLen && k <= len(words)-8; k++ {
		key := (*[8]uint64)(words[k:])
		in := (*[stripeLen]byte)(p)
		d0, d1 := le64(in[0:]), le64(in[8:])
		k0, k1 := d0^key[0], d1^key[1]
		a0 += d1 + (k0&0xffffffff)*(k0>>32)
		a1 += d0 + (k1&0xffffffff)*(k1>>32)
		d2, d3 := le64(in[16:]), le64(in[24:])
		k2, k3 := d2^key[2], d3^key[3]
		a2 += d3 + (k2&0xffffffff)*(k2>>32)
		a3 += d2 + (k3&0xffffffff)*(k3>>32)
		d4, d5 := le64(in[32:]), le64(in[40:])
		k4, k5 := d4^key[4], d5^key[5]
		a4 += d5 + (k4&0xffffffff)*(k4>>32)
		a5 += d4 + (k5&0xffffffff)*(k5>>32)
		d6, d7 := le64(in[48:]), le64(in[56:])
		k6, k7 := d6^key[6], d7^key[7]
		a6 += d7 + (k6&0xffffffff)*(k6>>32)
		a7 += d6 + (k7&0xffffffff)*(k7>>32)
		p = p[stripeLen:]
	}
	*acc = accumulators{a0, a1, a2, a3, a4, a5, a6, a7}
}

// last adds the last stripe, whose key does not begin at a word.
func (acc *accumulators) last(p []byte) {
	const at = secretSize - stripeLen - 7
	for i := range acc {
		d := le64(p[8*i:])
		k := d ^ le64(secret[at+8*i:])
		acc[i^1] += d
		acc[i] += (k & 0xffffffff) * (k >> 32)
	}
}

func (acc *accumulators) scramble() {
	key := (*[8]uint64)(words[len(words)-8:])
	for i, a := range acc {
		acc[i] = (a ^ a>>47 ^ key[i]) * prime32x1
	}
}

func (acc *accumulators) merge(key []byte, sum uint64) uint64 {
	for i := 0; i < 8; i += 2 {
		sum += fold(acc[i]^le64(key[8*i:]), acc[i+1]^le64(key[8*i+8:]))
	}
	return avalanche(sum)
}

func long(p []byte) Uint128 {
	acc := accumulators{prime32x3, prime64x1, prime64x2, prime64x3, prime64x4, prime32x2, prime64x5, prime32x1}
	rest := p
	for len(rest) > blockLen {
		acc.stripes(rest[:blockLen])
		acc.scramble()
		rest = rest[blockLen:]
	}
	acc.stripes(rest[:(len(rest)-1)/stripeLen*stripeLen])
	acc.last(p[len(p)-stripeLen:])
	n := uint64(len(p))
	return Uint128{
		Lo: acc.merge(secret[11:], n*prime64x1),
		Hi: acc.merge(secret[secretSize-stripeLen-11:], ^(n * prime64x2)),
	}
}
