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
		{"method", `package main

import (
	"io"
	"os"
)
` + none(work) + `
type sink struct{ sum int }

func (s *sink) Write(text []byte) (int, error) {
	s.sum += work(len(text) << 20)
	return len(text), nil
}

func main() {
	for i := range 3 { // point
		println(i)
	}
	s := new(sink)
	io.Copy(s, os.Stdin)
	println(s.sum)
}
`, "io.Copy at main.go:29, a function of a library, calls sink.Write"},
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

// TestInstrument_WarnsOfNetworkWaits: the build warns of goroutines that wait
// for the network, unless they are in the background.
func TestInstrument_WarnsOfNetworkWaits(t *testing.T) {
	const text = `package main

import "net"

func serve(l net.Listener, jobs chan<- int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Close()
		jobs <- 1
	}
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	jobs := make(chan int)
	COMMENT
	go serve(l, jobs)
	sum := 0
	for i := 0; i < 1000; i++ { // point
		for j := 0; j < 100000; j++ {
			sum = (sum*31 + i*j) % 9001
		}
		sum += <-jobs
	}
	println(sum)
}
`
	checkPoints(t, strings.Replace(text, "COMMENT", "", 1), "the goroutine that is started at main.go:23 waits for the network at main.go:7 (l.Accept); while it waits, no checkpoint can be taken; if it does not matter for the result, put //cairn:background before the go statement")
	checkPoints(t, strings.Replace(text, "COMMENT", "//cairn:background", 1), "")
}

// point and none say whether the loop of a function must have a point.
func point(text string) string { return strings.Replace(text, "LOOP", "point", 1) }
func none(text string) string  { return strings.Replace(text, "LOOP", "none", 1) }
