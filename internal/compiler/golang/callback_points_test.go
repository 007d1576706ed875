package golang

import (
	"strings"
	"testing"
)

// TestInstrument_Callbacks: work in functions that the standard library calls,
// and in deferred calls, has points or a warning.
func TestInstrument_Callbacks(t *testing.T) {
	const work = `
func work(n int) (s int) {
	for i := 0; i < n; i++ { // LOOP
		for j := 0; j < 100000; j++ {
			s = (s*31 + i*j) % 9001
		}
	}
	return s
}
`
	for _, c := range []struct{ name, text, told string }{
		{"sort", `package main

import "sort"
` + point(work) + `
func main() {
	list := make([]int, 100)
	sort.Slice(list, func(i, j int) bool { return work(list[i]) < work(list[j]) })
	println(list[3])
}
`, ""},
		{"func value", `package main

import "slices"
` + point(work) + `
func main() {
	list := make([]int, 100)
	by := func(a, b int) int { return work(a) - work(b) }
	slices.SortFunc(list, by)
	println(list[3])
}
`, ""},
		{"interface", `package main

import "sort"
` + point(work) + `
type list []int

func (l list) Len() int           { return len(l) }
func (l list) Less(i, j int) bool { return work(l[i]) < work(l[j]) }
func (l list) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }

func main() {
	l := list{3, 1, 2}
	sort.Sort(sort.Reverse(l))
	println(l[1])
}
`, ""},
		{"tight comparison", `package main

import (
	"fmt"
	"sort"
)

func main() {
	list := make([][]byte, 100)
	for i := 0; i < 1000; i++ { // point
		sort.Slice(list, func(i, j int) bool {
			for k := range list[i] { // none
				if list[i][k] != list[j][k] {
					return list[i][k] < list[j][k]
				}
			}
			return false
		})
		fmt.Println(list[0])
	}
}
`, ""},
		{"other callback", `package main

import "sync"
` + none(work) + `
func main() {
	var m sync.Map
	for i := range 3 { // point
		m.Store(i, i)
	}
	m.Range(func(k, v any) bool {
		println(work(1 << 30))
		return true
	})
}
`, "m.Range at main.go:19, a function of a library, calls a function literal in main"},
		{"deferred", `package main
` + none(work) + `
func main() {
	defer func() {
		println(work(1 << 30))
	}()
	for i := range 3 { // point
		println(i)
	}
}
`, "a call that is deferred at main.go:13 leads to it"},
		{"once", `package main

import "sync"
` + none(work) + `
var table = sync.OnceValue(func() int { return work(1 << 30) })

func main() {
	for i := range 3 { // point
		println(i, table())
	}
}
`, "sync.OnceValue at main.go:14, a function of a library, calls a function literal"},
	} {
		t.Run(c.name, func(t *testing.T) { checkPoints(t, c.text, c.told) })
	}
}

// point and none say whether the loop of a function must have a point.
func point(text string) string { return strings.Replace(text, "LOOP", "point", 1) }
func none(text string) string  { return strings.Replace(text, "LOOP", "none", 1) }
