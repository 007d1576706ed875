package basic

import (
	"fmt"
	"sort"
	"strings"
	"unsafe"

	"test/hook"
)

type op struct {
	name string
	do   func(int) int
}

var table = map[string]func(int) int{
	"inc": func(n int) int { return n + 1 },
	"dbl": func(n int) int { return n * 2 },
}

var counter = func() func() int {
	n := 0
	return func() int { n++; return n }
}()

func init() {
	base := 100
	table["add"] = func(n int) int { return n + base }
}

func init() {
	table["none"] = func(n int) int { return n }
}

func fields() {
	total := 0
	ops := []op{
		{"add", func(n int) int { total += n; return total }},
		{name: "sub", do: func(n int) int { total -= n; return total }},
	}
	for i := range ops {
		ops[i].do = hook.See(ops[i].do)
	}
	for i := 0; i < 4; i++ {
		fmt.Println(ops[i%2].name, ops[i%2].do(i*3), total)
	}
	m := map[string]func(...string) string{}
	sep := ","
	m["join"] = func(s ...string) string { return strings.Join(s, sep) }
	m["len"] = func(s ...string) string { return fmt.Sprint(len(s), sep) }
	sep = ";"
	fmt.Println(hook.See(m["join"])("a", "b"), hook.See(m["len"])())
}

func adder(start int) (add func(int) int, get func() int) {
	return func(n int) int { start += n; return start }, func() int { return start }
}

func recursive() {
	var fib func(int) int
	calls := 0
	fib = func(n int) int {
		calls++
		if n < 2 {
			return n
		}
		return fib(n-1) + fib(n-2)
	}
	f := hook.See(fib)
	fmt.Println(f(12), calls)
}

func deep(a int) func(int) func(int) func(int) int {
	sum := 0
	return func(b int) func(int) func(int) int {
		prod := a * b
		return hook.See(func(c int) func(int) int {
			sum += prod + c
			a++
			inner := func(d int) int {
				sum += d
				prod++
				return a*1000 + b*100 + c*10 + d + sum + prod
			}
			return hook.See(inner)
		})
	}
}

func named(x int) (res int, err error) {
	defer func() {
		if r := recover(); r != nil {
			res, err = -1, fmt.Errorf("recovered %v", r)
		}
	}()
	set := func(v int) { res = v }
	hook.See(set)(x * 2)
	bump := func() { res++; x = -x }
	hook.See(bump)()
	if x == -3 {
		panic("three")
	}
	return res + x, nil
}

func recovered() (s string) {
	f := func() {
		if r := recover(); r != nil {
			s = fmt.Sprint("got ", r)
		}
	}
	f = hook.See(f)
	defer f()
	panic("boom")
}

func arrays() {
	var grid [3][2]int
	set := hook.See(func(i, j, v int) { grid[i][j] = v; grid[i][1-j]++ })
	set(1, 0, 5)
	set(2, 1, 7)
	size := hook.See(func() int { return len(grid)*10 + cap(grid[0]) })
	sum := hook.See(func() (n int) {
		const k = len(grid)
		for _, row := range grid {
			grid[0][0] = 99
			for _, v := range row[:] {
				n += v
			}
		}
		return n * k
	})
	fmt.Println(grid, size(), sum(), grid)
	p := hook.See(func() *int { return &grid[2][0] })()
	*p = 42
	fmt.Println(grid)
}

func constants() {
	const (
		a = iota + 3
		b
		f         = 1.0 / 3
		g float32 = 2
		r         = 'x'
		s         = "a\"b"
		t         = a < b
		z         = 2 + 3i
		h         = 1e300
	)
	n := 1
	c := hook.See(func(v [b]int) string {
		n++
		return fmt.Sprint(a, b, f, g, string(r), s, t, z, h, len(v), n, fmt.Sprintf("%T %T %T %T", a, f, r, g))
	})
	fmt.Println(c([4]int{}), f*3 == 1)
	d := hook.See(func(v [b]int) int { return v[b-1] + a })
	fmt.Println(d([b]int{3: 9}))
}

const debug = false

