package main

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cairnrun/cairn/mpi"
)

const testBytes = 256

func noPoint() error { return nil }

// TestRing sends the token around rings of several sizes.
func TestRing(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8} {
		var out strings.Builder
		err := mpi.Local(n, func(c *mpi.Comm) error {
			w := io.Discard
			if c.Rank() == 0 {
				w = &out
			}
			return newRing(testBytes).run(c, 100, 10, w, noPoint)
		})
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		sum := expected(n, testBytes/8, 100)[atSum]
		want := fmt.Sprintf("ring ok ranks=%d steps=100 bytes=%d sum=%016x", n, testBytes, sum)
		if len(lines) != 11 || lines[10] != want {
			t.Errorf("%d ranks: not ten lines and %q:\n%s", n, want, out.String())
		}
		for i, l := range lines[:len(lines)-1] {
			var step int
			var mean, least, most float64
			if _, err := fmt.Sscan(l, &step, &mean, &least, &most); err != nil || step != 10*(i+1) || least > mean || mean > most {
				t.Errorf("%d ranks: line %q", n, l)
			}
		}
	}
}

// TestRing_Routes checks the line that says which transports the ring uses.
func TestRing_Routes(t *testing.T) {
	for n, want := range map[int]string{1: "# from step 7 by self\n", 3: "# from step 7 by mem mem mem\n"} {
		var out strings.Builder
		err := mpi.Local(n, func(c *mpi.Comm) error {
			r := newRing(testBytes)
			r.Step = 7
			return r.routes(c, &out)
		})
		if err != nil || out.String() != want {
			t.Errorf("%d ranks: %q instead of %q, %v", n, out.String(), want, err)
		}
	}
}

func TestRing_NoSteps(t *testing.T) {
	err := mpi.Local(2, func(c *mpi.Comm) error { return newRing(testBytes).run(c, 0, 1, io.Discard, noPoint) })
	if err != nil {
		t.Fatal(err)
	}
}

// TestRing_TamperingNoticed has rank 1 do something wrong to a message, which
// must be noticed.
func TestRing_TamperingNoticed(t *testing.T) {
	const n, steps, bad = 4, 20, 13
	for name, tamper := range map[string]func(c *mpi.Comm, token []uint64) error{
		"first word":      func(_ *mpi.Comm, w []uint64) error { w[header]++; return nil },
		"last word":       func(_ *mpi.Comm, w []uint64) error { w[len(w)-1] ^= 1 << 63; return nil },
		"words exchanged": func(_ *mpi.Comm, w []uint64) error { w[header], w[header+1] = w[header+1], w[header]; return nil },
		"checksum":        func(_ *mpi.Comm, w []uint64) error { w[atSum] ^= 1; return nil },
		"step":            func(_ *mpi.Comm, w []uint64) error { w[atStep]--; return nil },
		"hops":            func(_ *mpi.Comm, w []uint64) error { w[atHops]++; return nil },
		"doubled":         func(c *mpi.Comm, w []uint64) error { return mpi.Send(c, w, 2, tag) },
		"an old one": func(_ *mpi.Comm, w []uint64) error {
			w[atStep]--
			w[atHops] -= n
			return nil
		},
		"nothing": nil,
	} {
		err := mpi.Local(n, func(c *mpi.Comm) error {
			r := newRing(testBytes)
			if c.Rank() != 1 {
				return r.run(c, steps, 0, io.Discard, noPoint)
			}
			for ; r.Step < steps; r.Step++ {
				if _, err := mpi.Recv(c, r.Token, 0, tag); err != nil {
					return err
				}
				if err := r.accept(1, n); err != nil {
					return err
				}
				if r.Step == bad && tamper != nil {
					if err := tamper(c, r.Token); err != nil {
						return err
					}
				}
				if err := mpi.Send(c, r.Token, 2, tag); err != nil {
					return err
				}
			}
			return r.verdict(c, io.Discard)
		})
		if noticed := errors.Is(err, errAltered); noticed != (tamper != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRing_Restart kills the ranks at a point and resumes from their state.
func TestRing_Restart(t *testing.T) {
	const n, steps = 3, 20
	killed := errors.New("killed")
	for at := range steps {
		var saved [n]bytes.Buffer
		var all sync.WaitGroup
		all.Add(n)
		err := mpi.Local(n, func(c *mpi.Comm) error {
			r := newRing(testBytes)
			return r.run(c, steps, 0, io.Discard, func() error {
				if r.Step < at {
					return nil
				}
				err := gob.NewEncoder(&saved[c.Rank()]).Encode(r)
				all.Done()
				all.Wait() // none dies before all have saved
				return errors.Join(killed, err)
			})
		})
		if !errors.Is(err, killed) {
			t.Fatal(err)
		}
		err = mpi.Local(n, func(c *mpi.Comm) error {
			var r ring
			if err := gob.NewDecoder(&saved[c.Rank()]).Decode(&r); err != nil {
				return err
			}
			err := r.run(c, steps, 0, io.Discard, noPoint)
			if c.Rank() == 0 && !slices.Equal(r.Token, expected(n, testBytes/8, steps)) {
				t.Errorf("killed at step %d, the message is another", at)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
