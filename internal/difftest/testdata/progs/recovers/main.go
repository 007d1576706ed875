// Command recovers covers panics that are recovered inside the main loop, in
// functions with points, and re-panicked ones.
package main

import (
	"errors"
	"fmt"
)

type fault struct{ code int }

func (f fault) Error() string { return fmt.Sprint("fault ", f.code) }

func risky(n int, cells []int) (sum int) {
	for i := range 3000 {
		sum += cells[i%len(cells)] * i
	}
	switch {
	case n%5 == 1:
		panic(fault{n})
	case n%5 == 2:
		return cells[len(cells)+n] // out of range
	case n%5 == 3:
		var p *fault
		return p.code // nil
	}
	return sum
}

func guarded(n int, cells []int) (sum int, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fault:
			if r.code > 7 {
				panic(fmt.Errorf("again: %w", r))
			}
			err = r
		case error:
			err = fmt.Errorf("caught: %w", r)
		}
	}()
	return risky(n, cells), nil
}

func outer(cells []int) (done int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	for n := range 20 { //difftest:loop
		sum, err := guarded(n, cells)
		cells[n%len(cells)] += n
		done = n
		fmt.Println(n, sum, err)
	}
	return done, nil
}

func main() {
	cells := []int{3, 1, 4, 1, 5}
	done, err := outer(cells)
	var f fault
	fmt.Println(done, err, errors.As(err, &f), f.code, cells)
}
