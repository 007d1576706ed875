//go:build unix

package graph

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// TestSpanSet_AgainstPlainList compares with a list that is searched from its
// beginning.
func TestSpanSet_AgainstPlainList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var set spanSet
	var plain []span
	for range 5000 {
		lo := uintptr(r.IntN(200000))
		s := span{lo, lo + 1 + uintptr(r.IntN(1+r.IntN(100)))}
		free := true
		for _, p := range plain {
			free = free && (s.lo >= p.hi || p.lo >= s.hi)
		}
		if set.add(s) != free {
			t.Fatalf("add(%v) = %v", s, !free)
		}
		if free {
			plain = append(plain, s)
		}
	}
	n := 0
	for _, run := range set.runs {
		n += len(run)
	}
	if n != len(plain) || len(set.runs) < 2 {
		t.Errorf("%d spans in %d runs, want %d", n, len(set.runs), len(plain))
	}
}

// processorTime returns the processor time that this process has used so far.
// It does not depend on the load of the machine.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestPrepare_LinearInVariables shows that the time grows in proportion to the
// number of variables.
func TestPrepare_LinearInVariables(t *testing.T) {
	prepare := func(n int) time.Duration {
		data, ints := make([][]float64, n), make([]int, n)
		var roots []Root
		for i := range n {
			data[i] = make([]float64, 3)
			roots = append(roots, Root{fmt.Sprint("data", i), &data[i]}, Root{fmt.Sprint("int", i), &ints[i]})
		}
		img, err := Collect(roots, nil)
		if err != nil {
			t.Fatal(err)
		}
		began := processorTime()
		b, err := Prepare(roots, img, nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		took := processorTime() - began
		b.Close()
		return took
	}
	prepare(1000)
	small := max(prepare(4000), time.Millisecond)
	if large := prepare(40000); large > 50*small {
		t.Errorf("10 times as many variables take %v instead of %v", large, small)
	}
}
