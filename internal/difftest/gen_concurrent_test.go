package difftest

import (
	"fmt"
	"go/format"
	"math/rand/v2"
	"strings"
)

// GenerateConcurrent returns the source of a package with an exported function
// Main: a random program with goroutines that always ends. Its output does not
// depend on the order in which goroutines run: results are added up, have an
// index, or come by a channel with one sender.
//
// It is a list of functions from int to int. Each is one of the patterns below,
// and its goroutines call functions before it.
func GenerateConcurrent(seed uint64, pkg string) (string, error) {
	g := &network{r: rand.New(rand.NewPCG(seed, 0x676f))}
	var b strings.Builder
	fmt.Fprintf(&b, "// Package %s is a random program, seed %d.\npackage %s\n%s", pkg, seed, pkg, networkPrelude)
	for range 4 + g.r.IntN(5) {
		g.function(&b)
	}
	g.main(&b)
	out, err := format.Source([]byte(b.String()))
	if err != nil {
		return b.String(), fmt.Errorf("seed %d: %w", seed, err)
	}
	return string(out), nil
}

// networkPrelude is the common part of all concurrent programs.
const networkPrelude = `
import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

var (
	_ context.Context
	_ = errors.New
	_ atomic.Int64
	_ = time.Now
	_ = sort.Ints
	_ = runtime.Gosched
)

func wrap(n int) int { return (n%10007 + 10007) % 10007 }

func work(n, steps int) (sum int) {
	for i := range steps { //cairn:point
		sum = wrap(sum*31 + n + i)
	}
	return sum
}

// short has no point.
func short(n int) int { return wrap(n*17 + 3) }

// account is changed under its lock.
type account struct {
	sync.Mutex
	total int
	by    map[int]int
}

func (a *account) add(key, n int) {
	a.Lock()
	defer a.Unlock()
	a.total = wrap(a.total + n)
	a.by[key] += n
}

func (a *account) read() (sum int) {
	a.Lock()
	defer a.Unlock()
	for _, n := range a.by { sum += n }
	return wrap(sum + a.total)
}

// queue is bounded, and waits by conditions.
type queue struct {
	mu          sync.Mutex
	some, space *sync.Cond
	list        []int
	limit       int
	closed      bool
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit}
	q.some, q.space = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

func (q *queue) put(n int) {
	q.mu.Lock()
	for len(q.list) >= q.limit { q.space.Wait() }
	q.list = append(q.list, n)
	q.mu.Unlock()
	q.some.Signal()
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.some.Broadcast()
}

func (q *queue) get() (n int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.closed { q.some.Wait() }
	if len(q.list) == 0 { return 0, false }
	n, q.list = q.list[0], q.list[1:]
	q.space.Signal()
	return n, true
}

// barrier makes some goroutines wait for each other.
type barrier struct {
	mu            sync.Mutex
	cond          *sync.Cond
	size, at, gen int
}

func (b *barrier) wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	gen := b.gen
	if b.at++; b.at == b.size {
		b.at = 0
		b.gen++
		b.cond.Broadcast()
		return
	}
	for gen == b.gen { b.cond.Wait() }
}

// request is answered on its own channel.
type request struct {
	key, n int
	reply  chan int
}

// task sends one result.
type task struct {
	n   int
	out chan<- int
}

func (t *task) run(f func(int) int) { t.out <- f(t.n) }

func (t task) value(k int, f func(int) int) { t.out <- wrap(k * f(t.n)) }

func each[T any](list []T, f func(int, T) int) []int {
	out := make([]int, len(list))
	var wg sync.WaitGroup
	for i, v := range list {
		wg.Add(1)
		go func() {
			defer wg.Done()
			out[i] = f(i, v)
		}()
	}
	wg.Wait()
	return out
}

func fold(list []int) (sum int) {
	for _, n := range list { sum = wrap(sum*13 + n) }
	return sum
}
`

// network is the state of the generator.
type network struct {
	r     *rand.Rand
	costs []int // of the functions so far: about how many points they pass
	cost  int   // of the function that is being generated, per call
	times int   // how often what is generated now runs in it
}

