package main

// The random numbers of the benchmarks: x ← 5^13·x mod 2^46; x/2^46 is a number
// in (0, 1). Because 2^46 divides 2^64, the product of two 64-bit words has the
// right low bits.
const (
	multiplier = 1220703125 // 5^13
	modulus    = 1 << 46
	seed       = 314159265 // of all kernels but EP
)

// random is a position in the sequence of random numbers.
type random struct{ x uint64 }

// newRandom returns the sequence that begins at seed, after its first skip
// numbers.
func newRandom(seed, skip int) *random {
	x := uint64(seed)
	for a := uint64(multiplier); skip > 0; skip /= 2 {
		if skip%2 == 1 {
			x = x * a % modulus
		}
		a = a * a % modulus
	}
	return &random{x}
}

func (r *random) next() float64 {
	r.x = r.x * multiplier % modulus
	return float64(r.x) / modulus
}
