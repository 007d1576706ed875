// Sorting sorts by quicksort, by heapsort and by merging.
package main

import (
	"flag"
	"fmt"
)

func quicksort(a []int) {
	for len(a) > 12 {
		p := a[len(a)/2]
		i, j := 0, len(a)-1
		for i <= j {
			for a[i] < p {
				i++
			}
			for a[j] > p {
				j--
			}
			if i <= j {
				a[i], a[j] = a[j], a[i]
				i++
				j--
			}
		}
		if j+1 < len(a)-i {
			quicksort(a[:j+1])
			a = a[i:]
		} else {
			quicksort(a[i:])
			a = a[:j+1]
		}
	}
	for i := 1; i < len(a); i++ {
		for j := i; j > 0 && a[j] < a[j-1]; j-- {
			a[j], a[j-1] = a[j-1], a[j]
		}
	}
}

func moveDown(a []int, i int) {
	for {
		c := 2*i + 1
		if c >= len(a) {
			return
		}
		if c+1 < len(a) && a[c+1] > a[c] {
			c++
		}
		if a[i] >= a[c] {
			return
		}
		a[i], a[c] = a[c], a[i]
		i = c
	}
}

func heapsort(a []int) {
	for i := len(a)/2 - 1; i >= 0; i-- {
		moveDown(a, i)
	}
	for n := len(a) - 1; n > 0; n-- {
		a[0], a[n] = a[n], a[0]
		moveDown(a[:n], 0)
	}
}

func mergesort(a, tmp []int) {
	if len(a) < 2 {
		return
	}
	m := len(a) / 2
	mergesort(a[:m], tmp[:m])
	mergesort(a[m:], tmp[m:])
	copy(tmp, a)
	i, j := 0, m
	for k := range a {
		if j == len(a) || i < m && tmp[i] <= tmp[j] {
			a[k] = tmp[i]
			i++
		} else {
			a[k] = tmp[j]
			j++
		}
	}
}

func fill(a []int, seed uint64) {
	for i := range a {
		seed = seed*6364136223846793005 + 1442695040888963407
		a[i] = int(seed >> 33)
	}
}

func main() {
	rounds := flag.Int("rounds", 8, "of each")
	flag.Parse()
	a, tmp := make([]int, 120_000), make([]int, 120_000)
	sum := 0
	for r := range *rounds {
		fill(a, uint64(r))
		quicksort(a)
		sum += a[100]
		fill(a, uint64(r)+1000)
		heapsort(a)
		sum += a[200]
		fill(a, uint64(r)+2000)
		mergesort(a, tmp)
		sum += a[300]
	}
	fmt.Println(sum)
}