// costLimit bounds what one call of a function costs.
const costLimit = 400

func (g *network) one(of ...string) string { return of[g.r.IntN(len(of))] }
func (g *network) n(from, to int) int      { return from + g.r.IntN(to-from+1) }

// call returns an expression that computes something from n, perhaps with other
// goroutines.
func (g *network) call(n string) string {
	for range 3 {
		if len(g.costs) == 0 || g.r.IntN(3) == 0 {
			break
		}
		if f := g.r.IntN(len(g.costs)); g.cost+g.times*g.costs[f] <= costLimit {
			g.cost += g.times * g.costs[f]
			return fmt.Sprintf("f%d(%s)", f, n)
		}
	}
	if g.r.IntN(5) == 0 {
		return fmt.Sprintf("short(%s)", n)
	}
	steps := g.n(1, 5)
	g.cost += g.times * steps
	return fmt.Sprintf("work(%s, %d)", n, steps)
}

// loop returns the end of a loop's head: it has a point, or has none.
func (g *network) loop() string { return g.one("{ //cairn:point\n", "{ //cairn:skip\n", "{\n") }

// pause sometimes lets others run.
func (g *network) pause() string {
	return g.one("", "", "", "runtime.Gosched()\n", "time.Sleep(50 * time.Microsecond)\n")
}

// made returns a channel of int: unbuffered or with a small buffer.
func (g *network) made() string {
	return g.one("make(chan int)", "make(chan int, 1)", "make(chan int, 3)")
}

func (g *network) function(b *strings.Builder) {
	g.cost, g.times = 0, 1
	patterns := []func() string{
		g.forkJoin, g.pool, g.stages, g.counters, g.conditions, g.once, g.fanIn, g.pingPong, g.tokens, g.canceled, g.timers,
		g.atomics, g.failing, g.leaking, g.phases, g.recovering, g.server, g.readers, g.generic, g.recursive, g.methods,
	}
	body := patterns[g.r.IntN(len(patterns))]()
	fmt.Fprintf(b, "\nfunc f%d(n int) int {\n%s}\n", len(g.costs), body)
	g.costs = append(g.costs, g.cost+1)
}

// many sets how often what follows runs, and returns it.
func (g *network) many(from, to int) int {
	g.times = g.n(from, to)
	return g.times
}

func (g *network) main(b *strings.Builder) {
	b.WriteString("\n// Main is the program.\nfunc Main() {\nall := 0\n")
	if g.r.IntN(2) == 0 { // a goroutine that lives as long as the program
		b.WriteString("acc := &account{by: map[int]int{}}\nlog, logged := " + g.made() + ", make(chan bool)\ngo func() {\nfor n := range log " + g.loop() + "acc.add(n%3, n)\n}\nclose(logged)\n}()\n" +
			"defer func() { close(log); <-logged; fmt.Println(acc.read()) }()\n")
	} else {
		b.WriteString("log := make(chan int, 1000)\n")
	}
	for i := range g.n(1, 3) {
		g.cost, g.times = 0, g.n(1, 4)
		fmt.Fprintf(b, "for i := range %d %sr := %s\nall = wrap(all*7 + r)\nlog <- r\nfmt.Println(%d, i, r)\n}\n", g.times, g.loop(), g.call("i"), i)
	}
	fmt.Fprintf(b, "fmt.Println(all, f%d(all))\n}\n", len(g.costs)-1)
}

func (g *network) forkJoin() string {
	k := g.many(1, 5)
	start := g.one("wg.Add(1)\ngo func() {\ndefer wg.Done()\n%s}()\n", "wg.Go(func() {\n%s})\n", "wg.Add(1)\ngo func(i int) {\n%swg.Done()\n}(i)\n")
	return fmt.Sprintf("out := make([]int, %d)\nvar wg sync.WaitGroup\nfor i := range out %s%s}\nwg.Wait()\nreturn fold(out)\n",
		k, g.loop(), fmt.Sprintf(start, g.pause()+"out[i] = "+g.call("n+i")+"\n"))
}

