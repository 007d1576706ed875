package migrate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
)

// migration is the migration of a state in rounds.
type migration struct {
	t    testing.TB
	g    *Source
	done <-chan received
	fits atomic.Int64 // images that the destination looked at
}

func newMigration(t testing.TB, o Options, to []graph.Root) *migration {
	a, b := tcpPair(t)
	m := &migration{t: t, g: NewSource(a, o)}
	t.Cleanup(func() { m.g.Close() })
	m.done = receive(b, o, Receiver{Fit: func(*graph.Image) ([]graph.Root, *graph.Env, []string, error) {
		m.fits.Add(1)
		return to, nil, nil, nil
	}})
	return m
}

func (m *migration) precopy(from []graph.Root) int64 {
	m.t.Helper()
	if err := m.g.Precopy(collect(m.t, from)); err != nil {
		m.t.Fatal(err)
	}
	n, err := m.g.Wait(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

func (m *migration) finish(from []graph.Root) Stats {
	m.t.Helper()
	s, err := m.g.Finish(ctx, collect(m.t, from), nil, ckpt.Note{}, nil)
	if err != nil {
		m.t.Fatal(err, (<-m.done).err)
	}
	if r := <-m.done; r.err != nil {
		m.t.Fatal(r.err)
	}
	return s
}

// TestPrecopy makes precopy rounds, and then sends what has changed.
func TestPrecopy(t *testing.T) {
	v, w := newThings(), new(things)
	m := newMigration(t, Options{BatchSize: 1 << 20}, w.roots())
	first := m.precopy(v.roots())
	if first < 8<<20 {
		t.Errorf("the first round sent %d bytes", first)
	}
	if n := m.precopy(v.roots()); n > 64<<10 {
		t.Errorf("nothing was changed, and %d bytes were sent", n)
	}
	v.Rows[4][7]++
	v.Values.Grid[1000] = 0
	v.Values.Table["a"] = 5
	second := m.precopy(v.roots())
	if second > 1<<20 {
		t.Errorf("three values were changed, and %d bytes were sent", second)
	}
	v.Rows[5][7]++
	s := m.finish(v.roots())
	v.check(t, w)
	if s.Rounds != 3 || s.Precopied < first+second || s.Precopied > first+second+64<<10 || s.Sent > 1<<20 {
		t.Errorf("%+v", s)
	}
	if n := m.fits.Load(); n != 1 {
		t.Errorf("the destination looked at %d images, which were all alike", n)
	}
}

// TestPrecopy_LayoutChanges changes variables between rounds.
func TestPrecopy_LayoutChanges(t *testing.T) {
	type state struct {
		Grown, Kept, Shared []float64
		Own                 []float64
		Texts               []string
		Table               map[string][]int
		Any                 any
		Names               []*ckpttest.Values
	}
	v, w := new(state), &state{Own: make([]float64, 90_000)}
	roots := func(v *state) []graph.Root {
		return []graph.Root{{Name: "grown", Ptr: &v.Grown}, {Name: "kept", Ptr: &v.Kept}, {Name: "shared", Ptr: &v.Shared}, {Name: "own", Ptr: &v.Own},
			{Name: "texts", Ptr: &v.Texts}, {Name: "table", Ptr: &v.Table}, {Name: "any", Ptr: &v.Any}, {Name: "names", Ptr: &v.Names}}
	}
	fill := func(n int) []float64 {
		p := make([]float64, n)
		for i := range p {
			p[i] = rand.Float64()
		}
		return p
	}
	v.Grown, v.Kept, v.Own = fill(100_000), fill(500_000), fill(90_000)
	v.Table = map[string][]int{"a": {1}}
	m := newMigration(t, Options{BatchSize: 300_000}, roots(w))
	m.precopy(roots(v))
	for step, change := range []func(){
		func() { v.Grown = append(v.Grown, fill(50_000)...) },
		func() { v.Texts = []string{"a", "b", string(make([]byte, 100_000))} },
		func() { v.Shared = v.Grown[10:20] },
		func() { v.Any = map[int]string{1: "x"} },
		func() { v.Any = fill(30_000) },
		func() { v.Names = []*ckpttest.Values{ckpttest.Sample(10), ckpttest.Sample(20_000)} },
		func() { v.Names = v.Names[1:]; v.Grown = v.Grown[:5:5] },
		func() { v.Own = append(v.Own, 3) }, // the destination's own array does not fit any more
		func() { v.Own = v.Own[:90_000:90_000] },
		func() { v.Grown, v.Own = v.Own, v.Grown },
	} {
		change()
		if n := m.precopy(roots(v)); n > 2<<20 {
			t.Errorf("step %d: %d bytes were sent, with those that were kept", step, n)
		}
	}
	v.Table["b"] = []int{2, 3}
	s := m.finish(roots(v))
	if !reflect.DeepEqual(v, w) {
		t.Fatal("other values")
	}
	if &w.Shared[0] == &v.Shared[0] || len(w.Grown) != len(v.Grown) {
		t.Fatal("not moved")
	}
	if s.Sent > 2<<20 {
		t.Errorf("at last %d bytes were sent", s.Sent)
	}
}

// TestPrecopy_ProgramWrites changes a state while it is sent.
func TestPrecopy_ProgramWrites(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			type state struct {
				Parts [][]byte
				Whole []byte
			}
			v, w := &state{Whole: make([]byte, 1+r.IntN(4<<20))}, new(state)
			for range 1 + r.IntN(200) {
				v.Parts = append(v.Parts, make([]byte, 1+r.IntN(50_000)))
			}
			change := func(r *rand.Rand) {
				p := v.Whole
				if r.IntN(2) == 0 {
					p = v.Parts[r.IntN(len(v.Parts))]
				}
				lo := r.IntN(len(p))
				p = p[lo:min(len(p), lo+1+r.IntN(100_000))]
				if r.IntN(4) == 0 {
					clear(p)
					return
				}
				x := byte(r.Uint32())
				for i := range p {
					p[i] += x + byte(i)
				}
			}
			roots := func(v *state) []graph.Root { return []graph.Root{{Name: "v", Ptr: v}} }
			m := newMigration(t, Options{BatchSize: 1 + r.Int64N(2<<20)}, roots(w))
			for range r.IntN(4) {
				img := collect(t, roots(v))
				var stop atomic.Bool
				var wg sync.WaitGroup
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, 6))
					for !stop.Load() {
						change(r)
						runtime.Gosched()
					}
				})
				if err := m.g.Precopy(img); err != nil {
					t.Fatal(err)
				}
				if r.IntN(3) > 0 { // else Finish cancels it
					if _, err := m.g.Wait(ctx); err != nil {
						t.Fatal(err)
					}
					stop.Store(true)
					wg.Wait()
					if r.IntN(2) == 0 {
						v.Parts = append(v.Parts, bytes.Repeat([]byte{7}, r.IntN(100_000)))
					}
					continue
				}
				stop.Store(true)
				wg.Wait()
				break
			}
			m.finish(roots(v))
			if !reflect.DeepEqual(v, w) {
				t.Fatal("other values")
			}
		})
	}
}

