package main

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cairnrun/cairn/mpi"
)

// unguarded is the guard of a run without checkpoints.
type unguarded struct{}

func (unguarded) restore(...variable) (bool, error) { return false, nil }
func (unguarded) point() error                      { return nil }

// run runs a kernel on n ranks in this process and returns rank 0's report.
// Each rank gets the guard of its number, or none.
func run(t *testing.T, name string, class byte, n int, guards []guard) (*report, error) {
	t.Helper()
	reports := make([]*report, n)
	err := mpi.Local(n, func(c *mpi.Comm) error {
		g := guard(unguarded{})
		if guards != nil {
			g = guards[c.Rank()]
		}
		r, err := kernels[name](c, class, g)
		reports[c.Rank()] = r
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, r := range reports {
		if !same(r.values, reports[0].values) || r.verified != reports[0].verified {
			t.Errorf("%s.%c: rank %d reports %v, and rank 0 %v", name, class, i, r.values, reports[0].values)
		}
	}
	return reports[0], nil
}

// same compares bits.
func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
}

func verify(t *testing.T, name string, class byte, n int) {
	t.Helper()
	r, err := run(t, name, class, n, nil)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.print(&text, name, class, n); err != nil {
		t.Fatal(err)
	}
	if !r.verified {
		t.Error(text.String())
	}
	t.Log(text.String())
}

// TestKernels_ClassS verifies each kernel of class S on 1 to 8 ranks.
func TestKernels_ClassS(t *testing.T) {
	for name := range kernels {
		for _, n := range []int{1, 2, 4, 8} {
			if name == "ep" && n > 2 {
				n++ // any number will do
			}
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) { verify(t, name, 'S', n) })
		}
	}
}

// TestKernels_ManyRanks has more ranks than processors, and grids in many small
// parts.
func TestKernels_ManyRanks(t *testing.T) {
	ranks := map[string][]int{"is": {16}, "mg": {16, 32}}
	if os.Getenv("CAIRN_LONG") != "" {
		ranks = map[string][]int{"cg": {16, 32}, "is": {16, 64}, "ft": {16, 64}, "mg": {16, 32, 64}}
	} else if testing.Short() {
		t.Skip("short")
	}
	for name, ns := range ranks {
		for _, n := range ns {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) { verify(t, name, 'S', n) })
		}
	}
}

// TestKernels_ClassesWAndA takes minutes and a few gigabytes.
func TestKernels_ClassesWAndA(t *testing.T) {
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("set CAIRN_LONG=1 to run the larger classes")
	}
	for _, class := range []byte("WA") {
		for name := range kernels {
			for _, n := range []int{1, 2, 4, 8} {
				t.Run(fmt.Sprintf("%s.%c/%d", name, class, n), func(t *testing.T) { verify(t, name, class, n) })
			}
		}
	}
}

// TestKernels_RefusedClassesAndRanks shows that a kernel refuses a class that
// it does not have, and numbers of ranks on which it cannot run.
func TestKernels_RefusedClassesAndRanks(t *testing.T) {
	for name := range kernels {
		if _, err := run(t, name, 'Q', 1, nil); err == nil || !strings.Contains(err.Error(), "class Q") {
			t.Errorf("%s.Q: %v", name, err)
		}
		if name == "ep" {
			continue
		}
		if _, err := run(t, name, 'S', 3, nil); err == nil || !strings.Contains(err.Error(), "not on 3") {
			t.Errorf("%s on 3 ranks: %v", name, err)
		}
	}
	for name, n := range map[string]int{"ft": 128} {
		if _, err := run(t, name, 'S', n, nil); err == nil || !strings.Contains(err.Error(), "ranks") {
			t.Errorf("%s on %d ranks: %v", name, n, err)
		}
	}
}

// errKilled is the error with which a rank dies in these tests.
var errKilled = errors.New("killed")

// recording is a guard that keeps what was saved at one point.
type recording struct {
	state []variable
	old   [][]byte // what restore restores; nil for a first start
	saved [][]byte
	left  int // points until one saves and kills
	all   *sync.WaitGroup
}

