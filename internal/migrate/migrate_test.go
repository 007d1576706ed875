package migrate

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
)

var ctx = context.Background()

// tcpPair returns the ends of a connection.
func tcpPair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func pipePair(testing.TB) (a, b net.Conn) { return net.Pipe() }

// fit accepts any image into roots.
func fit(roots []graph.Root) Receiver {
	return Receiver{Fit: func(*graph.Image) ([]graph.Root, *graph.Env, []string, error) { return roots, nil, nil, nil }}
}

func collect(t testing.TB, roots []graph.Root) *graph.Image {
	t.Helper()
	img, err := graph.Collect(roots, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

type received struct {
	*Received
	err error
}

// receive receives a state in the background.
func receive(conn net.Conn, o Options, l Receiver) <-chan received {
	out := make(chan received, 1)
	go func() {
		got, err := Receive(ctx, conn, o, l)
		out <- received{got, err}
	}()
	return out
}

// migrate sends roots of one state to those of another, as they are.
func migrate(t testing.TB, a, b net.Conn, o Options, from, to []graph.Root) Stats {
	t.Helper()
	g := NewSource(a, o)
	defer g.Close()
	done := receive(b, o, fit(to))
	note := ckpt.Note{Points: 12, Reason: "move", Sent: []uint64{1, 2}, Received: []uint64{3, 4}}
	files := []ckpt.FileEntry{{ID: 3, Path: "out.txt", Mode: "r", Offset: 5, Size: 9}}
	stats, err := g.Finish(ctx, collect(t, from), files, note, []byte("extra"))
	if err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}
	if !reflect.DeepEqual(got.Note, note) || !reflect.DeepEqual(got.Files, files) || string(got.Extra) != "extra" {
		t.Fatalf("with the values came %+v, %+v, %q", got.Note, got.Files, got.Extra)
	}
	if stats.State != got.Stats.State || stats.Zero != got.Stats.Zero {
		t.Fatalf("the source says %+v, the destination %+v", stats, got.Stats)
	}
	return stats
}

// things has a value of each kind.
type things struct {
	Values ckpttest.Values
	Any    []any
	Rows   [][]float64
	Alias  []float64 // a part of Rows[1]
	Point  *float64  // into Rows[2]
	Maps   map[string]map[int]string
	Self   map[string]*things
	Time   time.Time
	Array  [3][4]uint16
	Bools  []bool
	Text   string
	Part   string // of Text
	Big    []struct {
		A [300 << 10]float32
		B uint8
	}
	Far   []bulky
	Zeros []byte
	Empty []int
	None  struct{}
	Tree  *twig
}

// bulky elements are larger than a block, and have pointers.
type bulky struct {
	P *int
	A [200 << 10]int64
}

type twig struct {
	L, R *twig
	V    int32
	Name string
}

func tree(depth int, r *rand.Rand) *twig {
	if depth == 0 {
		return nil
	}
	return &twig{tree(depth-1, r), tree(depth-1, r), r.Int32(), strings.Repeat("x", r.IntN(5))}
}

func newThings() *things {
	r := rand.New(rand.NewPCG(3, 1))
	v := &things{Values: *ckpttest.Sample(300_000), Time: time.Date(2020, 2, 3, 4, 5, 6, 7, time.UTC), Array: [3][4]uint16{{1, 2}, {}, {9}}, Text: strings.Repeat("text ", 30_000)}
	v.Part = v.Text[7:99]
	for range 20 {
		row := make([]float64, 30_000)
		for k := range row {
			row[k] = r.Float64()
		}
		v.Rows = append(v.Rows, row)
	}
	v.Alias, v.Point = v.Rows[1][5:70:80], &v.Rows[2][77]
	v.Any = []any{1, "two", 3.5, nil, &v.Rows[3][9], map[string]int{"k": 2}, []int{1, 2}}
	v.Maps = map[string]map[int]string{"a": {1: "x", 2: "y"}, "b": nil, "": {}}
	v.Self = map[string]*things{"self": v}
	v.Bools = []bool{true, false, true}
	v.Big = make([]struct {
		A [300 << 10]float32
		B uint8
	}, 2)
	v.Big[1].A[9], v.Big[0].B = 3, 4
	n := 5
	v.Far = make([]bulky, 3)
	v.Far[2].P, v.Far[2].A[100<<10], v.Far[0].P = &n, 8, &n
	v.Zeros = make([]byte, 3<<20)
	v.Zeros[1<<20] = 1
	v.Tree = tree(14, r)
	return v
}

func (v *things) roots() []graph.Root {
	return []graph.Root{{Name: "v", Ptr: v}}
}

// check compares values, and looks whether what was shared still is.
func (v *things) check(t testing.TB, w *things) {
	t.Helper()
	if !reflect.DeepEqual(v, w) {
		t.Fatal("other values")
	}
	if &w.Alias[0] != &w.Rows[1][5] || w.Point != &w.Rows[2][77] || w.Any[4] != &w.Rows[3][9] || w.Self["self"] != w || w.Far[0].P != w.Far[2].P || cap(w.Alias) != 75 {
		t.Fatal("what was shared is not any more")
	}
}

// TestMigrate migrates states over connections of all kinds, with batches of
// all sizes.
func TestMigrate(t *testing.T) {
	for _, c := range []struct {
		name string
		pair func(testing.TB) (a, b net.Conn)
		o    Options
	}{
		{"tcp", tcpPair, Options{}},
		{"tcp, small chunks", tcpPair, Options{BatchSize: 100_000}},
		{"tcp, tiny chunks", tcpPair, Options{BatchSize: 1}},
		{"pipe", pipePair, Options{BatchSize: 1 << 20}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := c.pair(t)
			v, w := newThings(), new(things)
			c.o.Rank, c.o.Ranks = 1, 2
			s := migrate(t, a, b, c.o, v.roots(), w.roots())
			v.check(t, w)
			if s.State < 8<<20 || s.Zero < 2<<20 || s.Zero > s.State || s.Sent < s.State-s.Zero || s.Sent > s.State-s.Zero+4<<20 || s.AllNS < s.WriteNS || s.TransferNS == 0 || s.ReadNS == 0 || s.WriteNS == 0 || s.Precopied != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestMigrate_IntoPlace migrates into variables that have memory with other
// values.
func TestMigrate_IntoPlace(t *testing.T) {
	v, w := ckpttest.Sample(200_000), ckpttest.Sample(200_000)
	for i := range w.Grid {
		w.Grid[i] = -1
	}
	w.Step, w.Table = 99, map[string]int{"z": 9}
	at := &w.Grid[0]
	a, b := tcpPair(t)
	migrate(t, a, b, Options{Rank: 1, Ranks: 2, BatchSize: 256 << 10}, v.Roots(), w.Roots())
	if !reflect.DeepEqual(v, w) {
		t.Fatal("other values")
	}
	if &w.Grid[0] != at {
		t.Error("the array was not filled in place")
	}
}

// TestMigrate_Refused lets the destination refuse, and checks the errors of
// both ends.
func TestMigrate_Refused(t *testing.T) {
	other := errors.New("the program has no variable \"grid\"")
	v := ckpttest.Sample(400_000)
	for _, c := range []struct {
		name, source, dest string
		o                  Options
		l                  Receiver
	}{
		{name: "fit", source: other.Error(), dest: other.Error(), l: Receiver{Fit: func(*graph.Image) ([]graph.Root, *graph.Env, []string, error) { return nil, nil, nil, other }}},
		{name: "types", source: "the program has no such variable", dest: "the program has no such variable", l: fit(nil)},
		{name: "rank", source: "rank 1 of 2, not 0 of 2", dest: "rank 1 of 2, not 0 of 2", o: Options{Ranks: 2}, l: fit(nil)},
		{name: "files", source: "no room", dest: "no room", l: Receiver{
			Fit:   fit(new(ckpttest.Values).Roots()).Fit,
			Files: func([]ckpt.FileEntry, ckpt.Note, []byte) error { return errors.New("no room") },
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := tcpPair(t)
			o := Options{Rank: 1, Ranks: 2, BatchSize: 128 << 10}
			if c.o.Ranks == 0 {
				c.o = o
			}
			g := NewSource(a, o)
			defer g.Close()
			done := receive(b, c.o, c.l)
			_, err := g.Finish(ctx, collect(t, v.Roots()), nil, ckpt.Note{}, nil)
			if err == nil || !strings.Contains(err.Error(), c.source) {
				t.Errorf("the source says %v", err)
			}
			if r := <-done; r.err == nil || !strings.Contains(r.err.Error(), c.dest) {
				t.Errorf("the destination says %v", r.err)
			}
		})
	}
}

// TestMigrate_Canceled cancels the contexts of both ends.
func TestMigrate_Canceled(t *testing.T) {
	why := errors.New("enough")
	a, b := tcpPair(t)
	c, cancel := context.WithCancelCause(ctx)
	g := NewSource(a, Options{})
	defer g.Close()
	done := make(chan error, 1)
	go func() {
		_, err := Receive(c, b, Options{}, fit(nil))
		done <- err
	}()
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("the destination says %v", err)
	}
	if _, err := g.Finish(ctx, collect(t, ckpttest.Sample(10).Roots()), nil, ckpt.Note{}, nil); err == nil {
		t.Error("nobody is there, and the source does not mind")
	}

	a, b = tcpPair(t)
	g = NewSource(a, Options{})
	defer g.Close()
	defer b.Close()
	c, cancel = context.WithCancelCause(ctx)
	v := ckpttest.Sample(8 << 20)
	for i := range v.Grid {
		v.Grid[i] = float64(i)
	}
	go func() {
		b.Read(make([]byte, 1<<20)) // it has begun
		cancel(why)
	}()
	if _, err := g.Finish(c, collect(t, v.Roots()), nil, ckpt.Note{}, nil); !errors.Is(err, why) {
		t.Errorf("the source says %v", err)
	}
}

// TestMigrate_Stalled has ends that become silent.
func TestMigrate_Stalled(t *testing.T) {
	o := Options{Stall: 500 * time.Millisecond, BatchSize: 1 << 20}
	v := ckpttest.Sample(8 << 20)
	for i := range v.Grid {
		v.Grid[i] = float64(i)
	}
	t.Run("destination", func(t *testing.T) {
		a, b := tcpPair(t)
		defer b.Close()
		g := NewSource(a, o)
		defer g.Close()
		if _, err := g.Finish(ctx, collect(t, v.Roots()), nil, ckpt.Note{}, nil); err == nil || !strings.Contains(err.Error(), "took nothing") {
			t.Errorf("the source says %v", err)
		}
	})
	t.Run("destination that reads", func(t *testing.T) {
		a, b := tcpPair(t)
		go func() {
			for p := make([]byte, 1<<20); ; {
				if _, err := b.Read(p); err != nil {
					return
				}
			}
		}()
		g := NewSource(a, o)
		defer g.Close()
		if _, err := g.Finish(ctx, collect(t, v.Roots()), nil, ckpt.Note{}, nil); err == nil || !strings.Contains(err.Error(), "was silent for") {
			t.Errorf("the source says %v", err)
		}
	})
	t.Run("source", func(t *testing.T) {
		a, b := tcpPair(t)
		a.Write(preface)
		if _, err := Receive(ctx, b, o, fit(nil)); err == nil || !strings.Contains(err.Error(), "nothing was received") {
			t.Errorf("the destination says %v", err)
		}
	})
	t.Run("but waits for a program", func(t *testing.T) {
		a, b := tcpPair(t)
		g := NewSource(a, o)
		defer g.Close()
		w := new(ckpttest.Values)
		slow := fit(w.Roots())
		slow.Files = func([]ckpt.FileEntry, ckpt.Note, []byte) error { time.Sleep(2 * o.Stall); return nil }
		done := receive(b, o, slow)
		time.Sleep(2 * o.Stall) // the program is not at a point yet
		if _, err := g.Finish(ctx, collect(t, v.Roots()), nil, ckpt.Note{}, nil); err != nil {
			t.Fatal(err, (<-done).err)
		}
		if r := <-done; r.err != nil || !reflect.DeepEqual(v, w) {
			t.Fatal(r.err)
		}
	})
}