func (g *network) pool() string {
	k := g.many(2, 8)
	return fmt.Sprintf(`jobs, results := %s, %s
	var wg sync.WaitGroup
	for range %d {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range jobs %s%sresults <- %s
			}
		}()
	}
	go func() {
		for i := range %d %sjobs <- n + i
		}
		close(jobs)
		wg.Wait()
		close(results)
	}()
	sum := 0
	for r := range results %ssum = wrap(sum + r)
	}
	return sum
`, g.made(), g.made(), g.n(1, 4), g.loop(), g.pause(), g.call("j"), k, g.loop(), g.loop())
}

func (g *network) stages() string {
	k := g.many(2, 5)
	return fmt.Sprintf(`first := %s
	var in <-chan int = first
	for s := range %d {
		out := %s
		go func(in <-chan int, out chan<- int) {
			defer close(out)
			for v := range in %sout <- %s
			}
		}(in, out)
		in = out
	}
	go func() {
		for i := range %d %s%sfirst <- n*i
		}
		close(first)
	}()
	sum := 0
	for {
		v, ok := <-in
		if !ok { break }
		sum = wrap(sum*3 + v)
	}
	return sum
`, g.made(), g.n(1, 3), g.made(), g.loop(), g.call("v+s"), k, g.loop(), g.pause())
}

func (g *network) counters() string {
	k := g.many(2, 5)
	return fmt.Sprintf(`acc := &account{by: map[int]int{}}
	done := make(chan struct{}, %d)
	for i := range %d {
		go func() {
			for j := range 2 %sacc.add(i*2+j, %s)
				%s}
			done <- struct{}{}
		}()
	}
	for range %d %s<-done
	}
	return acc.read()
`, g.n(0, 2), k, g.loop(), g.call("n+i-j"), g.pause(), k, g.loop())
}

func (g *network) conditions() string {
	k := g.many(2, 8)
	return fmt.Sprintf(`q := newQueue(%d)
	var mu sync.Mutex
	var wg sync.WaitGroup
	sum := 0
	for range %d {
		wg.Go(func() {
			for {
				v, ok := q.get()
				if !ok { return }
				r := %s
				mu.Lock()
				sum = wrap(sum + r)
				mu.Unlock()
			}
		})
	}
	for i := range %d %sq.put(n ^ i)
	}
	q.close()
	wg.Wait()
	return sum
`, g.n(1, 3), g.n(1, 4), g.call("v"), k, g.loop())
}

// once has functions that are called once. The one of sync.OnceValue does not
// wait: its caller is of package sync, so that such a wait cannot be saved.
func (g *network) once() string {
	return fmt.Sprintf(`var once sync.Once
	value := 0
	get := sync.OnceValue(func() int { return work(n+1, 2) })
	return fold(each(make([]bool, %d), func(i int, _ bool) int {
		once.Do(func() { %svalue = %s })
		return value + get() + i
	}))
`, g.n(2, 4), g.pause(), g.call("n"))
}

func (g *network) fanIn() string {
	k := g.many(1, 3)
	poll := g.one("", fmt.Sprintf(`for range 2 %sselect {
		case v, ok := <-a:
			if ok { sum = wrap(sum + v) } else { a = nil }
		default:
			runtime.Gosched()
		}
	}
`, g.loop()))
	return fmt.Sprintf(`var never chan int
	_ = never
	send := func(base int) <-chan int {
		ch := %s
		go func() {
			defer close(ch)
			for i := range %d %sch <- %s
			}
		}()
		return ch
	}
	a, b := send(n), send(n*2)
	sum := 0
	%sfor a != nil || b != nil %sselect {
		case v, ok := <-a:
			if !ok { a = nil; continue }
			sum = wrap(sum + v)
		case v, ok := <-b:
			if !ok { b = nil; break }
			%ssum = wrap(sum + 5*v)
		%s}
	}
	return sum
`, g.made(), k, g.loop(), g.call("base+i"), poll, g.loop(), g.pause(), g.one("", "case <-time.After(time.Hour):\nreturn -1\n", "case <-never:\nreturn -2\n"))
}

