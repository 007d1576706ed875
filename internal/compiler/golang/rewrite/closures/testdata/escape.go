package escape

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

type T struct{ f func() }

func (T) M()                {}
func (T) less(a, b int) int { return a - b }

var glob = /*yes*/ func() {}

func run(xs []int, t T, f func()) (res func()) {
	/*no*/ func() { xs[0]++ }()
	defer /*no*/ func() { recover() }()
	go /*no*/ func() {}()
	sort.Slice(xs /*no*/, func(i, j int) bool { return xs[i] < xs[j] })
	slices.SortFunc(xs /*no*/, func(a, b int) int { return a - b })
	slices.SortFunc[[]int](xs, ( /*no*/ func(a, b int) int { return a - b }))
	slices.SortFunc(xs /*no*/, t.less)
	fmt.Println(strings.Map( /*no*/ func(r rune) rune { return r }, "x"), strings.FieldsFuncSeq("x" /*yes*/, func(rune) bool { return true }))
	var once struct{ sync.Once }
	once.Do( /*no*/ func() {})
	defer once.Do( /*yes*/ func() {})
	regexp.MustCompile("x").ReplaceAllStringFunc("x" /*no*/, func(s string) string { return s })
	time.AfterFunc(0 /*yes*/, func() {})
	_ = sync.OnceFunc( /*yes*/ func() {})
	http.Handle("/", http.HandlerFunc( /*yes*/ func(http.ResponseWriter, *http.Request) {}))
	for range /*no*/ func(yield func(int) bool) {} {
		break
	}

	only := /*no*/ func(a, b int) int { return a - b }
	only(1, 2)
	slices.SortFunc(xs, only)
	func() { only(2, 1) }()
	var fib func(int) int
	fib = /*no*/ func(n int) int { return fib(n - 1) }
	fib(3)
	var even, odd func(int) bool
	even = /*no*/ func(n int) bool { return odd(n) }
	odd = /*no*/ func(n int) bool { return even(n) }
	even(1)
	var bad, worse func(int) bool
	bad = /*yes*/ func(n int) bool { return worse(n) }
	worse = /*yes*/ func(n int) bool { return bad(n) }
	keep(worse)

	deferred := /*yes*/ func() {}
	defer deferred()
	twice := /*yes*/ func() {}
	if len(xs) > 3 {
		twice = /*yes*/ func() {}
	}
	twice()
	stored := /*yes*/ func() {}
	t.f = stored
	captured := /*yes*/ func() {}
	t.f = /*yes*/ func() { captured() }
	asked := /*yes*/ func() {}
	fmt.Println(asked == nil)
	addr := /*yes*/ func() {}
	p := &addr
	(*p)()
	f = /*yes*/ func() {}
	f()
	value := /*yes*/ t.M
	value()
	dropped := /*no*/ func() {}
	_ = dropped
	var decl = /*no*/ func() {}
	decl()
	var (
		decl1 = /*yes*/ func() {}
		decl2 = 1
	)
	decl1()
	_ = decl2
	keep( /*yes*/ func(int) bool { return true })
	a, b := /*yes*/ func() int { return 1 } /*yes*/, func() int { return 2 }
	fmt.Println(a(), b)
	t = T{ /*yes*/ func() {}}
	m := map[string]func(){"": /*yes*/ func() {}}
	m[""]()
	ch := make(chan func(), 1)
	ch <- /*yes*/ func() {}
	res = /*yes*/ func() {}
	return /*yes*/ func() {
		in := /*no*/ func() {}
		in()
	}
}

func keep(func(int) bool) {}
