// Package stats counts.
package stats

import "sort"

var counts = map[string]int{}

// Add adds to a counter.
func Add(name string, n int) { counts[name] += n }

// Get returns a counter.
func Get(name string) int { return counts[name] }

// Sum adds up, and counts that it did.
func Sum(list []int) (s int) {
	for _, v := range list {
		s += v
	}
	counts["sums"]++
	return s
}

// All returns the names of the counters.
func All() (names []string) {
	for n := range counts {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