func (g *network) pingPong() string {
	k := g.many(1, 5)
	return fmt.Sprintf(`ping, pong := %s, %s
	go func() {
		for v := range ping %spong <- %s
		}
		close(pong)
	}()
	v := n
	for range %d %sping <- v
		v = wrap(v + <-pong)
	}
	close(ping)
	if _, ok := <-pong; ok { return -1 }
	return v
`, g.made(), g.made(), g.loop(), g.call("v"), k, g.loop())
}

func (g *network) tokens() string {
	k := g.many(2, 6)
	return fmt.Sprintf(`tokens := make(chan struct{}, %d)
	out := make([]int, %d)
	for i := range out {
		tokens <- struct{}{}
		go func() {
			defer func() { <-tokens }()
			%sout[i] = %s
		}()
	}
	for range cap(tokens) %stokens <- struct{}{}
	}
	return fold(out)
`, g.n(1, 3), k, g.pause(), g.call("n-i"), g.loop())
}

func (g *network) canceled() string {
	k := g.many(1, 4)
	with := g.one("context.WithCancel(context.Background())", "context.WithTimeout(context.Background(), time.Hour)")
	return fmt.Sprintf(`ctx, cancel := %s
	numbers := %s
	ended := make(chan error)
	go func() {
		for i := 0; ; i++ %sselect {
			case numbers <- n + i:
			case <-ctx.Done():
				ended <- ctx.Err()
				return
			}
		}
	}()
	sum := 0
	for range %d %sv := <-numbers
		sum = wrap(sum*5 + %s)
	}
	cancel()
	if !errors.Is(<-ended, context.Canceled) { return -1 }
	return sum
`, with, g.made(), g.loop(), k, g.loop(), g.call("v"))
}

func (g *network) timers() string {
	k := g.many(1, 3)
	return fmt.Sprintf(`tick := time.NewTicker(300 * time.Microsecond)
	defer tick.Stop()
	late := time.NewTimer(time.Hour)
	fired := make(chan int, 1)
	time.AfterFunc(200*time.Microsecond, func() { fired <- n })
	sum := <-fired
	for i := 0; i < %d; %sselect {
		case <-tick.C:
			sum = wrap(sum + %s)
			i++
		case <-late.C:
			return -1
		}
	}
	late.Stop()
	return sum
`, k, g.loop(), g.call("n+i"))
}

func (g *network) atomics() string {
	k := g.many(2, 5)
	return fmt.Sprintf(`var sum, left atomic.Int64
	left.Store(%d)
	all := make(chan struct{})
	for i := range %d {
		go func() {
			r := int64(%s)
			for %sold := sum.Load()
				if sum.CompareAndSwap(old, old+r) { break }
			}
			if left.Add(-1) == 0 { close(all) }
		}()
	}
	<-all
	return wrap(int(sum.Load()))
`, k, k, g.call("n+i"), g.loop())
}

func (g *network) failing() string {
	k := g.many(2, 5)
	return fmt.Sprintf(`var first error
	var once sync.Once
	var wg sync.WaitGroup
	out := make([]int, %d)
	for i := range out {
		wg.Go(func() {
			r := %s
			if i == %d {
				once.Do(func() { first = fmt.Errorf("job %%d: %%w", i, errors.ErrUnsupported) })
				return
			}
			out[i] = r
		})
	}
	wg.Wait()
	if !errors.Is(first, errors.ErrUnsupported) { return -1 }
	return wrap(fold(out) + len(first.Error()))
`, k, g.call("n+i"), g.n(0, k-1))
}

// leaking has a goroutine that waits for ever for somebody to receive.
func (g *network) leaking() string {
	k := g.many(1, 4)
	return fmt.Sprintf(`next := func() func() int {
		ch := %s
		go func() {
			for v := n; ; v++ %sch <- %s
			}
		}()
		return func() int { return <-ch }
	}()
	sum := 0
	for range %d %ssum = wrap(sum*3 + next())
	}
	return sum
`, g.one("make(chan int)", "make(chan int, 1)"), g.loop(), g.call("v"), k, g.loop())
}

