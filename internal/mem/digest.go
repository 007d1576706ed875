package mem

import "github.com/zeebo/xxh3"

// Digest returns the XXH3-128 of p. It equals xxh3.Hash128, and is faster on
// data that comes from memory rather than from a cache.
func Digest(p []byte) xxh3.Uint128 {
	if len(p) < 4096 || !hasAVX512 {
		return xxh3.Hash128(p)
	}
	return digest(p)
}
