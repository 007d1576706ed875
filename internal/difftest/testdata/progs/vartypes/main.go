// Command vartypes has package variables with func literals, as programs with
// subcommands do. Types in them have the same names.
package main

import (
	"fmt"
	"sync"
)

type command struct {
	name string
	run  func(n int) uint32
}

func work(seed int) (h uint32) {
	h = 2166136261
	for k := range 2000 {
		h = h*16777619 ^ uint32(k+seed)
	}
	return h
}

var sum = &command{name: "sum", run: func(n int) (total uint32) {
	type record struct {
		id   int
		hash uint32
	}
	type table map[int]record
	all := table{}
	for i := range n { //difftest:loop
		all[i%3] = record{i, all[i%3].hash ^ work(i)}
		total += all[i%3].hash
		fmt.Printf("sum %d %08x\n", i, total)
	}
	return total
}}

var parallel = &command{name: "parallel", run: func(n int) (total uint32) {
	type record struct {
		id    int
		words []string
	}
	type table []record
	in, out := make(chan record), make(chan record)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for r := range in {
				r.words = append(r.words, fmt.Sprintf("%08x", work(r.id)))
				out <- r
			}
		})
	}
	go func() {
		for i := range n {
			in <- record{id: i, words: []string{fmt.Sprint(i)}}
		}
		close(in)
		wg.Wait()
		close(out)
	}()
	all := make(table, n)
	for r := range out { //difftest:loop
		all[r.id] = r
		total += work(r.id)
	}
	for _, r := range all {
		fmt.Println("parallel", r.id, r.words)
	}
	return total
}}

var (
	shown = func(n int) (total uint32) {
		type record struct{ id int }
		var list []any
		for i := range n { //difftest:loop
			list = append(list, record{i})
			total ^= work(i + len(list))
		}
		fmt.Printf("shown %T %v %08x\n", list[0], list, total)
		return total
	}
	third = command{name: "shown", run: shown}
)

func main() {
	total := uint32(0)
	for _, c := range []*command{sum, parallel, &third} {
		total = total*31 + c.run(8)
		fmt.Printf("%s %08x\n", c.name, total)
	}
}
