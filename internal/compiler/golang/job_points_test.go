package golang

import (
	"slices"
	"strings"
	"testing"
)

// TestInstrument_Jobs: a job of a goroutine may take long, so loops in it have
// points, or the build warns. A loop that must have a point is marked with
// "point", one that must not with "none".
func TestInstrument_Jobs(t *testing.T) {
	const workers = `package main

import "sync"

JOB

func main() {
	jobs := make(chan int)
	var wg sync.WaitGroup
	best := make([]int, 64)
	for w := range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			LOOP
				best[w] = max(best[w], job(n))
			}
		}()
	}
	for i := range 3000 {
		jobs <- i
	}
	close(jobs)
	wg.Wait()
	println(slicesMax(best))
}

func slicesMax(list []int) (most int) {
	for _, n := range list { // none
		most = max(most, n)
	}
	return most
}
`
	const chain = `func chain(n int) (steps int) {
	for n != 1 { // none
		if n%2 == 0 {
			n /= 2
		} else {
			n = 3*n + 1
		}
		steps++
	}
	return steps
}
`
	for _, c := range []struct{ name, job, loop, told string }{
		{"nested loops", chain + `
func job(n int) (most int) {
	for k := n; k < n+100000000; k++ { // point
		most = max(most, chain(k))
	}
	return most
}`, "for n := range jobs {", ""},
		{"received", chain + `
func job(n int) (most int) {
	for k := n; k < n+100000000; k++ { // point
		most = max(most, chain(k))
	}
	return most
}`, "for {\nn, ok := <-jobs\nif !ok { return }", ""},
		{"a tight loop", strings.ReplaceAll(chain, "chain(", "job("), "for n := range jobs {", "is in the loop at main.go:6, no checkpoint can be taken: a point in it would cost too much of each iteration; put //cairn:point before the loop if it takes long, //cairn:skip if not"},
		{"no point is wanted", strings.Replace(strings.ReplaceAll(chain, "chain(", "job("), "\tfor", "\t//cairn:skip\n\tfor", 1), "for n := range jobs {", ""},
		{"a point is wanted", strings.Replace(strings.Replace(strings.ReplaceAll(chain, "chain(", "job("), "\tfor", "\t//cairn:point\n\tfor", 1), "none", "point", 1), "for n := range jobs {", ""},
		{"a short loop", `func job(n int) (sum int) {
	for k := range 16 { // none
		sum += k ^ n
	}
	return sum
}`, "for n := range jobs {", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkPoints(t, strings.NewReplacer("JOB", c.job, "LOOP", c.loop).Replace(workers), c.told)
		})
	}
}

// TestInstrument_RefusedLiteralOfVariable: if a literal in a package variable
// is refused, only the points in it are given up.
func TestInstrument_RefusedLiteralOfVariable(t *testing.T) {
	got, _ := pointsOf(t, `package main

import "sync"

type command struct{ run func(n int) int }

var sum int

var one = &command{run: func(n int) int {
	type rec struct{ v int }
	ch := make(chan *rec, 3)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		type one int // cannot move: the name is taken, and a panic may show it
		list := map[int]*rec{int(any(one(1)).(one)): nil}
		for r := range ch {
			list[r.v%7] = r
			for i := range n { //cairn:point
				sum += i
			}
			for i := range n { //cairn:point
				sum -= i / 2
			}
		}
		for i := range n { //cairn:point
			sum += list[i%7].v
		}
	}()
	for i := range n { //cairn:point
		ch <- &rec{i}
	}
	close(ch)
	wg.Wait()
	return sum
}}

func main() {
	one.run(100)
	for i := range 1000 { //cairn:point
		sum += i
	}
	println(sum)
}
`)
	if !slices.Equal(got, []int{31, 41}) {
		t.Errorf("points at lines %v, want 31 and 41", got)
	}
}

// TestInstrument_ErrorMessageIsNoWork: what only the message of an error
// reaches does not count as work.
func TestInstrument_ErrorMessageIsNoWork(t *testing.T) {
	checkPoints(t, `package main

import (
	"crypto/sha256"
	"os"
)

func digest(name string) (sum [32]byte, err error) {
	b, err := os.ReadFile(name)
	for range 1000 { // point
		sum = sha256.Sum256(append(b, sum[:]...))
	}
	return sum, err
}

func report(text []byte) (n int) {
	for i := range text { // none
		for j := range text {
			for k := range text {
				for l := range text {
					n += int(text[i]) * int(text[j]) ^ int(text[k]) + int(text[l])
				}
			}
		}
	}
	return n
}

func main() {
	n := 0
	for _, name := range os.Args[1:] { // point
		sum, err := digest(name)
		if err != nil {
			println(report([]byte(err.Error())))
			continue
		}
		n += int(sum[0])
	}
	println(n)
}
`, "")
}

// TestInstrument_LoopOverFewMadeValues: a loop over a few values that make has
// made has few iterations, so the work in one is saved.
func TestInstrument_LoopOverFewMadeValues(t *testing.T) {
	checkPoints(t, `package main

type job struct{ n, sum int }

func (j *job) run() {
	for i := 0; i < j.n; i++ { // point
		for k := 0; k < 20000000; k++ { // none
			j.sum += k ^ i
		}
	}
}

func call(f func()) { f() }

func main() {
	jobs := make([]*job, 4)
	for i := range jobs { // point
		jobs[i] = &job{n: 500}
		call(jobs[i].run)
	}
	println(jobs[0].sum)
}
`, "")
}

// checkPoints compares the points of a program with its comments, and the
// warnings with told, which they contain.
func checkPoints(t *testing.T, text, told string) {
	t.Helper()
	got, warnings := pointsOf(t, text)
	for i, line := range strings.Split(text, "\n") {
		has := slices.Contains(got, i+1)
		if strings.HasSuffix(line, "// point") && !has || strings.HasSuffix(line, "// none") && has {
			t.Errorf("line %d has a point: %v\n%s", i+1, has, line)
		}
	}
	if !strings.Contains(warnings, told) || told == "" && warnings != "" {
		t.Errorf("told %q, want %q", warnings, told)
	}
}