func (g *recording) restore(state ...variable) (bool, error) {
	g.state = state
	for i, old := range g.old {
		if err := gob.NewDecoder(bytes.NewReader(old)).Decode(state[i].v); err != nil {
			return false, fmt.Errorf("%s: %w", state[i].name, err)
		}
	}
	return g.old != nil, nil
}

func (g *recording) point() error {
	if g.left--; g.left > 0 {
		return nil
	}
	for _, v := range g.state {
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(v.v); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		g.saved = append(g.saved, b.Bytes())
	}
	g.all.Done()
	g.all.Wait() // no rank dies before all have saved
	return errKilled
}

// TestKernels_Restart kills kernels at their points, and resumes from the
// variables that they passed to restore. The results must be those of an
// undisturbed run, bit for bit.
func TestKernels_Restart(t *testing.T) {
	for name := range kernels {
		t.Run(name, func(t *testing.T) {
			const n = 4
			want, err := run(t, name, 'S', n, nil)
			if err != nil {
				t.Fatal(err)
			}
			var saved [n][][]byte
			for kills := 0; ; kills++ {
				var wg sync.WaitGroup
				guards := make([]guard, n)
				wg.Add(n)
				left := 1 // the first time before anything was computed
				if kills > 0 {
					left = 2 + kills%2 + want.iterations/8
				}
				for i := range guards {
					guards[i] = &recording{old: saved[i], left: left, all: &wg}
				}
				got, err := run(t, name, 'S', n, guards)
				if err == nil {
					if kills < 3 {
						t.Errorf("it was killed only %d times", kills)
					}
					if !got.verified || !got.resumed || !same(got.values, want.values) {
						t.Errorf("after %d kills: %v, and without: %v", kills, got.values, want.values)
					}
					return
				}
				if !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				for i, g := range guards {
					saved[i] = g.(*recording).saved
				}
			}
		})
	}
}

// TestReport_WrongValueNotVerified shows that values beyond the tolerance,
// infinities and NaN are not verified.
func TestReport_WrongValueNotVerified(t *testing.T) {
	r := &report{verified: true}
	r.compare("x", 1+1e-9, 1, 1e-8)
	if !r.verified {
		t.Error("1e-9 is over a tolerance of 1e-8")
	}
	for _, bad := range []float64{1 + 1e-7, math.NaN(), math.Inf(1), -1, 0} {
		r := &report{verified: true}
		r.compare("x", bad, 1, 1e-8)
		if r.verified {
			t.Errorf("%v passes for 1", bad)
		}
	}
}

// TestRandom_SkipsAhead shows that a generator that skips numbers continues
// like one that draws them.
func TestRandom_SkipsAhead(t *testing.T) {
	r := newRandom(seed, 0)
	for i := range 100 {
		if got, want := newRandom(seed, i).next(), r.next(); got != want {
			t.Fatalf("number %d is %v after a skip, and %v in sequence", i, got, want)
		}
	}
}

// TestFFT compares the transforms of unit vectors with their definition.
func TestFFT(t *testing.T) {
	for n := 1; n <= 64; n *= 2 {
		f := newFFT(n)
		for k := range n {
			a := make([]complex128, n)
			a[k] = 1
			f.transform(a, forward)
			for i := range a {
				sin, cos := math.Sincos(-2 * math.Pi * float64(i*k%n) / float64(n))
				if d := a[i] - complex(cos, sin); math.Hypot(real(d), imag(d)) > 1e-15*float64(n) {
					t.Fatalf("n=%d, impulse at %d: element %d is %v, not %v", n, k, i, a[i], complex(cos, sin))
				}
			}
			f.transform(a, backward)
			for i := range a {
				want := 0.0
				if i == k {
					want = float64(n)
				}
				if d := a[i] - complex(want, 0); math.Hypot(real(d), imag(d)) > 1e-14*float64(n) {
					t.Fatalf("n=%d, there and back: element %d is %v, not %v", n, i, a[i], want)
				}
			}
		}
	}
}
