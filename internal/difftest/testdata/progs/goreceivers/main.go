// Command goreceivers changes what leads to the receivers of goroutines before
// these begin, and calls methods by method expressions of interfaces.
package main

import "fmt"

type worker struct {
	n   int
	out chan int
}

func (w worker) byValue(k int) {
	s := 0
	for i := range k { //difftest:loop
		s += i + w.n
	}
	w.out <- s
}

func (w *worker) byPointer(k int) {
	s := 0
	for i := range k { //difftest:loop
		s += i * w.n
	}
	w.out <- s
}

type runner interface{ byValue(int) }

type holder struct{ *worker }

type outer struct {
	pad int
	holder
}

type any2 struct{ runner }

type stack[T any] struct {
	top T
	out chan int
}

func (s stack[T]) show(k int) {
	for i := range k { //difftest:loop
		k += i
	}
	s.out <- k + len(fmt.Sprint(s.top))
}

func each[R runner](list []R) {
	for i, r := range list {
		go r.byValue(i + 3)
		R.byValue(r, i)
	}
}

func sum(out chan int, n int) (s int) {
	for range n { //difftest:loop
		s += <-out
	}
	return s
}

func next(k *int) int { *k++; return *k }

func main() {
	out := make(chan int, 8)
	w := &worker{3, out}
	go w.byValue(4)
	w.n = 5
	fmt.Println(sum(out, 1))

	h := holder{w}
	o := &outer{1, h}
	go h.byValue(4)
	go h.byPointer(4)
	go o.byValue(5)
	go o.byPointer(5)
	h.worker, o.worker, w.n = &worker{100, out}, nil, 5
	fmt.Println(sum(out, 4))

	var r runner = worker{7, out}
	a := any2{r}
	go runner.byValue(r, 3)
	go a.byValue(3)
	go any2.byValue(a, 4)
	go interface{ byValue(int) }.byValue(a, 5)
	r, a.runner = nil, nil
	fmt.Println(sum(out, 4))

	s := &stack[string]{"abc", out}
	go s.show(3)
	go (*stack[string]).show(s, 4)
	fmt.Println(sum(out, 2))
	s.top = "changed"

	k := 2
	r = worker{2, out}
	for i := range 4 { //difftest:loop
		runner.byValue(r, next(&k))
		interface{ byValue(int) }.byValue(&worker{i, out}, i)
	}
	fmt.Println(sum(out, 8), k)
	each([]worker{{1, out}, {2, out}})
	each([]*worker{{3, out}, {4, out}})
	fmt.Println(sum(out, 8))
	defer func() { fmt.Println("recovered:", recover() != nil) }()
	runner.byValue(nil, next(&k))
}
