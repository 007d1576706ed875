// Command unwindliterals covers func literals that call themselves and each
// other, with points: those that are only called, and others; and generic
// functions, which also unwind when a checkpoint is due.
package main

//difftest:daily

import (
	"cmp"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
)

// queens captures variables that change, and others.
func queens(n int) (count int) {
	cols, diags, antis := make([]bool, n), make([]bool, 2*n), make([]bool, 2*n+1)
	var place func(row int)
	place = func(row int) {
		if row == n {
			count++
			return
		}
		for c := 0; c < n; c++ { //difftest:loop
			if cols[c] || diags[row+c] || antis[row-c+n] {
				continue
			}
			cols[c], diags[row+c], antis[row-c+n] = true, true, true
			place(row + 1)
			cols[c], diags[row+c], antis[row-c+n] = false, false, false
		}
	}
	place(0)
	return count
}

// parity has two that call each other, one declared before the other is made.
func parity(k int) string {
	var steps []int
	var even, odd func(n int) bool
	even = func(n int) bool {
		if n == 0 {
			return true
		}
		for range 2 { //difftest:loop
			steps = append(steps, n)
		}
		return odd(n - 1)
	}
	odd = func(n int) bool {
		for i := range n { //difftest:loop
			if i == n-1 {
				return even(n - 1)
			}
		}
		return false
	}
	return fmt.Sprint(even(k), odd(k), steps)
}

// hides has variables, parameters, constants and types of the same names.
func hides(n int, names ...string) (out string, err error) {
	const limit = 3
	type pair struct{ a, b int }
	pairs := []pair{{1, 2}}
	total := 0
	walk := func(n int, _ string, more ...pair) (sum int, err error) {
		names := names
		total := total + n
		for i, p := range append(pairs, more...) { //difftest:loop
			if i > limit {
				return sum, errors.New(strings.Join(names, "+"))
			}
			p := &p
			p.a += n
			sum += p.a*p.b + total
		}
		return
	}
	for i := range n {
		x, e := walk(i, "x", pairs...)
		total += x
		if pairs = append(pairs, pair{i, x}); e != nil {
			err = e
		}
		if y, e := walk(x, "y"); e == nil {
			total -= y
		}
	}
	return fmt.Sprint(total, pairs), err
}

// rounds makes one in each iteration, which captures the iteration's variables.
func rounds(n int) (out []int) {
	for i := 0; i < n; i++ {
		base := i * 10
		var down func(k int) int
		down = func(k int) int {
			if k <= 0 {
				return base
			}
			s := 0
			for j := range 2 { //difftest:loop
				s += down(k-1-j) + i
				base++
			}
			return s
		}
		out = append(out, down(3), base)
		if up := func(int) int { base += i; return down(1) }; up(0) > i {
			out = append(out, up(1))
		}
	}
	return out
}

// nested has one in another, which captures from both.
func nested(n int) (log []string) {
	depth := 0
	outer := func(a int) int {
		sum := a
		var inner func(b int) int
		inner = func(b int) int {
			depth++
			for i := range 2 { //difftest:loop
				if b > 0 {
					sum += inner(b-1) + a*i
				}
			}
			log = append(log, fmt.Sprint(a, b, sum, depth))
			depth--
			return sum
		}
		return inner(2) + inner(a)
	}
	for i := range n { //difftest:loop
		log = append(log, fmt.Sprint(outer(i)))
	}
	return log
}

type shelf struct{ books []string }

// shelves captures a receiver, is called on its address, and has deferred calls.
func (s shelf) shelves(k int) (out string) {
	var b strings.Builder
	put := func(from int) (n int) {
		defer func() { b.WriteByte('.') }()
		for i, t := range s.books { //difftest:loop
			fmt.Fprint(&b, i+from, t)
			n += len(t)
		}
		return n
	}
	twice := func() (int, int) { return put(1), put(2) }
	both := func(a, b int) int {
		for range 2 { //difftest:loop
			a, b = b, a+b
		}
		return a
	}
	k += both(twice())
	return fmt.Sprint(b.String(), k)
}

// given are literals that are more than called.
func given(n int) (out []int) {
	var f func(k int) int
	f = func(k int) int {
		s := k
		for i := range k { //difftest:loop
			s += f(i)
		}
		return s
	}
	list := []int{3, 1, 2}
	sort.Slice(list, func(i, j int) bool { return f(list[i]) < f(list[j]) })
	apply := func(g func(int) int, k int) int { return g(k) }
	out = append(list, apply(f, 3))
	g := f
	f = func(k int) int { return g(k) + 1 }
	out = append(out, f(n), g(n))
	done := make(chan int)
	h := func(k int) int {
		s := 0
		for i := range k { //difftest:loop unsaved
			s += i
		}
		return s
	}
	go func() { done <- h(5) }()
	out = append(out, <-done)
	go func(k int) { done <- h(k) }(n)
	return append(out, <-done, h(n))
}

// recovers has one that panics below others.
func recovers(n int) (out []string) {
	var dive func(k int) int
	dive = func(k int) int {
		for i := range 2 { //difftest:loop
			if k == 0 && i == 1 {
				panic(fmt.Sprint("bottom of ", n))
			}
			if k > 0 {
				n += dive(k - 1)
			}
		}
		return n
	}
	safe := func(k int) (s string) {
		defer func() {
			if e := recover(); e != nil {
				s = fmt.Sprint("recovered ", e)
			}
		}()
		return fmt.Sprint(dive(k))
	}
	for i := range n { //difftest:loop
		out = append(out, safe(i))
	}
	return out
}

