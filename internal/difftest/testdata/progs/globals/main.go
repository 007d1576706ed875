// Command globals covers package variables: maps, slices, arrays, structs,
// pointers into other package variables, functions, interfaces, unexported and
// blank ones.
package main

import (
	"errors"
	"fmt"
)

type entry struct {
	hits int
	tags []string
	next *entry
}

var (
	table    = map[string]*entry{}
	list     []*entry
	window   = list
	grid     [3][4]int
	corner   = &grid[2][3]
	current  entry
	cursor   = &current.hits
	hook     func(int) int
	last     any
	errLast  error
	_        = fmt.Sprint("blank")
	counters struct {
		a, b int
		m    map[int]bool
	}
)

var errStop = errors.New("stop")

func step(i int) error {
	key := string(rune('a' + i%3))
	e := table[key]
	if e == nil {
		e = &entry{next: &current}
		table[key] = e
		list = append(list, e)
	}
	for k := range 1500 {
		e.hits += k % (i + 2)
		grid[k%3][i%4]++
	}
	e.tags = append(e.tags, fmt.Sprint(i))
	*corner += i
	*cursor += e.hits
	window = list[len(list)-1:]
	if hook != nil {
		counters.a = hook(counters.a)
	}
	last = e
	if i == 8 {
		return errStop
	}
	return nil
}

func main() {
	counters.m = map[int]bool{}
	for i := 0; errLast == nil; i++ { //difftest:loop
		errLast = step(i)
		counters.m[i*i%7] = true
		if i == 3 {
			hook = func(n int) int { counters.b++; return n + i }
		}
		fmt.Println(i, len(table), len(window[0].tags), current.hits, grid[2][3], counters.a, counters.b)
	}
	fmt.Println(errors.Is(errLast, errStop), errLast == errStop, last == list[2], len(counters.m), table["a"].next == &current)
}