func dead() {
	n := 0
	f := func() int {
		if debug {
			n++
		}
		return 7
	}
	f = hook.See(f)
	g := hook.See(func() int { return debugging(debug && n > 0) })
	h := hook.See(func() int {
		if !debug {
			return 8
		} else if n > 0 {
			return 9
		}
		for ; debug; n++ {
		}
		return n
	})
	k := hook.See(func() int { panic(fmt.Sprint("k", unsafe.Sizeof(n) == 0, debug && n == 1)) })
	defer func() { fmt.Println(recover()) }()
	fmt.Println(f(), g(), h(), n)
	k()
}

func size() {
	n, arr := int32(5), [7]bool{}
	f := hook.See(func() uintptr { return unsafe.Sizeof(n) + unsafe.Sizeof(arr)*10 + uintptr(len(arr)) })
	fmt.Println(f())
}

func debugging(b bool) int {
	if b {
		return 1
	}
	return 2
}

func shadows() {
	x, len, e := 1, 10, 100
	f := hook.See(func(y int) int {
		x := x + len
		{
			x := x * 2
			len += x
		}
		e++
		return x + y + e
	})
	fmt.Println(f(1), x, len, e)
	int := 5
	nil := func() bool { int++; return true }
	fmt.Println(hook.See(nil)(), int)
}

func switches(v any) func() string {
	switch v := v.(type) {
	case int:
		return func() string { v++; return fmt.Sprint("int ", v) }
	case string:
		return func() string { v += "!"; return "string " + v }
	case nil:
		return func() string { return "nil" }
	}
	return func() string { return fmt.Sprint("other ", v) }
}

func control() {
	ch := make(chan int, 8)
	n, k, last := 0, 0, 0
	f := hook.See(func(xs []int) {
		for n = range xs {
			k += n
		}
		for n, last = range xs {
			ch <- last
		}
		select {
		case n = <-ch:
		default:
		}
		for n < 20 && k >= 0 {
			n += 7
		}
		switch n {
		case 22:
			k = -k
		}
		if n := n; n > 20 {
			last += n
		}
	outer:
		for k = 0; k < 3; k++ {
			for {
				if k == 1 {
					continue outer
				}
				break
			}
			last++
		}
	})
	f([]int{1, 2, 3})
	fmt.Println(n, k, last, len(ch))
	go hook.See(func() { ch <- n; close(ch) })()
	for v := range ch {
		fmt.Print(v, " ")
	}
	fmt.Println()
	words := strings.Fields("the quick brown fox")
	sort.Slice(words, func(i, j int) bool { return words[i] < words[j] })
	fmt.Println(words)
}

func headers() {
	n := 3
	if f := func() int { n--; return n }; hook.See(f)() > 0 {
		fmt.Println("positive", n)
	}
	for i := 0; func() bool { return i < n }(); i++ {
		fmt.Print(i, " ")
	}
	switch g := (func() bool { return n == 2 }); {
	case g():
		fmt.Println("two")
	}
	ch := (<-chan int)(nil)
	s := struct {
		f func() bool
		a [2]func() int
	}{func() bool { return ch == nil }, [...]func() int{1: func() int { return n }}}
	fmt.Println(hook.See(s.f)(), s.a[1](), s.a[0] == nil)
}

func Run() {
	for _, k := range []string{"inc", "dbl", "add", "none"} {
		fmt.Println(k, hook.See(table[k])(20))
	}
	fmt.Println(hook.See(counter)(), counter())
	fields()
	add, get := adder(5)
	fmt.Println(hook.See(add)(3), hook.See(get)(), add(4), get())
	recursive()
	d := hook.See(deep(2))(3)
	e := d(4)
	fmt.Println(e(5), e(6), d(1)(1), deep(7)(1)(1)(1))
	for i := range 4 {
		fmt.Println(named(i))
	}
	fmt.Println(recovered())
	arrays()
	constants()
	dead()
	size()
	shadows()
	for _, v := range []any{1, "s", nil, 2.5} {
		f := hook.See(switches(v))
		fmt.Println(f(), f())
	}
	control()
	headers()
}
