// Kmeans clusters feature words, which are kept in maps.
package main

import (
	"flag"
	"fmt"
	"sort"
)

type sample struct {
	name     string
	features map[string]float64
}

type center struct {
	features map[string]float64
	members  []int
}

func distance(a, b map[string]float64) float64 {
	d := 0.0
	for k, x := range a {
		y := b[k]
		d += (x - y) * (x - y)
	}
	return d
}

func (c *center) move(all []sample) {
	if len(c.members) == 0 {
		return
	}
	sum := make(map[string]float64)
	for _, i := range c.members {
		for k, v := range all[i].features {
			sum[k] += v
		}
	}
	for k := range sum {
		sum[k] /= float64(len(c.members))
	}
	c.features = sum
}

func main() {
	rounds := flag.Int("rounds", 80, "iterations")
	flag.Parse()
	var all []sample
	for i := range 1500 {
		f := make(map[string]float64)
		for k := range 12 {
			f[fmt.Sprintf("f%d", k)] = float64((i*(k+3)*7919)%1009) / 64
		}
		all = append(all, sample{fmt.Sprintf("s%d", i), f})
	}
	var centers []*center
	for i := range 8 {
		centers = append(centers, &center{features: all[i*100].features})
	}
	for range *rounds {
		for _, c := range centers {
			c.members = c.members[:0]
		}
		for i, s := range all {
			best, least := 0, -1.0
			for k, c := range centers {
				if d := distance(s.features, c.features); least < 0 || d < least {
					best, least = k, d
				}
			}
			centers[best].members = append(centers[best].members, i)
		}
		for _, c := range centers {
			c.move(all)
		}
	}
	var sizes []int
	for _, c := range centers {
		sizes = append(sizes, len(c.members))
	}
	sort.Ints(sizes)
	fmt.Println(len(sizes))
}
