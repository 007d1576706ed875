// Command polypoint covers points inside methods that are reached through an
// interface, so that the caller must know whom it called.
package main

import "fmt"

type task interface{ run(depth int) int }

type leaf struct{ data []int }

func (l *leaf) run(depth int) int {
	sum := 0
	for i := range l.data { //difftest:loop
		for k := range 2000 {
			l.data[i] = (l.data[i]*5 + k + depth) % 8191
		}
		sum += l.data[i]
		fmt.Println("leaf", depth, i, sum)
	}
	return sum
}

type seq []task

func (s seq) run(depth int) int {
	sum := depth
	for i, t := range s {
		sum = sum*3 + t.run(depth+1)
		fmt.Println("seq", depth, i, sum)
	}
	return sum
}

type twice struct {
	task
	times int
}

func (t twice) run(depth int) int {
	return t.task.run(depth+1) + t.task.run(depth+2)*t.times
}

type fn func(int) int

func (f fn) run(depth int) int { return f(depth) }

func main() {
	a := &leaf{[]int{1, 2, 3}}
	b := &leaf{[]int{7}}
	all := seq{a, twice{b, 10}, fn(func(d int) int { return d * 100 }), seq{b, a}}
	var t task = all
	fmt.Println(t.run(0))
	fmt.Println(a.data, b.data)
}