// maybe has variables that hold something else, or nothing, at first.
func maybe(cond bool) (out []string) {
	defer func() { out = append(out, fmt.Sprint(recover() != nil)) }()
	k := 0
	var f func(int) = func(n int) { k -= n }
	if cond {
		f = func(n int) {
			for i := range n { //difftest:loop
				k += i
			}
		}
	}
	f(3)
	out = append(out, fmt.Sprint(k))
	var g func(int)
	if cond {
		g = func(n int) {
			for i := range n { //difftest:loop
				fmt.Println("maybe", i)
			}
		}
	}
	g(2)
	return out
}

// anew has one that is made anew while it runs.
func anew() (out []string) {
	var f, g func(int)
	g = func(k int) {
		f = func(n int) {
			for i := range 2 { //difftest:loop
				out = append(out, fmt.Sprint(k, n, i))
			}
			if n == 2 {
				g(k + 1)
			}
			if n > 0 {
				f(n - 1)
			}
		}
	}
	g(0)
	f(3)
	return out
}

// walks has a literal in another that it calls.
func walks(n int) (out []int) {
	var walk func(k int)
	walk = func(k int) {
		child := func(c int) {
			for range 2 { //difftest:loop
				out = append(out, c)
			}
			if c > 0 {
				walk(c - 1)
			}
		}
		child(k)
		child(k / 2)
	}
	walk(n)
	return out
}

// fetched is changed by a literal that goroutines call by way of another one.
func fetched() int {
	x := 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	f := func(n int) {
		for i := range n {
			mu.Lock()
			x += i
			mu.Unlock()
		}
	}
	for range 3 { //difftest:loop
		wg.Add(1)
		go func() {
			defer wg.Done()
			f(3)
		}()
	}
	wg.Wait()
	f(5)
	return x
}

type meter struct{ n int }

func (m meter) adds(k int) int {
	for j := range k { //difftest:loop
		m.n += j
	}
	return m.n
}

func (m *meter) counts(k int) int {
	for j := range k { //difftest:loop
		m.n += j
	}
	return m.n
}

type dial struct{ *meter }

type panel struct{ dial }

// methods are called as functions.
func methods() []int {
	p := panel{dial{&meter{2}}}
	a := (*meter).adds(p.meter, 3)
	b := panel.counts(p, 4)
	c := (*dial).counts(&p.dial, 2)
	return []int{a, b, c, meter.adds(*p.meter, 2)}
}

// Generic functions and types.
type tree[K cmp.Ordered, V any] struct {
	left, right *tree[K, V]
	key         K
	val         V
}

func (t *tree[K, V]) put(k K, v V) *tree[K, V] {
	if t == nil {
		return &tree[K, V]{key: k, val: v}
	}
	for range 1 { //difftest:loop
		switch {
		case k < t.key:
			t.left = t.left.put(k, v)
		case k > t.key:
			t.right = t.right.put(k, v)
		default:
			t.val = v
		}
	}
	return t
}

func (t *tree[K, V]) each(f func(K, V)) (n int) {
	if t == nil {
		return 0
	}
	for i, c := range []*tree[K, V]{t.left, t.right} { //difftest:loop
		n += c.each(f)
		if i == 0 {
			f(t.key, t.val)
			n++
		}
	}
	return n
}

func permute[T any](list []T, k int, f func([]T)) {
	if k == len(list) {
		f(list)
		return
	}
	for i := k; i < len(list); i++ { //difftest:loop
		list[k], list[i] = list[i], list[k]
		permute(list, k+1, f)
		list[k], list[i] = list[i], list[k]
	}
}

// nests calls itself with other types.
func nests[T any](x T, k int) string {
	s := fmt.Sprintf("%T", x)
	for range 2 { //difftest:loop
		if k > 0 {
			s += nests[any](x, k-1) + first[string, T](s, x)
		}
	}
	return s
}

func first[A, B any](a A, b B) A {
	for range 2 { //difftest:loop
		_ = b
	}
	return a
}

func fold[T, R any](list []T, r R, f func(R, T) R) R {
	var rec func(i int)
	rec = func(i int) {
		for range 1 { //difftest:loop
			if i < len(list) {
				r = f(r, list[i])
				rec(i + 1)
			}
		}
	}
	rec(0)
	return r
}

func generic() {
	var t *tree[string, int]
	for i, w := range strings.Fields("the quick brown fox jumps over the lazy dog") { //difftest:loop
		t = t.put(w, i)
	}
	sum := 0
	fmt.Println(t.each(func(k string, v int) { sum = sum*3 + len(k) + v }), sum)
	var words []string
	permute([]rune("abc"), 0, func(r []rune) { words = append(words, string(r)) })
	fmt.Println(words)
	fmt.Println(nests(1.5, 2))
	fmt.Println(fold([]int{1, 2, 3}, "", func(s string, i int) string { return s + fmt.Sprint(i) }))
}

func main() {
	fmt.Println(queens(5))
	fmt.Println(parity(3))
	fmt.Println(hides(4, "a", "b"))
	fmt.Println(rounds(2))
	fmt.Println(nested(2))
	fmt.Println(shelf{[]string{"x", "yz"}}.shelves(2))
	fmt.Println(given(4))
	fmt.Println(recovers(3))
	fmt.Println(maybe(true), maybe(false))
	fmt.Println(anew())
	fmt.Println(walks(3))
	fmt.Println(fetched())
	fmt.Println(methods())
	generic()
}
