package golang

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/instrument"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
)

// pointsOf returns the lines of a program's points, and the warnings about work
// without one.
func pointsOf(t *testing.T, text string) (lines []int, warnings string) {
	t.Helper()
	p, err := Load(context.Background(), programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", text), []string{"."}, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := instrument.Instrument(p, instrument.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range in.Points {
		lines = append(lines, q.Line)
	}
	slices.Sort(lines)
	return lines, strings.Join(in.Uncovered, "\n")
}

// TestInstrument_InnerPoints: there are points where the work is, even if that
// is not in the loops with most statements, and none in loops that they would
// slow down. A loop that must have one is marked with "point", one that must
// not with "none".
func TestInstrument_InnerPoints(t *testing.T) {
	for _, c := range []struct{ name, text, told string }{
		{"few iterations", `package main

func primes(n int) (count int) {
	flags := make([]bool, n)
	for i := 2; i < n; i++ { // point
		if !flags[i] {
			count++
			for j := 2 * i; j < n; j += i { // none
				flags[j] = true
			}
		}
	}
	return count
}

func main() {
	for i := range 3 { // point
		println(primes(10000 << i))
	}
}
`, ""},
		{"over files", `package main

import "os"

func pack(data []byte) (sum int) {
	for i := 0; i+64 < len(data); i += 64 { // point
		for k := range 64 { // none
			for j := range 8 {
				sum += int(data[i+k]) >> j
			}
		}
	}
	return sum
}

func main() {
	for _, name := range os.Args[1:] { // point
		data, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		println(pack(data))
	}
}
`, ""},
		// Either of the inner loops may have most of the work.
		{"phases", `package main

import "os"

type lattice struct {
	n     int
	spins []int8
	seed  uint64
}

func (l *lattice) random(n int) int {
	l.seed = l.seed*6364136223846793005 + 1442695040888963407
	return int(l.seed>>33) % n
}

func (l *lattice) sweep() {
	for range l.n * l.n { // none
		x, y := l.random(l.n), l.random(l.n)
		sum := l.spins[y*l.n+(x+1)%l.n] + l.spins[(y+1)%l.n*l.n+x]
		if sum > 0 || l.random(100) < 5 {
			l.spins[y*l.n+x] *= -1
		}
	}
}

func (l *lattice) measure() (sum int) {
	for y := range l.n { // none
		for x := range l.n { // none
			sum += int(l.spins[y*l.n+x])
		}
	}
	return sum
}

func (l *lattice) settle(n int) {
	for range n { // point
		l.sweep()
	}
}

func main() {
	n := len(os.Args)
	l := &lattice{n: n, spins: make([]int8, n*n)}
	for t := range n { // point
		for range 100 * n { // point
			l.sweep()
		}
		sum := 0
		for range n { // point
			l.sweep()
			sum += l.measure()
		}
		l.settle(n)
		println(t, sum)
	}
}
`, ""},
		// The parser has more statements; the interpreter does the
		// work.
		{"interpreter", `package main

import "os"

type op struct {
	what byte
	n    int
	body []op
}

type source struct {
	text string
	at   int
}

func parse(s *source) (ops []op) {
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch c {
		case '+':
			ops = append(ops, op{what: '+', n: 1})
		case '-':
			ops = append(ops, op{what: '+', n: -1})
		case '>':
			ops = append(ops, op{what: '>', n: 1})
		case '<':
			ops = append(ops, op{what: '>', n: -1})
		case '[':
			ops = append(ops, op{what: '[', body: parse(s)})
		case ']':
			return ops
		}
	}
	return ops
}

func run(ops []op, tape []int, at int) int {
	for i := 0; i < len(ops); i++ { // point
		switch ops[i].what {
		case '+':
			tape[at] += ops[i].n
		case '>':
			at += ops[i].n
		case '[':
			for tape[at] != 0 {
				at = run(ops[i].body, tape, at)
			}
		}
	}
	return at
}

func main() {
	println(run(parse(&source{text: os.Args[1]}), make([]int, 1000), 0))
}
`, ""},
		// The loop is inside another one, which only runs at the
		// beginning.
		{"library of a language", `package main

import "os"

type machine struct {
	code []byte
	sum  float64
}

func (m *machine) run() {
	for _, c := range m.code { // point
		m.step(c)
	}
}

func (m *machine) step(c byte) {
	x := m.sum
	for k := range 20 { // none
		x = x*0.5 + float64(c)*float64(k)
	}
	m.sum = x
}

func main() {
	m := new(machine)
	for _, text := range []string{"a", "b"} {
		m.code = []byte(text)
		m.run()
	}
	m.code, _ = os.ReadFile(os.Args[1])
	m.run()
	println(m.sum)
}
`, ""},
		// An iteration of the inner loop mostly does nothing.
		{"early continue", `package main

var people = make([]int, 1000)

func main() {
	for day := 0; people[0] < 1000; day++ { // point
		for i, p := range people { // none
			if p < day {
				continue
			}
			if p%7 == 3 {
				continue
			}
			if p%5 == 3 {
				continue
			}
			for j := range 8 {
				people[i] += p * j
			}
		}
	}
}
`, ""},
		// The arrays would be on the heap in each call.
		{"large variables", `package main

type board [256]uint64

func moves(b *board, buffer []int) []int {
	n := 0
	for i := range b {
		if b[i] != 0 && n < len(buffer) {
			buffer[n] = i
			n++
		}
	}
	return buffer[:n]
}

func perft(b *board, depth int) (nodes int) {
	var buffer [1024]int
	var child board
	for _, m := range moves(b, buffer[:]) { // none
		child = *b
		child[m]++
		if depth > 1 {
			nodes += perft(&child, depth-1)
		} else {
			nodes++
		}
	}
	return nodes
}

func main() {
	tests := []struct{ n, depth int }{{3, 4}, {5, 6}}
	for _, c := range tests { // point
		var b board
		b[c.n] = 1
		println(perft(&b, c.depth))
	}
}
`, "main.go:33 seems to have few iterations"},
		{"goroutines", `package main

var total [8]float64

func work(id int) {
	for i := 0; i < 1000000; i++ { // point
		for j := range 100 {
			total[id] += float64(i * j)
			total[id] *= 0.5
		}
	}
}

func main() {
	done := make(chan bool)
	for id := range 8 {
		go func() {
			work(id)
			done <- true
		}()
	}
	for range 8 {
		<-done
	}
	sum := 0.0
	for _, x := range total {
		sum += x
	}
	println(sum)
}
`, ""},
		{"a goroutine for each element", `package main

import "sync"

func work(n int) int {
	for i := 0; i < 30; i++ { // point
		for k := 0; k < 1000000; k++ { // none
			n = (n*31 + k) % 9001
		}
	}
	return n
}

func main() {
	var g sync.WaitGroup
	out := make([]int, 12)
	for i := range out {
		g.Add(1)
		go func() {
			defer g.Done()
			out[i] = work(i)
		}()
	}
	g.Wait()
	println(out[11])
}
`, ""},
		{"callbacks", `package main

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

var (
	once  sync.Once
	table [1000]int
)

func fill() {
	for i := range table { // point
		for k := 0; k < 1000000; k++ { // none
			table[i] = (table[i]*31 + k) % 9001
		}
	}
}

func main() {
	sum := 0
	err := filepath.WalkDir(os.Args[1], func(path string, e fs.DirEntry, err error) error { // point
		once.Do(fill)
		data, err := os.ReadFile(path)
		sum += table[sha256.Sum256(data)[0]]
		return err
	})
	println(sum, err == nil)
}
`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines, warnings := pointsOf(t, c.text)
			for i, s := range strings.Split(c.text, "\n") {
				switch has := slices.Contains(lines, i+1); {
				case strings.HasSuffix(s, "// point") && !has:
					t.Errorf("no point at line %d: %s", i+1, s)
				case strings.HasSuffix(s, "// none") && has:
					t.Errorf("a point at line %d: %s", i+1, s)
				}
			}
			if !strings.Contains(warnings, c.told) || c.told == "" && warnings != "" {
				t.Errorf("told %q, want %q", warnings, c.told)
			}
		})
	}
}

