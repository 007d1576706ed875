package graph

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestCollect_LongList saves and restores a list of a million nodes: neither
// needs a deep stack.
func TestCollect_LongList(t *testing.T) {
	const n = 1_000_000
	type link struct {
		next *link
		v    int
	}
	var head *link
	for i := range n {
		head = &link{head, i}
	}
	var c Collector
	start := time.Now()
	if _, err := c.Collect([]Root{{"head", &head}}, nil); err != nil {
		t.Fatal(err)
	}
	first := time.Since(start)
	start = time.Now()
	img, err := c.Collect([]Root{{"head", &head}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("collect", first, "again", time.Since(start))
	f := store(t, img)
	start = time.Now()
	var w *link
	if err := f.load([]Root{{"head", &w}}, nil); err != nil {
		t.Fatal(err)
	}
	t.Log("restore", time.Since(start))
	runtime.GC()
	for i := n - 1; i >= 0; i-- {
		if w.v != i {
			t.Fatal(i, w.v)
		}
		w = w.next
	}
	if w != nil {
		t.Error("too long")
	}
}

// TestCollect_RowsSpeed shows that equal rows become one table, and logs how
// long that takes.
func TestCollect_RowsSpeed(t *testing.T) {
	rows := make([][]float64, 1_000_000)
	for i := range rows {
		rows[i] = []float64{float64(i), 1, 2, 3}
	}
	var c Collector
	for range 3 {
		start := time.Now()
		img, err := c.Collect([]Root{{"rows", &rows}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := time.Since(start)
		t.Log("collect", d)
		if s := fmt.Sprint(img.Pools[2].Shape); s != "[1000000 4]" {
			t.Error(s)
		}
	}
	huge := make([]float64, 1<<27)
	start := time.Now()
	if _, err := c.Collect([]Root{{"huge", &huge}}, nil); err != nil {
		t.Fatal(err)
	}
	d := time.Since(start)
	t.Log("1 GiB", d)
	start = time.Now()
	if _, err := new(Collector).Collect([]Root{{"huge", &huge}}, nil); err != nil {
		t.Fatal(err)
	}
	t.Log("1 GiB, fresh collector", time.Since(start))
}

type tree struct {
	l, r *tree
	name string
	data []int
	m    map[int]*tree
	i    any
}

func grow(depth int, seed *int) *tree {
	*seed++
	t := &tree{name: fmt.Sprint("node ", *seed), data: make([]int, depth, depth+2), i: *seed}
	for i := range t.data {
		t.data[i] = *seed + i
	}
	if depth > 0 {
		t.l, t.r = grow(depth-1, seed), grow(depth-1, seed)
		t.m = map[int]*tree{1: t.l, 2: t.r}
		t.i = t.r
	}
	return t
}

// TestRestore_DuringGC restores pointers while garbage is collected: what they
// lead to stays.
func TestRestore_DuringGC(t *testing.T) {
	seed := 0
	v := grow(11, &seed)
	f := save(t, []Root{{"v", &v}}, nil)
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	var w *tree
	if err := f.load([]Root{{"v", &w}}, nil); err != nil {
		t.Fatal(err)
	}
	var junk [][]byte
	for i := range 20000 {
		junk = append(junk, make([]byte, 16+i%200))
		if i%1000 == 0 {
			for k := range junk {
				for j := range junk[k] {
					junk[k][j] = 0xff
				}
			}
			junk = junk[:0]
			runtime.GC()
		}
	}
	if err := isomorphic(&v, &w); err != nil {
		t.Fatal(err)
	}
}
