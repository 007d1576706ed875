package resume

import (
	"math/rand"
	"sync"
	"sync/atomic"
)

// The generator behind the top-level functions of math/rand can't be reached
// from outside. A program that seeds it means to get the same numbers again,
// so it is given this one in its place.
var (
	random     *rand.Rand
	randomLock sync.Mutex
	randomNow  atomic.Pointer[rand.Rand] // random, or nil if that has to be looked at
)

// Seed stands for rand.Seed.
func Seed(seed int64) {
	randomLock.Lock()
	defer randomLock.Unlock()
	defer func() { randomNow.Store(random) }()
	random = rand.New(&lockedSource{src: rand.NewSource(seed).(rand.Source64)})
}

// Rand is the generator whose methods stand for the top-level functions of
// math/rand, in a program that calls rand.Seed. The numbers are the same.
func Rand() *rand.Rand {
	if r := randomNow.Load(); r != nil {
		return r
	}
	randomLock.Lock()
	defer randomLock.Unlock()
	if random == nil {
		random = rand.New(&lockedSource{src: rand.NewSource(rand.Int63()).(rand.Source64)})
	}
	randomNow.Store(random)
	return random
}

// Seeded says that the program counts on the generator's being seeded with 1, as
// it was before Go 1.20.
func Seeded() {
	randomLock.Lock()
	defer randomLock.Unlock()
	if random == nil {
		random = rand.New(&lockedSource{src: rand.NewSource(1).(rand.Source64)})
	}
}

// lockedSource may be used by several goroutines.
type lockedSource struct {
	mu  sync.Mutex
	src rand.Source64
}

func (s *lockedSource) Int63() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.src.Int63()
}

func (s *lockedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.src.Uint64()
}

func (s *lockedSource) Seed(seed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.src.Seed(seed)
}
