// Package key has keys.
package key

// Key is a key.
type Key struct{ high, low uint32 }

// Next returns the key after one.
func (k Key) Next(n int) Key {
	return Key{k.high + 1, k.low*1664525 + k.high + uint32(n)}
}

// Low is its lower half.
func (k Key) Low() uint32 { return k.low % 1000 }
