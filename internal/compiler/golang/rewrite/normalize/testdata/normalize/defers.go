// Deferred calls, local types.
package main

import (
	"fmt"
	"os"
	"sync"
)

func say(a ...any) { fmt.Println(a...) }

func reach(x int) int { say("reach", x); return x }

func two(x int) (int, string) { return x, "two" }

type res struct {
	name string
	inner
}

type inner struct{ n int }

func (r res) value(x int)    { say("value", r.name, r.n, x) }
func (r *res) pointer(x int) { say("pointer", r.name, r.n, x) }
func (i inner) deep()        { say("deep", i.n) }
func (i *inner) deepPtr()    { say("deepPtr", i.n) }
func (r *res) Close() error  { say("close", r.name); return nil }

type closer interface{ Close() error }

type wrapped struct{ closer }

type flag bool

func takes(b flag, u uint8, a any, xs ...int) { say("takes", b, u, a, xs) }

func top(x int) (out int) {
	r := res{"r", inner{1}}
	p := &r
	var c closer = p
	w := wrapped{c}
	defer r.value(x)
	defer r.pointer(x + 1)
	defer p.value(x)
	defer p.pointer(reach(x))
	defer r.deep()
	defer r.deepPtr()
	defer p.deepPtr()
	defer p.deep()
	defer c.Close()
	defer w.Close()
	defer say("plain", r.n, x, nil, "const", 1<<x)
	defer say(two(x))
	defer takes(x == 1, 1<<x, x == 1, []int{x}...)
	defer func() { out += 100 }()
	defer func(y int) { say("arg", y, x) }(x)
	var mu sync.Mutex
	mu.Lock()
	defer mu.Unlock()
	f := func() { say("f", x) }
	defer f()
	g := func() { say("g", x) }
	defer g()
	g = nil
	ch := make(chan int)
	defer close(ch)
	m := map[int]int{x: 1}
	defer delete(m, x)
	defer func() { say("len", len(m)) }()
	x = 50
	r.n = 60
	r.name = "changed"
	c = nil
	w.closer = nil
	return reach(x)
}

func mode(m, t any) { fmt.Printf("%T %T\n", m, t) }

func conditional(x int) {
	a, b := x, "b"
	if x > 1 {
		defer say("in if", a, b, x+1)
	} else {
		q := &res{name: "else"}
		defer q.Close()
		q = nil
	}
	switch x {
	case 2:
		y := x * 3
		defer say("case", y, reach(y))
		y++
	}
	{
		defer say(two(x))
		defer func() { say("literal", a) }()
	}
	if x == 2 {
		// Their types are of packages that this file does not import.
		fi := os.Stdin
		defer say("foreign", fi == nil)
		st, _ := os.Lstat("/")
		defer mode(st.Mode(), st.ModTime())
	}
	a = 9
	reach(a)
	if x == 3 {
		defer say("not pending", a)
	}
	for range 2 {
		defer say("not pending in loop", a)
	}
}

func recovers() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("recovered: %v", r)
		}
	}()
	if reach(1) == 1 {
		defer say("on the way")
		panic(fmt.Sprint("p", reach(2)))
	}
	return nil
}

func types() {
	type node struct {
		v    int
		next *node
	}
	type (
		// list is a list.
		list  []node
		alias = node
		fn    func(x int) list
	)
	const size = 2
	var arr [size]alias
	n := &node{1, &node{2, nil}}
	//pt
	for n != nil {
		say(n.v)
		n = n.next
	}
	for i, e := range (list{{v: 5}}) {
		say(i, e.v, reach(e.v))
	}
	var f fn = func(x int) list { return list{{v: x}} }
	fmt.Printf("%T %T %T %v %v\n", n, list{}, f, len(arr), f(3)[0].v)
	if reach(1) == 1 {
		defer say("local type", node{v: 3}.v, n)
	}
	reach(2)
}

func main() {
	say(top(1))
	say(top(3))
	conditional(1)
	conditional(2)
	conditional(3)
	say(recovers())
	types()
	func() {
		//pt
		for i := range 2 {
			say(i)
		}
		defer say("in a literal")
		reach(3)
	}()
}