func (g *network) phases() string {
	size, iterations := g.n(2, 4), g.n(1, 3)
	g.times = size * iterations
	return fmt.Sprintf(`const size = %d
	b := &barrier{size: size}
	b.cond = sync.NewCond(&b.mu)
	var grid [2][size]int
	for i := range size { grid[0][i] = n * i }
	var wg sync.WaitGroup
	for i := range size {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for r := range %d %sfrom, to := &grid[r%%2], &grid[(r+1)%%2]
				to[i] = wrap(from[(i+1)%%size] + %s)
				b.wait()
			}
		}()
	}
	wg.Wait()
	return fold(grid[%d][:])
`, size, iterations, g.loop(), g.call("from[i]"), iterations%2)
}

// recovering has goroutines that panic. They send when they have recovered: a
// deferred function that waits during a panic cannot be saved.
func (g *network) recovering() string {
	k := g.many(1, 4)
	return fmt.Sprintf(`results := %s
	for i := range %d {
		go func() {
			results <- func() (r int) {
				defer func() {
					if e := recover(); e != nil { r += len(fmt.Sprint(e)) }
				}()
				r = %s
				if (n+i)%%2 == 0 { panic(fmt.Sprint("odd ", i)) }
				return r
			}()
		}()
	}
	sum := 0
	for range %d %ssum = wrap(sum + <-results)
	}
	return sum
`, g.made(), k, g.call("n*i"), k, g.loop())
}

func (g *network) server() string {
	k := g.many(2, 5)
	return fmt.Sprintf(`requests := make(chan request%s)
	quit := make(chan chan int)
	go func() {
		state := map[int]int{}
		for %sselect {
			case r := <-requests:
				state[r.key] += r.n
				r.reply <- state[r.key]
			case back := <-quit:
				sum := 0
				for k, v := range state { sum += (k + 1) * v }
				back <- wrap(sum)
				return
			}
		}
	}()
	out := each(make([]int, %d), func(i, _ int) int {
		reply := %s
		requests <- request{i, %s, reply}
		return <-reply
	})
	back := make(chan int)
	quit <- back
	return wrap(fold(out) + <-back)
`, g.one("", ", 2"), g.loop(), k, g.one("make(chan int)", "make(chan int, 1)"), g.call("n+i"))
}

func (g *network) readers() string {
	k := g.many(1, 4)
	return fmt.Sprintf(`var mu sync.RWMutex
	var seen sync.Map
	table := map[int]int{}
	out := each(make([]struct{}, %d), func(i int, _ struct{}) int {
		v := %s
		mu.Lock()
		table[i] = v
		%smu.Unlock()
		seen.Store(i, v)
		mu.RLock()
		defer mu.RUnlock()
		again, _ := seen.Load(i)
		return table[i] + again.(int)
	})
	return wrap(fold(out) + len(table))
`, k, g.call("n+i"), g.pause())
}

func (g *network) generic() string {
	k := g.many(1, 4)
	return fmt.Sprintf(`list := make([]string, %d)
	for i := range list { list[i] = fmt.Sprint(n, i) }
	return fold(each(list, func(i int, s string) int { return %s + len(s) }))
`, k, g.call("n+i"))
}

func (g *network) recursive() string {
	g.times = 4
	return fmt.Sprintf(`var sum func(from, to int) int
	sum = func(from, to int) int {
		if to-from <= 1 { return %s }
		half := (from + to) / 2
		left := %s
		go func() { left <- sum(from, half) }()
		right := sum(half, to)
		return wrap(<-left*3 + right)
	}
	return sum(n, n+4)
`, g.call("from"), g.one("make(chan int)", "make(chan int, 1)"))
}

func (g *network) methods() string {
	k := g.many(1, 4)
	return fmt.Sprintf(`out := %s
	f := func(n int) int { return %s }
	for i := range %d %sgo (&task{n + i, out}).run(f)
		t := task{n - i, out}
		go t.value(3, short)
		later := t.value
		go later(i, short)
	}
	sum := 0
	for range 3 * %d %ssum = wrap(sum + <-out)
	}
	return sum
`, g.made(), g.call("n"), k, g.loop(), k, g.loop())
}
