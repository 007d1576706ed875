package coord

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// movingNode returns rank 0 or 1 of four in a chain, between Move and Moved,
// with something in every field that can be set then.
func movingNode(rank int) *Node {
	n := New(Config{Rank: rank, Size: 4, Arity: 1, Counts: zeroCounts{}, Every: 3, Spatial: true})
	n.next = 8
	n.setDue(4)
	n.moving, n.epoch = 6, 5
	n.asked, n.askedStop = true, true
	n.line, n.hasLine = 7, true
	n.sent0, n.received0 = 300, 200
	n.base[2], n.base[3] = 12, 13
	n.mark(2, 14)
	n.early[3] = bookmark{5, 1, 15}
	n.results = []result{{index: 8, left: 1, failed: true, rank: 3, why: "no space"}, {index: 9, left: 1}}
	if r := n.root; r != nil {
		r.wanted, r.stop, r.reason = true, true, "user, preempted"
		r.moves = []uint64{9, 8}
	}
	n.Ask("late", true)
	n.AskMove(10)
	for _, l := range []queuedMessage{
		{2, Message{Kind: KindBookmark, Epoch: 6, Sent: 16}},
		{rank + 1, Message{Kind: KindAskMove, Move: 11}},
		{rank + 1, Message{Kind: KindFinished, Rank: 3, Point: 4}},
	} {
		if err := n.Receive(l.from, l.m); err != nil {
			panic(err)
		}
	}
	return n
}

// TestExport_ThenImport shows that an imported state is the exported one.
// Damaged states, and those of other ranks, are refused.
func TestExport_ThenImport(t *testing.T) {
	for rank := range 2 {
		old := movingNode(rank)
		if out := old.Take(); len(out) > 0 {
			t.Errorf("rank %d: %v between Move and Moved", rank, out)
		}
		b := old.Export()
		cfg := Config{Rank: rank, Size: 4, Counts: zeroCounts{}}
		n, err := Import(cfg, b)
		if err != nil {
			t.Fatal(err)
		}
		if again := n.Export(); !bytes.Equal(again, b) {
			t.Errorf("rank %d: exported %x, imported %x", rank, b, again)
		}
		if !reflect.DeepEqual(n, old) {
			t.Errorf("rank %d: exported %+v, imported %+v", rank, old, n)
		}
		for i := range b { // every prefix is refused
			if _, err := Import(cfg, b[:i]); !errors.Is(err, ErrState) {
				t.Errorf("rank %d: %d bytes of %d: %v", rank, i, len(b), err)
			}
		}
		for _, c := range []Config{{Rank: 1 - rank, Size: 4}, {Rank: rank, Size: 5}} {
			c.Counts = zeroCounts{}
			if _, err := Import(c, b); !errors.Is(err, ErrState) {
				t.Errorf("rank %d of 4 is taken for %d of %d: %v", rank, c.Rank, c.Size, err)
			}
		}
		if _, err := Import(cfg, append(slices.Clip(b), 0)); !errors.Is(err, ErrState) {
			t.Errorf("a byte too many: %v", err)
		}
		if err := n.Moved(5); err != nil || n.moving != 6 {
			t.Errorf("the end of another move is taken: %v", err)
		}
		if err := errors.Join(old.Moved(6), n.Moved(6)); err != nil {
			t.Error(err)
		}
		if a, b := old.Take(), n.Take(); !reflect.DeepEqual(a, b) || len(a) == 0 {
			t.Errorf("rank %d: the predecessor would do\n%+v\nthe successor does\n%+v", rank, a, b)
		}
		if n.Export() != nil {
			t.Error("exported with no move under way")
		}
	}
	n := movingNode(1)
	n.Lost(2, "killed")
	n.Take()
	if n.Export() != nil {
		t.Error("exported although a rank was lost")
	}
}

// FuzzImport shows that bytes are refused, or are the state of a node that
// continues.
func FuzzImport(f *testing.F) {
	for rank := range 2 {
		f.Add(rank == 0, movingNode(rank).Export())
		n := New(Config{Rank: rank, Size: 4, Arity: 1, Counts: zeroCounts{}})
		n.moving, n.epoch = 1, 2
		f.Add(rank == 0, n.Export())
	}
	f.Fuzz(func(t *testing.T, isRoot bool, b []byte) {
		cfg := Config{Rank: 1, Size: 4, Counts: zeroCounts{}}
		if isRoot {
			cfg.Rank = 0
		}
		n, err := Import(cfg, b)
		if err != nil {
			if !errors.Is(err, ErrState) {
				t.Fatal(err)
			}
			return
		}
		if again := n.Export(); !bytes.Equal(again, b) {
			t.Fatalf("imported %x, exported %x", b, again)
		}
		// It continues, or says why not.
		if err := n.Moved(n.moving); err != nil && !errors.Is(err, ErrMessage) {
			t.Fatal(err)
		}
		n.Take()
		n.AtPoint(n.due + 1)
		n.Take()
	})
}
