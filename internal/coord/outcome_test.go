package coord

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
)

// TestLine_NewestOfAllRanks checks that the line is the newest checkpoint that
// all ranks have.
func TestLine_NewestOfAllRanks(t *testing.T) {
	for _, c := range []struct {
		have [][]uint64
		line uint64
		ok   bool
	}{
		{nil, 0, false},
		{[][]uint64{{}}, 0, false},
		{[][]uint64{{0}}, 0, true},
		{[][]uint64{{1, 2, 3}, {2, 3, 4}, {5, 3, 2}}, 3, true},
		{[][]uint64{{1, 2, 5}, {1, 2, 4}}, 2, true}, // 4 is the lowest of the newest, and rank 0 lacks it
		{[][]uint64{{1, 1}, {2}}, 0, false},
		{[][]uint64{{7, 7}, {7}}, 7, true},
	} {
		if line, ok := Line(c.have); line != c.line || ok != c.ok {
			t.Errorf("Line(%v) = %d, %v", c.have, line, ok)
		}
	}
}

// TestSums_NoticeChanges changes one total of many ranks at a time, or two
// totals whose changes would cancel each other in a plain sum.
func TestSums_NoticeChanges(t *testing.T) {
	const n = 7
	sent, received := make([][]uint64, n), make([][]uint64, n)
	for i := range n {
		sent[i], received[i] = make([]uint64, n), make([]uint64, n)
	}
	for i := range n {
		for j := range n {
			if i != j {
				sent[i][j] = uint64(i*j + 3)
				received[j][i] = sent[i][j]
			}
		}
	}
	safe := func() bool {
		var all Sums
		for i := range n {
			s := SumsOf(i, sent[i], received[i])
			all.Sent += s.Sent
			all.Received += s.Received
		}
		return all.Sent == all.Received
	}
	if !safe() {
		t.Error("all was received, and the sums differ")
	}
	for i := range n {
		for j := range n {
			sent[i][j]++
			if safe() {
				t.Errorf("a message from %d to %d is not seen", i, j)
			}
			received[(j+1)%n][i]++
			if safe() {
				t.Errorf("a message from %d to %d that %d received is not seen", i, j, (j+1)%n)
			}
			sent[i][j]--
			received[(j+1)%n][i]--
		}
	}
}

var samples = []Message{
	{Kind: KindAsk, Flags: FlagStop, Text: "preempted"},
	{Kind: KindPoll, Epoch: 300},
	{Kind: KindCount, Epoch: 1, Point: math.MaxUint64},
	{Kind: KindBookmark, Epoch: 7, Step: 1, Sent: 1 << 40},
	{Kind: KindQuiet, Epoch: 1, Step: 2, Wave: 3, Point: 4, Sent: 5, Received: 6, Paused: 7,
		Waits: []Wait{{Rank: 1}, {Rank: 2, On: []int{0, 5}}}},
	{Kind: KindRelease, Flags: FlagAll, Epoch: 1, Step: 1, Ranks: []int{1, 2, 900}},
	{Kind: KindSave, Epoch: 9, Index: 8, Point: 7, Text: "every 10 points"},
	{Kind: KindOutcome, Flags: FlagFailed, Index: 3, Rank: 2, Text: "no space"},
	{Kind: KindSaved, Index: 3, Sent: math.MaxUint64, Received: 1 << 63},
	{Kind: KindEnd},
	{Kind: KindTarget, Flags: FlagMove, Epoch: 2, Point: 9},
	{Kind: KindAskMove, Move: 1 << 50},
	{Kind: KindMove, Epoch: 4, Point: 20, Move: 3},
}

// TestMessage_RoundTrip shows that messages come back as they were encoded.
// What is too short or too long is refused.
func TestMessage_RoundTrip(t *testing.T) {
	for _, m := range samples {
		b := m.AppendTo([]byte("x"))[1:]
		got, err := Parse(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v came back as %+v, %v", m, got, err)
		}
		for i := range b { // every prefix is refused
			if _, err := Parse(b[:i]); !errors.Is(err, ErrMessage) {
				t.Errorf("%v: %d bytes of %d: %v", m.Kind, i, len(b), err)
			}
		}
		if _, err := Parse(append(slices.Clone(b), 0)); !errors.Is(err, ErrMessage) {
			t.Errorf("%v with a byte too many: %v", m.Kind, err)
		}
	}
	for _, b := range []string{"\x00", "\xff", "\x01\xff\x00", "\x03\x80\x00", "\x01\x00\xff\xff\xff\xff\x0f"} {
		if _, err := Parse([]byte(b)); !errors.Is(err, ErrMessage) {
			t.Errorf("%q: %v", b, err)
		}
	}
}

// FuzzParse shows that bytes are refused, or are the encoding of the message
// that they are parsed as.
func FuzzParse(f *testing.F) {
	for _, m := range samples {
		f.Add(m.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		if back := m.AppendTo(nil); !bytes.Equal(back, b) {
			t.Fatalf("%x became %x", b, back)
		}
		// A Node takes or refuses it, and continues.
		n := New(Config{Rank: 1, Size: 4, Arity: 1, Counts: zeroCounts{}, Every: 3})
		n.AtPoint(3)
		for from := range 4 {
			if err := n.Receive(from, m); err != nil && !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
			n.Take()
		}
	})
}

// BenchmarkAtPoint measures a point while no round is under way.
func BenchmarkAtPoint(b *testing.B) {
	n := New(Config{Size: 2, Counts: zeroCounts{}, Every: 1 << 60})
	for k := uint64(1); b.Loop(); k++ {
		if !n.AtPoint(k) {
			b.Fatal("paused")
		}
	}
}
