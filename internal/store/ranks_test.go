package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

func create(t *testing.T, fsys vfs.FS, rank int) *Dir {
	t.Helper()
	d, err := Create(fsys, "/ckpt", rank)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestPruneLine checks which checkpoints of a rank stay, given the line, the
// number to keep and the damaged ones.
func TestPruneLine(t *testing.T) {
	for _, c := range []struct {
		line    uint64
		keep    int
		damaged map[uint64]bool
		want    []uint64
	}{
		{0, 1, nil, []uint64{6, 5, 4, 3, 2, 1}},
		{4, 1, nil, []uint64{6, 5, 4}},
		{4, 2, nil, []uint64{6, 5, 4, 3}},
		{4, 2, map[uint64]bool{4: true}, []uint64{6, 5, 3, 2}},
		{4, 2, map[uint64]bool{6: true, 3: true}, []uint64{5, 4, 2}},
		{6, 2, nil, []uint64{6, 5}},
		{9, 2, nil, []uint64{6, 5}},
		{6, 0, nil, nil},
	} {
		fsys := vfstest.NewMem()
		d := create(t, fsys, 1)
		other := create(t, fsys, 0)
		for n := range uint64(6) {
			publish(t, d, n+1, "x", 0)
			publish(t, other, n+1, "y", 0)
		}
		if _, err := other.Begin(7); err != nil { // begun by another rank: it stays
			t.Fatal(err)
		}
		if err := fsys.Mkdir("/ckpt/ckpt-00000008"); err != nil { // about to be begun: it stays
			t.Fatal(err)
		}
		if _, err := d.Begin(9); err != nil { // left by a crash of this rank: it is removed
			t.Fatal(err)
		}
		if _, err := d.PruneLine(c.line, c.keep, c.damaged); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Committed(); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("line %d, keep %d, damaged %v: left %v, want %v (%v)", c.line, c.keep, c.damaged, got, c.want, err)
		}
		if got, _ := other.Committed(); len(got) != 6 {
			t.Errorf("line %d: the other rank is left with %v", c.line, got)
		}
		for _, n := range []uint64{7, 8, 9} {
			if _, err := fsys.Stat(d.checkpointDir(n)); (err == nil) != (n == 7 || n == 8 && c.line < 8) {
				t.Errorf("line %d: checkpoint %d: %v", c.line, n, err)
			}
		}
	}
}

// TestPrune_Limit has checkpoints of ten bytes each, and a limit.
func TestPrune_Limit(t *testing.T) {
	for _, c := range []struct {
		limit int64
		line  uint64
		want  []uint64
	}{
		{0, 9, []uint64{6, 5, 4, 3}},
		{100, 9, []uint64{6, 5, 4, 3}},
		{30, 9, []uint64{6, 5, 4}},
		{29, 9, []uint64{6, 5}},
		{1, 9, []uint64{6}},           // the newest one stays in any case
		{1, 4, []uint64{6, 5, 4}},     // those that other ranks may not have do not count
		{45, 4, []uint64{6, 5, 4, 3}}, // but they take room
	} {
		d := create(t, vfstest.NewMem(), 1)
		d.SetLimit(c.limit)
		for n := range uint64(6) {
			publish(t, d, n+1, "ten bytes.", 0)
		}
		if _, err := d.PruneLine(c.line, 4, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Committed(); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("limit %d, line %d: left %v, want %v (%v)", c.limit, c.line, got, c.want, err)
		}
	}
}

