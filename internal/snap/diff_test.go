package snap

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/internal/mem"
)

// TestDiff finds the blocks that have changed, for many block sizes and
// alignments.
func TestDiff(t *testing.T) {
	onAll(t, func(t *testing.T, w *world) { w.testDiff() })
}

// testDiff diffs extents with many block sizes and alignments, in which none,
// some or all blocks have changed. Kernels that are launched later must not
// affect the result.
func (w *world) testDiff() {
	t := w.t
	run := w.overwrite()
	r := rand.New(rand.NewPCG(7, 8))
	data := random(9<<17, 14)
	b := w.buffer(data)
	w.Reserve(2<<20 + 12345)
	for round, x := range []mem.Extent{
		{Len: 9 << 17, Block: 64 << 10}, {Len: 9<<17 - 100, Block: 64 << 10}, {Off: 7, Len: 400_000, Block: 64 << 10},
		{Off: 4, Len: 400_000, Block: 4000}, {Off: 16, Len: 1000, Block: 1000}, {Off: 3, Len: 900_300, Block: 100_000},
		{Off: 256, Len: 300_000, Block: 300},
	} {
		x.Buffer = b
		n := x.Blocks()
		for _, changes := range []int{0, 1, n / 3, n} {
			run(b, 3)
			data = scrambledAll(data, 3)
			sums := want(map[driver.Buffer][]byte{b: data}, []mem.Extent{x})
			v := must(w.Diff(x, max(changes, 1)))(t)
			expect := v.Expect()
			copy(expect, sums)
			changed := make(map[uint64]bool)
			for _, k := range r.Perm(n)[:changes] {
				changed[uint64(k)] = true
				if k%2 == 0 {
					expect[k].Lo++
				} else {
					expect[k].Hi--
				}
			}
			if err := v.Start(); err != nil {
				t.Fatal(err)
			}
			list, f, err := v.Wait()
			if err != nil {
				t.Fatal(err)
			}
			run(b, 1)
			if len(list) != changes || (f == nil) != (changes == 0) {
				t.Fatalf("round %d: %d blocks, want %d", round, len(list), changes)
			}
			if f != nil {
				got, again := read(t, w, f, []mem.Extent{{Len: int64(changes) * x.Block, Block: x.Block}})
				for i, c := range list {
					at := int64(c.Block) * x.Block
					p := data[x.Off:][at:min(at+x.Block, x.Len)]
					if !changed[c.Block] || c.Digest != sums[c.Block] || !bytes.Equal(got[0][int64(i)*x.Block:][:len(p)], p) {
						t.Fatalf("round %d: block %d is wrong", round, c.Block)
					}
					if int64(len(p)) == x.Block && again[i] != c.Digest {
						t.Fatalf("round %d: the digest of the copy of block %d is wrong", round, c.Block)
					}
					delete(changed, c.Block)
				}
				f.Close()
			}
			data = scrambledAll(data, 1)
		}
	}
}

// TestDiff_Twice shares the room between two diffs and a snapshot.
func TestDiff_Twice(t *testing.T) {
	onAll(t, func(t *testing.T, w *world) {
		one, two := random(1<<20, 15), random(1<<20, 16)
		a, b := w.buffer(one), w.buffer(two)
		w.Reserve(2 << 20)
		x := mem.Extent{Buffer: a, Len: 1 << 20, Block: 64 << 10}
		y := mem.Extent{Buffer: b, Len: 1 << 20, Block: 64 << 10}
		for range 3 {
			v, u := must(w.Diff(x, 5))(t), must(w.Diff(y, 6))(t)
			for s, m := range map[mem.Diff]mem.Extent{v: x, u: y} {
				copy(s.Expect(), must(digests(w.Engine, []mem.Extent{m}))(t))
				s.Expect()[3].Lo++
				s.Expect()[11].Lo++
				if err := s.Start(); err != nil {
					t.Fatal(err)
				}
			}
			f := must(w.Freeze([]mem.Extent{{Buffer: a, Len: 300_000, Block: 64 << 10}}))(t)
			got, _ := read(t, w, f, []mem.Extent{{Len: 300_000, Block: 64 << 10}})
			if !bytes.Equal(got[0], one[:300_000]) {
				t.Fatal("the snapshot is wrong")
			}
			for s, p := range map[mem.Diff][]byte{v: one, u: two} {
				list, f, err := s.Wait()
				if err != nil || len(list) != 2 {
					t.Fatal(list, err)
				}
				got, _ := read(t, w, f, []mem.Extent{{Len: 128 << 10, Block: 64 << 10}})
				for i, c := range list {
					if !bytes.Equal(got[0][i<<16:][:64<<10], p[c.Block<<16:][:64<<10]) {
						t.Fatalf("block %d is wrong", c.Block)
					}
				}
				f.Close()
			}
			f.Close()
			if w.spare == nil || w.spare.users != 0 || w.spare.used != 0 || w.spare.buffer.Size() != 2<<20 {
				t.Fatal("the room was not given back")
			}
		}
	})
}

// TestDiff_NoRoom diffs when more has changed than there is room for, and when
// there is no room.
func TestDiff_NoRoom(t *testing.T) {
	dev := host.New(host.Options{Discrete: true, Memory: 2 << 20})
	t.Cleanup(func() { dev.Close() })
	w := newWorld(t, dev)
	a := w.buffer(random(1<<20, 17))
	x := mem.Extent{Buffer: a, Len: 1 << 20, Block: 64 << 10}
	v := must(w.Diff(x, 2))(t)
	clear(v.Expect())
	if err := v.Start(); err != nil {
		t.Fatal(err)
	}
	if _, f, err := v.Wait(); !errors.Is(err, mem.ErrNoRoom) || f != nil {
		t.Fatal(f, err)
	}
	v = must(w.Diff(x, 16))(t)
	if err := v.Start(); !errors.Is(err, mem.ErrNoRoom) {
		t.Fatal(err)
	}
	v.Close()
	must(w.Freeze([]mem.Extent{{Buffer: a, Len: 100_000, Block: 64 << 10}}))(t).Close()
	w.Release()
	if err := w.q.Finish(); err != nil { // freed memory is available now
		t.Fatal(err)
	}
	more := must(dev.Alloc(must(dev.FreeMemory())(t)))(t)
	if _, err := w.Diff(x, 1); !errors.Is(err, mem.ErrNoRoom) {
		t.Fatal(err)
	}
	more.Free()
}