// TestInstrument_GoroutineInRange: a goroutine that is alive at a range over a
// function is alive in all of it, so no loop there gets a point.
func TestInstrument_GoroutineInRange(t *testing.T) {
	const text = `package main

import "os"

func count(n int) func(func() bool) {
	return func(yield func() bool) {
		for range n {
			if !yield() {
				return
			}
		}
	}
}

func step(x int) int {
	for k := range 20000 {
		x = (x*5 + k) % 7919
	}
	return x
}

func sweep(x int) int {
	for range count(100) {
		for range 100 {
			x = step(x)
		}
	}
	return x
}

func main() {
	done := make(chan bool)
	x := len(os.Args)
	START
	for range count(150) {
		for range 100 {
			x = step(x)
		}
		x = sweep(x)
	}
	println(x, <-done)
}
`
	for _, start := range []string{
		"go func() { done <- true }()",
		"func() { close(done) }()",
		"for range 3 { go sweep(x) }",
		"defer func() { go sweep(x) }()",
		"if x > 3 { go sweep(x) }",
		"for range count(3) { go sweep(x) }",
		"{ go func() { done <- x > 2 }() }",
		"c := count(9); go c(func() bool { return true })",
	} {
		p, err := Load(context.Background(), programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", strings.Replace(text, "START", start, 1)), []string{"."}, load.Options{})
		if err != nil {
			t.Fatal(err)
		}
		in, err := instrument.Instrument(p, instrument.Options{})
		if err != nil {
			t.Errorf("%s: %v", start, err)
		} else if len(in.Points) < 2 {
			t.Errorf("%s: points at %v", start, in.Points)
		}
	}
}

// TestInstrument_UnimportedTypes: the rewritten source names types of packages
// that no source imports.
func TestInstrument_UnimportedTypes(t *testing.T) {
	lines, _ := pointsOf(t, `package main

import (
	"crypto/sha256"
	"fmt"
)

func words(n int, emit func(string)) {
	for range n {
		emit("x")
	}
}

func main() {
	h := sha256.New() // a hash.Hash
	for r := range 3000 {
		words(1000, func(w string) { h.Write([]byte(w)) })
		fmt.Printf("%d %x\n", r, h.Sum(nil)[:8])
	}
}
`)
	if !slices.Contains(lines, 16) {
		t.Errorf("points at lines %v", lines)
	}
}

// TestInstrument_LoopBesideRecursion: a loop with much work gets a point,
// though its function calls itself in another loop. A short loop does not.
func TestInstrument_LoopBesideRecursion(t *testing.T) {
	const text = `package main

import "fmt"

type level struct {
	steps int
	sub   []*level
}

var a, b [300][300]float64

func step() {
	for i := 1; i < 299; i++ {
		for j := 1; j < 299; j++ {
			b[i][j] = a[i][j] + 0.2*(a[i-1][j]+a[i+1][j]+a[i][j-1]+a[i][j+1]-4*a[i][j])
		}
	}
	a, b = b, a
}

func run(l *level, names []string) {
	for k := 0; k < l.steps; k++ { // WORK
		step()
	}
	n := 0
	for _, s := range names {
		n += len(s)
	}
	fmt.Println(n)
	for _, c := range l.sub { // RECURSION
		run(c, names)
	}
}

func main() {
	a[1][1] = 1
	run(&level{9, []*level{{9, nil}}}, []string{"x"})
	fmt.Println(a[2][2])
}
`
	var want []int
	for i, l := range strings.Split(text, "\n") {
		if strings.HasSuffix(l, "// WORK") || strings.HasSuffix(l, "// RECURSION") {
			want = append(want, i+1)
		}
	}
	if got, _ := pointsOf(t, text); !slices.Equal(got, want) {
		t.Errorf("points at %v, want %v", got, want)
	}
}

// TestInstrument_UnexportedMethods: a method that is not exported has another
// name in every package, so that the type cannot be written in the caller's.
func TestInstrument_UnexportedMethods(t *testing.T) {
	const library = `package b

type T struct{}

func (T) m() {}

func Run(i PARAMETER, n int) (s int) {
	for k := range n {
		for j := range n {
			s += j * k
		}
	}
	return s
}
`
	for parameter, value := range map[string]string{
		"interface{ m() }":  "b.T{}",
		"struct{ x []int }": "b.X",
	} {
		p, err := Load(context.Background(), programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n",
			"b/b.go", strings.Replace(library, "PARAMETER", parameter, 1)+"\nvar X struct{ x []int }\n",
			"main.go", "package main\n\nimport \"x/b\"\n\nfunc main() {\n\tprintln(b.Run("+value+", 1000))\n}\n"), []string{"."}, load.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = instrument.Instrument(p, instrument.Options{})
		if !errors.Is(err, instrument.ErrRefused) || !strings.Contains(err.Error(), "that type has no name here") {
			t.Errorf("%s: %v", parameter, err)
		}
	}
}