// TestBegin_RanksAtOnce publishes and prunes with several ranks at the same
// time. A rank may remove an empty directory that another one is about to use.
func TestBegin_RanksAtOnce(t *testing.T) {
	fsys := vfstest.NewMem()
	var wg sync.WaitGroup
	for r := range 4 {
		d := create(t, fsys, r)
		wg.Go(func() {
			for n := uint64(1); n <= 200; n++ {
				p, err := d.Begin(n)
				if err == nil && n%3 == 0 {
					p.Abort()
				} else if err == nil {
					err = p.Commit()
				}
				if err == nil {
					_, err = d.PruneLine(n-min(n, 2), 1, nil)
				}
				if _, lerr := d.Lost(); err == nil {
					err = lerr
				}
				if err != nil {
					t.Errorf("rank %d, checkpoint %d: %v", r, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for r := range 4 {
		if got, err := Open(fsys, "/ckpt", r).Committed(); err != nil || !slices.Equal(got, []uint64{200, 199, 197}) {
			t.Errorf("rank %d has %v, %v", r, got, err)
		}
	}
	if got, err := Members(fsys, "/ckpt"); err != nil || len(got) != 3 || !slices.Equal(got[200], []int{0, 1, 2, 3}) {
		t.Errorf("members %v, %v", got, err)
	}
}

// TestMembers checks which ranks have a file in which checkpoint.
func TestMembers(t *testing.T) {
	fsys := vfstest.NewMem()
	if got, err := Members(fsys, "/ckpt"); err != nil || len(got) != 0 {
		t.Errorf("members of no directory: %v, %v", got, err)
	}
	for _, r := range []int{12, 0, 3} {
		publish(t, create(t, fsys, r), uint64(1+r%2), "x", 0)
	}
	if _, err := create(t, fsys, 5).Begin(3); err != nil {
		t.Fatal(err)
	}
	got, err := Members(fsys, "/ckpt")
	if err != nil || fmt.Sprint(got) != "map[1:[0 12] 2:[3] 3:[]]" {
		t.Errorf("members %v, %v", got, err)
	}
}

// TestLine shows that the line that was recorded last is read.
func TestLine(t *testing.T) {
	fsys := vfstest.NewMem()
	d := create(t, fsys, 0)
	if l, err := d.Line(); err != nil || l != (Line{}) {
		t.Fatalf("at first: %v, %v", l, err)
	}
	for _, want := range []Line{{12, 8, "r", "a"}, {13, 8, "r", "b"}} {
		if err := d.SetLine(want); err != nil {
			t.Fatal(err)
		}
		if l, err := Open(fsys, "/ckpt", 3).Line(); err != nil || l != want {
			t.Fatalf("%v, %v; want %v", l, err, want)
		}
	}
	if l, err := Open(fsys.Crash(vfstest.LoseAll), "/ckpt", 0).Line(); err != nil || l.Index != 13 {
		t.Errorf("after a power cut: %v, %v", l, err)
	}
	if err := create(t, fsys, 1).SetLine(Line{Index: 14, Ranks: 8}); err == nil {
		t.Error("rank 1 recorded the line")
	}
	if _, err := d.Prune(0, nil); err != nil {
		t.Fatal(err)
	}
	if l, _ := d.Line(); l.Index != 13 {
		t.Errorf("Prune took the line: %v", l)
	}
	if err := errors.Join(d.RemoveLine(), d.RemoveLine()); err != nil {
		t.Fatal(err)
	}
	if l, err := Open(fsys.Crash(vfstest.LoseAll), "/ckpt", 0).Line(); err != nil || l != (Line{}) {
		t.Errorf("after RemoveLine: %v, %v", l, err)
	}
	record := func(rest string) string {
		return digestHead + digestOf([]byte(rest)) + "\",\n" + rest
	}
	for text, damaged := range map[string]bool{"": true, "x": true, "{}": true, `{"format":3,"index":1,"ranks":2}`: true, strings.Repeat(" ", 5000): true,
		record(`"format":3,"index":0,"ranks":2}`): true, record(`"format":2,"set":1,"ranks":2}`): false} {
		fsys.Remove("/ckpt/line")
		f, err := fsys.Create("/ckpt/line")
		if err != nil {
			t.Fatal(err)
		}
		f.WriteAt([]byte(text), 0)
		if l, err := d.Line(); err == nil || errors.Is(err, ErrLine) != damaged {
			t.Errorf("%.40q: %v, %v", text, l, err)
		}
	}
}

// TestLine_Crash cuts the power before every operation. The line must be the
// old one or the new one.
func TestLine_Crash(t *testing.T) {
	for _, loss := range []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn} {
		for at := 0; crashAt(t, at, loss); at++ {
		}
	}
}

// crashAt cuts the power before operation number at, and reports whether there
// are so many.
func crashAt(t *testing.T, at int, loss vfstest.Loss) bool {
	disk := vfstest.NewMem()
	d := create(t, disk, 0)
	if err := d.SetLine(Line{Index: 1, Ranks: 2}); err != nil {
		t.Fatal(err)
	}
	n := 0
	var left *vfstest.Mem
	d.fs = vfstest.Hook(disk, func(op, name string) error {
		if n == at {
			left = disk.Crash(loss)
		}
		if n++; left != nil {
			return errors.New("the power is gone")
		}
		return nil
	})
	if err := d.SetLine(Line{Index: 2, Ranks: 2}); (err == nil) != (left == nil) {
		t.Errorf("operation %d: %v", at, err)
	}
	if left == nil {
		return false
	}
	if l, err := Open(left, "/ckpt", 0).Line(); err != nil || l.Index != 1 && l.Index != 2 {
		t.Errorf("loss %d before operation %d: %v, %v", loss, at, l, err)
	}
	return true
}

// TestRemove_OtherRankBetweenSteps lets another rank act between two file
// operations of a rank that removes its part of a checkpoint. The removal
// succeeds, the other rank's file stays if it was committed, and an empty
// directory does not.
func TestRemove_OtherRankBetweenSteps(t *testing.T) {
	const isCheckpoint = 5
	var pending *Pending // the other rank's file
	begin := func(other *Dir) (err error) { pending, err = other.Begin(isCheckpoint); return err }
	abort := func(*Dir) error { pending.Abort(); return nil }
	commit := func(*Dir) error { return pending.Commit() }
	step := func(op, path string) string { return op + " " + path }
	dir, tmp := "/ckpt/ckpt-00000005", "/ckpt/ckpt-00000005/rank-0001.tmp"
	for _, c := range []struct {
		name  string
		first func(other *Dir) error // before rank 1 begins
		at    map[string]func(other *Dir) error
		then  func(other *Dir) error
		stays bool
	}{
		{"begins and aborts", nil, map[string]func(*Dir) error{step("remove", dir): begin, step("readdir", dir): abort}, abort, false},
		{"begins and commits", nil, map[string]func(*Dir) error{step("remove", dir): begin}, commit, true},
		{"aborts after the listing", begin, map[string]func(*Dir) error{step("remove", tmp): abort}, nil, false},
		{"aborts before the directory goes", begin, map[string]func(*Dir) error{step("remove", dir): abort}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := vfstest.NewMem()
			other := create(t, disk, 0)
			d := create(t, disk, 1)
			publish(t, d, isCheckpoint, "x", 0)
			if c.first != nil {
				if err := c.first(other); err != nil {
					t.Fatal(err)
				}
			}
			armed := false
			d.fs = vfstest.Hook(disk, func(op, name string) error {
				act := c.at[step(op, name)]
				if op == "remove" && name == tmp {
					armed = true // the directory has been listed already
				}
				if act == nil || !armed {
					return nil
				}
				delete(c.at, step(op, name))
				return act(other)
			})
			if err := d.Remove(isCheckpoint); err != nil {
				t.Errorf("Remove: %v", err)
			}
			if c.then != nil && c.at[step("readdir", dir)] != nil || c.stays {
				if err := c.then(other); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := disk.Stat(dir); (err == nil) != c.stays {
				t.Errorf("the directory: %v; want it to stay: %v", err, c.stays)
			}
			if got, err := other.Committed(); err != nil || (len(got) == 1) != c.stays {
				t.Errorf("the other rank has %v, %v", got, err)
			}
			if got, err := d.Committed(); err != nil || len(got) != 0 {
				t.Errorf("rank 1 still has %v, %v", got, err)
			}
		})
	}
}
