// Command goguards has deferred calls that are pending where functions unwind:
// they are made once, when the function returns. It has functions that cannot
// unwind, because a library calls them, and func literals that are called by
// value, with variables that change and others that do not.
package main

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

type account struct {
	mu    sync.Mutex
	total int
	calls int
}

func (a *account) close() { a.calls++ }

// add has deferred calls of several kinds.
func (a *account) add(n int, log *[]string, deep bool) int {
	defer a.close()
	note := "flat"
	if deep {
		defer strings.ToUpper(note) // of a library, without an effect
		defer record(log, n)
	}
	defer func() { *log = append(*log, fmt.Sprint("add ", n, " ", note)) }()
	sum := 0
	for i := range 4 { //difftest:loop
		sum += i * n
		if deep && i == 2 {
			sum += a.add(n+1, log, false)
		}
	}
	return sum
}

// count has one deferred call, and continues after a restart with the rest of
// its loop.
func (a *account) count(n int) (sum int) {
	defer a.close()
	for i := 0; i < 5; i++ { //difftest:loop
		sum += i * n
	}
	return sum
}

// caught recovers, so it must be deferred itself.
func caught(log *[]string) {
	if r := recover(); r != nil {
		*log = append(*log, fmt.Sprint("caught ", r))
	}
}

func careful(n int, log *[]string) (sum int) {
	defer caught(log)
	for i := 0; i < 4; i++ { //difftest:loop
		if i == n {
			panic(i)
		}
		sum += i
	}
	return sum
}

func record(log *[]string, n int) { *log = append(*log, fmt.Sprint("deep ", n)) }

// apply calls func values.
func apply(list []func(int) int, n int) int {
	for _, f := range list {
		n = f(n)
	}
	return n
}

func risky(n int, log *[]string) (sum int) {
	defer record(log, -n)
	for i := range 3 { //difftest:loop
		sum += i
		if i == n {
			panic(fmt.Sprint("risky ", n))
		}
	}
	return sum
}

func try(n int, log *[]string) {
	defer func() {
		if r := recover(); r != nil {
			*log = append(*log, fmt.Sprint(r))
		}
	}()
	fmt.Println("risky:", risky(n, log))
}

func main() {
	var a account
	var log []string
	fmt.Println(a.add(3, &log, true), a.calls, log)

	for n := 1; n < 5; n++ {
		fmt.Println(a.count(n), a.calls, careful(n, &log), len(log))
	}

	// A library calls a function with deferred calls.
	text := regexp.MustCompile(`\d`).ReplaceAllStringFunc("1 2 3", func(s string) string {
		return fmt.Sprint(a.add(len(s), &log, false))
	})
	fmt.Println(text, a.calls, len(log))

	// Literals that share variables, and one that has a variable of its own.
	base, count := 10, 0
	own := 100
	steps := []func(int) int{
		func(n int) int {
			defer a.close()
			for i := range 3 { //difftest:loop
				count++
				n += base + i
			}
			return n
		},
		func(n int) int {
			own++
			for range 2 { //difftest:loop
				own += n
			}
			return own - count
		},
	}
	fmt.Println(apply(steps, 1), apply(steps, 2), count, a.calls)

	for n := range 4 {
		try(n, &log)
	}
	fmt.Println(log[len(log)-6:])

	// Goroutines with deferred calls.
	var wg sync.WaitGroup
	results, closed := make(chan int), make(chan int)
	for w := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a.mu.Lock()
			defer a.mu.Unlock()
			for i := range 5 { //difftest:loop
				a.total += i * w
			}
			results <- w
		}()
	}
	go func() {
		defer close(closed)
		defer close(results)
		wg.Wait()
	}()
	sum := 0
	for v := range results {
		sum += v
	}
	_, open := <-closed
	fmt.Println(sum, a.total, open)
}
