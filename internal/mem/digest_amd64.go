package mem

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/cpu"
)

var hasAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL

//go:noescape
func blocksAVX512(acc *[8]uint64, p *byte, n int, secret *byte)

//go:noescape
func stripesAVX512(acc *[8]uint64, p *byte, n int, secret *byte)

// Constants of the XXH3 specification.
const (
	prime32x1 = 0x9E3779B1
	prime32x2 = 0x85EBCA77
	prime32x3 = 0xC2B2AE3D
	prime64x1 = 0x9E3779B185EBCA87
	prime64x2 = 0xC2B2AE3D27D4EB4F
	prime64x3 = 0x165667B19E3779F9
	prime64x4 = 0x85EBCA77C2B2AE63
	prime64x5 = 0x27D4EB2F165667C5
)

var secret = func() (s [192]byte) {
	for i, w := range [...]uint64{
		0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
		0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
		0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
		0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
		0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
		0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
	} {
		binary.LittleEndian.PutUint64(s[8*i:], w)
	}
	return s
}()

// digest returns the XXH3-128 of more than 1024 bytes.
func digest(p []byte) xxh3.Uint128 {
	acc := [8]uint64{prime32x3, prime64x1, prime64x2, prime64x3, prime64x4, prime32x2, prime64x5, prime32x1}
	n := (len(p) - 1) / 1024
	blocksAVX512(&acc, &p[0], n, &secret[0])
	if rest := p[n*1024:]; len(rest) > 64 {
		stripesAVX512(&acc, &rest[0], (len(rest)-1)/64, &secret[0])
	}
	stripesAVX512(&acc, &p[len(p)-64], 1, &secret[192-64-7])
	size := uint64(len(p))
	return xxh3.Uint128{
		Lo: merge(&acc, secret[11:], size*prime64x1),
		Hi: merge(&acc, secret[192-64-11:], ^(size * prime64x2)),
	}
}

func merge(acc *[8]uint64, key []byte, sum uint64) uint64 {
	for i := 0; i < 8; i += 2 {
		hi, lo := bits.Mul64(acc[i]^binary.LittleEndian.Uint64(key[8*i:]), acc[i+1]^binary.LittleEndian.Uint64(key[8*i+8:]))
		sum += hi ^ lo
	}
	sum ^= sum >> 37
	sum *= 0x165667919E3779F9
	return sum ^ sum>>32
}
