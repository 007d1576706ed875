// Command sortcalls does its work in functions that the standard library calls
// while it sorts and searches.
package main

import (
	"bytes"
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

var (
	hash  int
	calls int
)

func mix(n int) int {
	calls++
	if calls%37 == 0 {
		for i := range 2 { //difftest:loop
			hash = (hash*31 + n + i) % 9001
		}
	}
	hash = (hash*17 + n) % 9001
	return n
}

type byWeight []int

func (b byWeight) Len() int           { return len(b) }
func (b byWeight) Less(i, j int) bool { return mix(b[i])%50 < mix(b[j])%50 }
func (b byWeight) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }

type queue struct{ byWeight }

func (q *queue) Push(x any) { q.byWeight = append(q.byWeight, mix(x.(int))) }
func (q *queue) Pop() any {
	last := len(q.byWeight) - 1
	x := q.byWeight[last]
	q.byWeight = q.byWeight[:last]
	return x
}

type pair struct {
	name string
	n    int
}

func compare(a, b pair) int { return cmp.Compare(mix(a.n)%40, mix(b.n)%40) }

func data(n int) []int {
	list := make([]int, n)
	x := 7
	for i := range list {
		x = (x*1103515245 + 12345) & 0x7fffffff
		list[i] = x % 1000
	}
	return list
}

func pairs(n int) (list []pair) {
	for i, x := range data(n) {
		list = append(list, pair{fmt.Sprint("p", i), x})
	}
	return list
}

// smallest sorts with a func value that it is given.
func smallest[T any](list []T, less func(a, b T) bool, n int) []T {
	sort.SliceStable(list, func(i, j int) bool { return less(list[i], list[j]) })
	return list[:n]
}

func sorts() {
	list := data(60)
	sort.Slice(list, func(i, j int) bool { return mix(list[i])%50 < mix(list[j])%50 })
	fmt.Println(list[:20], hash)
	var hidden any = data(30)
	less := func(i, j int) bool { return mix(hidden.([]int)[i]) < mix(hidden.([]int)[j]) }
	sort.Slice(hidden, less)
	fmt.Println(hidden, hash, sort.SliceIsSorted(hidden, less))
	fmt.Println(smallest(pairs(30), func(a, b pair) bool { return compare(a, b) < 0 }, 9), hash)
	fmt.Println(smallest(data(30), func(a, b int) bool { return mix(a) < mix(b) }, 9), hash)
	type local struct{ a, b int }
	locals := []local{{3, 1}, {1, 2}, {2, 3}, {1, 4}, {5, 9}, {2, 6}, {0, 5}}
	slices.SortFunc(locals, func(x, y local) int { return mix(x.a) - mix(y.a) })
	fmt.Println(locals, hash)
}

func interfaces() {
	list := byWeight(data(50))
	sort.Sort(list)
	fmt.Println(list[:20], sort.IsSorted(list), hash)
	list = data(40)
	sort.Stable(sort.Reverse(list))
	fmt.Println(list[:20], hash)
	q := &queue{data(20)}
	heap.Init(q)
	for i := range 6 {
		heap.Push(q, i*13)
	}
	q.byWeight[3] = 500
	heap.Fix(q, 3)
	heap.Remove(q, 5)
	for q.Len() > 12 {
		fmt.Print(heap.Pop(q), " ")
	}
	fmt.Println(hash)
}

func generic() {
	list := pairs(60)
	slices.SortFunc(list, compare)
	fmt.Println(list[:9], hash)
	list = pairs(60)
	slices.SortStableFunc(list, compare)
	fmt.Println(list[:9], slices.IsSortedFunc(list, compare), hash)
	at, found := slices.BinarySearchFunc(list, 21, func(p pair, n int) int { return mix(p.n)%40 - n })
	fmt.Println(at, found, slices.MaxFunc(list, compare), slices.MinFunc(list, compare), hash)
	list = slices.DeleteFunc(list, func(p pair) bool { return mix(p.n)%3 == 0 })
	fmt.Println(len(list), slices.IndexFunc(list, func(p pair) bool { return mix(p.n) > 800 }), hash)
	list = slices.CompactFunc(list, func(a, b pair) bool { return mix(a.n)/100 == mix(b.n)/100 })
	fmt.Println(len(list), slices.ContainsFunc(list, func(p pair) bool { return mix(p.n) > 8000 }), hash)
	i, ok := sort.Find(len(list), func(i int) int { return 30 - mix(list[i].n)%40 })
	fmt.Println(i, ok, slices.EqualFunc(list, list, func(a, b pair) bool { return mix(a.n) == b.n }), hash)
	m := map[int]int{}
	for i, x := range data(40) {
		m[i] = x
	}
	total := 0
	maps.DeleteFunc(m, func(k, v int) bool {
		for range k%2 + 1 { //difftest:loop
			total += v
		}
		return v%2 == 0
	})
	fmt.Println(len(m), total)
}

func texts() {
	s := strings.Repeat("the quick brown fox, äöü 12 34 ", 4)
	f := func(r rune) bool { return mix(int(r))%3 == 0 }
	fmt.Println(strings.Map(func(r rune) rune { return rune(mix(int(r) + 1)) }, s), hash)
	fmt.Println(len(strings.FieldsFunc(s, f)), strings.IndexFunc(s, f), strings.LastIndexFunc(s, f), hash)
	fmt.Println(strings.ContainsFunc(s, f), len(strings.TrimFunc(s, func(r rune) bool { return mix(int(r)) > 'e' })), hash)
	fmt.Println(string(bytes.Map(func(r rune) rune { return rune(mix(int(r) + 2)) }, []byte(s))), hash)
	fmt.Println(len(bytes.FieldsFunc([]byte(s), f)), hash)
}

func main() {
	sorts()
	interfaces()
	generic()
	texts()
	fmt.Println(hash, calls)
}
