package generic

import (
	"cmp"
	"fmt"
	"time"

	"test/hook"
)

type number interface{ ~int | ~float64 }

type celsius float64

func accumulate[T number](start T) func(T) T {
	return func(x T) T { start += x; return start }
}

// plain uses no type parameter in its literal.
func plain[T any](xs []T) func() int {
	n := len(xs)
	return func() int { n++; return n }
}

func compose[A, B, C any](f func(A) B, g func(B) C) func(A) C {
	return hook.See(func(a A) C { return g(f(a)) })
}

func zero[T any]() func() T {
	return func() T { var z T; return z }
}

func describe[K cmp.Ordered, V fmt.Stringer](k K) func(V) string {
	inner := func() string { return fmt.Sprintf("%T %v", k, k) }
	return func(v V) string { return hook.See(inner)() + " " + v.String() }
}

type stack[T any] struct{ items []T }

func (s *stack[T]) push(x T) { s.items = append(s.items, x) }
func (s *stack[E]) drain() func() (E, bool) {
	i := len(s.items)
	return func() (e E, ok bool) {
		if i == 0 {
			return
		}
		i--
		return s.items[i], true
	}
}

func of[T any](xs ...T) *stack[T] {
	s := new(stack[T])
	for _, x := range xs {
		s.push(x)
	}
	return s
}

type tree[K cmp.Ordered, V any] struct{ root *node[K, V] }

type node[K cmp.Ordered, V any] struct {
	k           K
	v           V
	left, right *node[K, V]
}

func (t *tree[K, V]) put(k K, v V) {
	p := &t.root
	for *p != nil {
		if k < (*p).k {
			p = &(*p).left
		} else {
			p = &(*p).right
		}
	}
	*p = &node[K, V]{k: k, v: v}
}

func (n *node[K, V]) each(visit func(K, V) bool) bool {
	return n == nil || n.left.each(visit) && visit(n.k, n.v) && n.right.each(visit)
}

func (n *node[Key, Val]) walker() func(func(Key, Val) bool) {
	return func(yield func(Key, Val) bool) { n.each(yield) }
}

func nested[T any](x T, n int) func() func() []T {
	out := []T{}
	return func() func() []T {
		n++
		return hook.See(func() []T {
			for range n {
				out = append(out, x)
			}
			return out
		})
	}
}

// never is not instantiated anywhere.
func never[T any](x T) func() T { return func() T { return x } }

func Run() {
	a, b := hook.See(accumulate(1)), hook.See(accumulate(celsius(1.5)))
	fmt.Println(a(2), a(3), b(2), b(0.25))
	fmt.Printf("%T %T\n", a, b)
	p := hook.See(plain([]string{"x"}))
	fmt.Println(p(), hook.See(plain([]int(nil)))())
	c := compose(func(n int) string { return fmt.Sprint(n) }, func(s string) []byte { return []byte(s + "!") })
	fmt.Println(string(c(41)))
	fmt.Println(hook.See(zero[int]())(), hook.See(zero[*celsius]())(), zero[[2]string]()())
	d := hook.See(describe[string, time.Duration]("k"))
	fmt.Println(d(time.Second), hook.See(describe[int, time.Month](3))(time.May))
	next := hook.See(of("a", "b").drain())
	for s, ok := next(); ok; s, ok = next() {
		fmt.Print(s, " ")
	}
	n2 := hook.See(of(&celsiusZero).drain())
	v, ok := n2()
	fmt.Println(*v, ok)
	var t tree[string, int]
	for i, w := range []string{"m", "c", "x", "a"} {
		t.put(w, i)
	}
	for k, v := range hook.See(t.root.walker()) {
		fmt.Print(k, v, " ")
	}
	fmt.Println()
	f := hook.See(nested(celsius(3), 1))
	g := f()
	fmt.Println(g(), f()(), hook.See(nested("s", 0))()())
}

var celsiusZero celsius
