package mem

import "github.com/zeebo/xxh3"

// Digest returns the XXH3-128 of p. It equals xxh3.Hash128, and is faster on
// data that is not in a cache.
func Digest(p []byte) xxh3.Uint128 {
	if len(p) < 4096 || !hasAVX512 {
		return xxh3.Hash128(p)
	}
	return digest(p)
}

// ZeroDigests caches the digests of blocks of zeros, by their length.
type ZeroDigests map[int]xxh3.Uint128

// Of returns the digest of n zeros.
func (z ZeroDigests) Of(n int) xxh3.Uint128 {
	d, ok := z[n]
	if !ok {
		d = Digest(make([]byte, n))
		z[n] = d
	}
	return d
}
