package methods

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"test/hook"
)

type point struct{ x, y int }

func (p point) sum(k int) int                 { return p.x + p.y*k }
func (p *point) move(d ...int) (*point, bool) { p.x += len(d); p.y++; return p, len(d) > 1 }

type adder interface{ sum(int) int }

type base struct{ log []string }

func (b *base) Log(format string, args ...any) { b.log = append(b.log, fmt.Sprintf(format, args...)) }
func (b base) Len() int                        { return len(b.log) }

type middle struct {
	*base
	n int
}

type outer struct {
	middle
	sync.Mutex
	io.Writer
}

type num int

func (n num) add(m num) num { return n + m }
func (n *num) inc() num     { *n++; return *n }
func (num) zero(_, _ int)   {}

var calls int

func get(p *point) *point { calls++; return p }

func order() {
	p := &point{1, 2}
	f := hook.See(get(p).sum)
	fmt.Println(calls)
	p.x = 100
	fmt.Println(f(10), f(1), calls)
	g := hook.See(p.move)
	q, ok := g(1, 2, 3)
	fmt.Println(q == p, ok, *p)
	v := point{7, 8}
	h, s := hook.See(v.move), hook.See(v.sum)
	h()
	fmt.Println(v, s(1))
	var a adder = v
	i := hook.See(a.sum)
	a = point{}
	fmt.Println(i(2), a.sum(2))
	all := []func(int) int{point{1, 1}.sum, (&point{2, 2}).sum, a.sum, (*p).sum}
	for _, f := range all {
		fmt.Print(hook.See(f)(3), " ")
	}
	fmt.Println()
}

func embedded() {
	var w strings.Builder
	o := outer{middle: middle{base: &base{}}, Writer: &w}
	log := hook.See(o.Log)
	size := hook.See(o.Len)
	write := hook.See(o.Write)
	old := o.base
	o.base = &base{}
	log("%d-%s", 1, "a")
	log("plain")
	write([]byte("written"))
	fmt.Println(old.log, len(o.log), size(), o.Len(), w.String())
	lock, unlock := hook.See(o.Lock), hook.See(o.Unlock)
	lock()
	fmt.Println(o.TryLock())
	unlock()
	fmt.Println(o.TryLock())
	po := &o
	fmt.Println(hook.See(po.middle.Len)())
	fmt.Println(hook.See(w.WriteString)("x"))
}

func panics() {
	try := func(what string, f func()) {
		defer func() { fmt.Println(what, recover() != nil) }()
		f()
	}
	try("interface", func() { var a adder; f := a.sum; _ = f; fmt.Println("not reached") })
	try("pointer", func() { var p *point; f := p.sum; _ = f; fmt.Println("not reached") })
	try("embedded", func() { var p *outer; f := p.Len; _ = f; fmt.Println("not reached") })
	try("late", func() { var p *point; f := p.move; fmt.Println("reached"); f() })
}

func captured() {
	n := num(3)
	f := func() func() num {
		n += 10
		return hook.See(n.inc)
	}
	inc := hook.See(f)()
	inc()
	fmt.Println(n, inc(), hook.See(n.add)(5), n)
	hook.See(n.zero)(1, 2)
	e := errors.New("bad")
	fmt.Println(hook.See(e.Error)())
	list := []func() string{e.Error, fmt.Errorf("worse: %w", e).Error}
	for _, f := range list {
		fmt.Println(f())
	}
}

func expressions() {
	p := point{1, 2}
	f := hook.See(point.sum)
	g := hook.See((*point).move)
	h := hook.See(adder.sum)
	k := hook.See((*point).sum)
	g(&p, 1, 2)
	fmt.Println(f(p, 3), h(p, 4), k(&p, 5), point.sum(p, 6))
}

type pair[K comparable, V any] struct {
	k K
	v V
}

func (p *pair[K, V]) set(k K, vs ...V) int { p.k = k; p.v = vs[0]; return len(vs) }
func (p pair[K, V]) get() (K, V)           { return p.k, p.v }

func (p *pair[K, V]) both() (func(K, ...V) int, func() (K, V)) { return p.set, p.get }

func generic() {
	a, b := pair[string, int]{"a", 1}, pair[int, []byte]{}
	set, get := a.both()
	fmt.Println(hook.See(set)("x", 5, 6), a)
	fmt.Println(hook.See(get)())
	fmt.Println(hook.See(b.set)(3, []byte("hi")), b)
	_, get2 := b.both()
	fmt.Println(hook.See(get2)())
}

func Run() {
	order()
	embedded()
	panics()
	captured()
	expressions()
	generic()
}
