package migrate

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/hdf5"
)

// TestMigrate_MemoryBound counts the memory that a migration allocates on both
// sides: the state once, at the destination, and little more.
func TestMigrate_MemoryBound(t *testing.T) {
	const size, chunk = 256 << 20, 16 << 20
	const some = size / 20
	whole := make([]float64, size/8)
	for i := range whole {
		whole[i] = float64(i)
	}
	var pieces [][]float64 // of less than a block
	for lo := 0; lo < len(whole); lo += 3000 {
		hi := min(lo+3000, len(whole))
		pieces = append(pieces, whole[lo:hi:hi])
	}
	for _, c := range []struct {
		name    string
		root    any
		into    func() any
		precopy bool
		chunks  uint64 // beside the state
	}{
		{"one piece", &whole, func() any { return new([]float64) }, false, 0},
		{"precopy", &whole, func() any { return new([]float64) }, true, 2},
		{"many pieces", &pieces, func() any { return new([][]float64) }, false, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer debug.FreeOSMemory()
			into := c.into()
			a, b := tcpPair(t)
			o := Options{BatchSize: chunk}
			img := collect(t, []graph.Root{{Name: "x", Ptr: c.root}})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			g := NewSource(a, o)
			defer g.Close()
			done := receive(b, o, fit([]graph.Root{{Name: "x", Ptr: into}}))
			if c.precopy {
				if err := g.Precopy(img); err != nil {
					t.Fatal(err)
				}
				if _, err := g.Wait(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := g.Finish(ctx, img, nil, ckpt.Note{}, nil); err != nil {
				t.Fatal(err)
			}
			if r := <-done; r.err != nil {
				t.Fatal(r.err)
			}
			runtime.ReadMemStats(&after)
			got := after.TotalAlloc - before.TotalAlloc
			t.Logf("%.1f MiB allocated for a state of %d MiB", float64(got)/(1<<20), size>>20)
			if most := size + some + c.chunks*(chunk+ckpt.MaxBlock); got > most {
				t.Errorf("%d bytes were allocated for a state of %d, at most %d are allowed", got, size, most)
			}
			check := collect(t, []graph.Root{{Name: "x", Ptr: into}})
			for i := range img.Pools {
				x, y := ckpt.NewMemory(img.Pools[i].Pieces), ckpt.NewMemory(check.Pools[i].Pieces)
				if img.Pools[i].Pointers {
					continue
				}
				p, q := make([]byte, 1<<20), make([]byte, 1<<20)
				for off := int64(0); off < int64(img.Pools[i].Bytes()); off += int64(len(p)) {
					p, q = p[:min(int64(len(p)), int64(img.Pools[i].Bytes())-off)], q[:min(int64(len(p)), int64(img.Pools[i].Bytes())-off)]
					x.CopyTo(p, off)
					y.CopyTo(q, off)
					if !bytes.Equal(p, q) {
						t.Fatal("other values")
					}
				}
			}
		})
	}
}

// otherOrder returns the form of another machine: other byte order, packed,
// fields in reverse order.
func otherOrder(t hdf5.Type) hdf5.Type {
	switch t.Class {
	case hdf5.Int, hdf5.Uint, hdf5.Float:
		t.Big = t.Size > 1 && !t.Big
	case hdf5.Array:
		e := otherOrder(*t.Elem)
		n := t.Size / t.Elem.Size
		t.Elem, t.Size = &e, n*e.Size
	case hdf5.Compound:
		u := hdf5.Type{Class: hdf5.Compound, Size: 3}
		for i := len(t.Fields) - 1; i >= 0; i-- {
			f := t.Fields[i]
			f.Type = otherOrder(f.Type)
			f.Offset = u.Size
			u.Size += f.Type.Size
			u.Fields = append(u.Fields, f)
		}
		t = u
	}
	return t
}

func translate(from, to hdf5.Type, src, dst []byte) {
	switch from.Class {
	case hdf5.Array:
		for i := range from.Size / from.Elem.Size {
			translate(*from.Elem, *to.Elem, src[i*from.Elem.Size:], dst[i*to.Elem.Size:])
		}
	case hdf5.Compound:
		for i, f := range from.Fields {
			g := to.Fields[len(to.Fields)-1-i]
			translate(f.Type, g.Type, src[f.Offset:], dst[g.Offset:])
		}
	default:
		for i := range to.Size {
			if from.Big == to.Big {
				dst[i] = src[i]
			} else {
				dst[to.Size-1-i] = src[i]
			}
		}
	}
}

// toOtherMachine returns the image that another machine would have of the same
// state.
func toOtherMachine(img *graph.Image) *graph.Image {
	for i := range img.Pools {
		p := &img.Pools[i]
		if p.Form.Size == 0 {
			continue
		}
		form := otherOrder(p.Form)
		src, dst := make([]byte, p.Bytes()), make([]byte, int(p.Count)*form.Size)
		b := ckpt.NewMemory(p.Pieces)
		b.CopyTo(src, 0)
		for k := range int(p.Count) {
			translate(p.Form, form, src[k*p.Form.Size:], dst[k*form.Size:])
		}
		p.Form = form
		if p.Pieces = [][]byte{dst}; len(dst) > 100 && !p.Pointers {
			n := rand.IntN(len(dst))
			p.Pieces = [][]byte{dst[:n], dst[n:]}
		}
	}
	return img
}

// TestMigrate_Translated migrates from a machine with another byte order.
func TestMigrate_Translated(t *testing.T) {
	v, w := newThings(), new(things)
	m := newMigration(t, Options{BatchSize: 700_000}, w.roots())
	send := func(f func(*graph.Image) error) {
		t.Helper()
		if err := f(toOtherMachine(collect(t, v.roots()))); err != nil {
			t.Fatal(err)
		}
	}
	send(m.g.Precopy)
	if _, err := m.g.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	v.Rows[3][3], v.Big[0].A[1000], v.Far[1].A[9] = 1, 2, 3
	v.Values.Grid = append(v.Values.Grid, 3, 4, 5)
	send(m.g.Precopy)
	if _, err := m.g.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	v.Rows[3][4], v.Big[0].A[1001], v.Far[1].A[8] = 1, 2, 3
	send(func(img *graph.Image) error {
		s, err := m.g.Finish(ctx, img, nil, ckpt.Note{}, nil)
		if s.Sent > s.State/2 {
			t.Errorf("all was sent again: %+v", s)
		}
		return err
	})
	if r := <-m.done; r.err != nil {
		t.Fatal(r.err)
	}
	v.check(t, w)
}
