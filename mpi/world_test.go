package mpi_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/mpi"
)

// world is a way to get n ranks and run a body on each. It returns the errors
// of the bodies, joined.
type world struct {
	name string
	run  func(n int, body func(c *mpi.Comm) error) error
}

var worlds = []world{{"local", mpi.Local}}

// scene is a test that all ranks of a world execute. A body does not depend on
// where it runs: it has no testing.T, and shares nothing with other ranks.
type scene struct {
	name  string
	sizes []int
	body  func(c *mpi.Comm) error
}

// upTo returns the sizes from 1 to n.
func upTo(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i + 1
	}
	return s
}

func TestMessages(t *testing.T)    { play(t, messageScenes) }
func TestRequests(t *testing.T)    { play(t, requestScenes) }
func TestComms(t *testing.T)       { play(t, commScenes) }
func TestCollectives(t *testing.T) { play(t, collectiveScenes) }
func TestReductions(t *testing.T)  { play(t, reductionScenes) }

func play(t *testing.T, scenes []scene) {
	for _, w := range worlds {
		for _, s := range scenes {
			t.Run(w.name+"/"+s.name, func(t *testing.T) {
				for _, n := range s.sizes {
					err := w.run(n, func(c *mpi.Comm) error {
						if c.Size() != n {
							return fmt.Errorf("world of %d ranks, want %d", c.Size(), n)
						}
						if err := s.body(c); err != nil {
							return fmt.Errorf("rank %d of %d: %w", c.Rank(), n, err)
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// steps runs functions one after the other until one fails, and names it.
func steps(names string, fs ...func() error) error {
	for i, f := range fs {
		if err := f(); err != nil {
			return fmt.Errorf("%s, step %d: %w", names, i+1, err)
		}
	}
	return nil
}

// dice returns a generator that depends on the arguments alone, so that all
// ranks can draw the same numbers.
func dice(seeds ...int) *rand.Rand {
	var b []byte
	for _, s := range seeds {
		b = binary.LittleEndian.AppendUint64(b, uint64(s))
	}
	var h [2]uint64
	for i, x := range b {
		h[i%2] = (h[i%2] ^ uint64(x)) * 0x100000001b3
	}
	return rand.New(rand.NewPCG(h[0], h[1]))
}

// lag makes ranks reach the next step at different times.
func lag(r *rand.Rand) {
	for range r.IntN(4) * r.IntN(100) {
		runtime.Gosched()
	}
}

// pattern returns a message's content, which depends on its sender and its
// number.
func pattern(n int, seeds ...int) []byte {
	b := make([]byte, n)
	r := dice(append(seeds, n)...)
	i := 0
	for ; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	for ; i < n; i++ {
		b[i] = byte(r.Uint32())
	}
	return b
}

// lengths are sizes of messages that are sent in different ways: eager,
// announced, in pieces.
var lengths = []int{0, 1, 7, 8, 100, 1000, 4095, 4096, 4097, 30000, 65536, 65537, 300001}

func anyLength(r *rand.Rand) int {
	if r.IntN(3) > 0 {
		return r.IntN(600)
	}
	return lengths[r.IntN(len(lengths))]
}

func want[T any](what string, got, want T) error {
	if reflect.DeepEqual(got, want) {
		return nil
	}
	if a, b := fmt.Sprint(got), fmt.Sprint(want); len(a)+len(b) < 400 {
		return fmt.Errorf("%s is %s, want %s", what, a, b)
	}
	return fmt.Errorf("%s is not what it should be", what)
}

// wantSlice compares long slices, and reports the first difference.
func wantSlice[T comparable](what string, got, want []T) error {
	if slices.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s[%d] of %d is %v, want %v", what, i, len(got), got[i], want[i])
		}
	}
	return nil
}

func wantErr(what string, err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return fmt.Errorf("%s: error is %v, want %v", what, err, target)
}
