package resume

import (
	"math/rand"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
)

// The generator behind the top-level functions of math/rand cannot be reached
// from outside. A program that seeds it expects the same numbers again, so it
// gets this one in its place.
var (
	random     *rand.Rand
	randomLock sync.Mutex
	randomNow  atomic.Pointer[rand.Rand] // random, or nil if random has to be read under the lock
)

// Seed stands for rand.Seed, which does nothing in programs of Go 1.24 and
// later.
func Seed(seed int64) {
	if setting("randseednop") != "0" {
		return
	}
	randomLock.Lock()
	defer randomLock.Unlock()
	defer func() { randomNow.Store(random) }()
	random = rand.New(&lockedSource{src: rand.NewSource(seed).(rand.Source64)})
}

// Rand is the generator whose methods stand for the top-level functions of
// math/rand, in a program that calls rand.Seed, or whose settings say that the
// generator begins with the seed 1. The numbers are the same.
func Rand() *rand.Rand {
	if r := randomNow.Load(); r != nil {
		return r
	}
	randomLock.Lock()
	defer randomLock.Unlock()
	if random == nil {
		seed := int64(1)
		if setting("randautoseed") != "0" {
			seed = rand.Int63()
		}
		random = rand.New(&lockedSource{src: rand.NewSource(seed).(rand.Source64)})
	}
	randomNow.Store(random)
	return random
}

// usesGlobalRand says that the program uses the top-level functions of
// math/rand themselves.
var usesGlobalRand bool

// UsesGlobalRand is called by a program that uses the top-level functions of
// math/rand, built with settings by which their numbers differ in each run.
func UsesGlobalRand() { usesGlobalRand = true }

// checkRand returns why a program cannot run with checkpoints; "": it can. The
// top-level functions of math/rand would begin again after a restart.
func checkRand() string {
	if !usesGlobalRand || setting("randautoseed") != "0" {
		return ""
	}
	return "the program was built without GODEBUG=randautoseed=0, so the numbers of math/rand would begin again after a restart; " +
		"build it with a line //go:debug randautoseed=0 in its main package, or let it use a generator of its own (rand.New)"
}

// setting returns a setting of GODEBUG, from the environment or built into the
// program.
func setting(name string) string {
	value := ""
	for _, list := range []string{builtSettings(), os.Getenv("GODEBUG")} {
		for s := range strings.SplitSeq(list, ",") {
			if k, v, ok := strings.Cut(s, "="); ok && k == name {
				value = v
			}
		}
	}
	return value
}

// builtSettings are the settings that the program was built with.
var builtSettings = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "DefaultGODEBUG" {
				return s.Value
			}
		}
	}
	return ""
})

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