// TestPrecopy_GivenUp closes a migration during a precopy round: the program
// continues, and the destination ends.
func TestPrecopy_GivenUp(t *testing.T) {
	v, w := newThings(), new(things)
	a, b := tcpPair(t)
	a.(*net.TCPConn).SetWriteBuffer(64 << 10) // the kernel must not take everything
	b.(*net.TCPConn).SetReadBuffer(64 << 10)
	o := Options{BatchSize: 64 << 10}
	m := &migration{t: t, g: NewSource(a, o)}
	asked, closed := make(chan struct{}), make(chan struct{})
	m.done = receive(b, o, Receiver{Fit: func(*graph.Image) ([]graph.Root, *graph.Env, []string, error) {
		close(asked)
		<-closed // the round cannot end before
		return w.roots(), nil, nil, nil
	}})
	if err := m.g.Precopy(collect(t, v.roots())); err != nil {
		t.Fatal(err)
	}
	<-asked
	m.g.Close()
	close(closed)
	if r := <-m.done; r.err == nil {
		t.Error("the destination does not know that the source has given up")
	}
	if _, err := m.g.Wait(ctx); err == nil {
		t.Error("a round that was given up has ended well")
	}
	if err := m.g.Precopy(collect(t, v.roots())); err == nil {
		t.Error("a round begins on a closed connection")
	}
}
