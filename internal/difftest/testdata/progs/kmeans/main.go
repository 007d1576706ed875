// Command kmeans covers clustering until nothing changes: a do-while loop with
// slices of structs, maps keyed by structs, and early exit.
package main

import (
	"fmt"
	"math"
)

type pt struct{ x, y float64 }
type cluster struct {
	center  pt
	members []*pt
}

func main() {
	pts := make([]pt, 300)
	for i := range pts {
		a := float64(i*i%97) / 7
		pts[i] = pt{math.Sin(a)*5 + float64(i%3)*8, math.Cos(a*1.7)*5 + float64(i%2)*6}
	}
	clusters := []*cluster{{center: pts[0]}, {center: pts[1]}, {center: pts[2]}, {center: pts[5]}}
	owner := map[pt]*cluster{}
	for round := 0; ; round++ { //difftest:loop
		changed := 0
		for _, c := range clusters {
			c.members = c.members[:0]
		}
		for i := range pts {
			var best *cluster
			near := math.Inf(1)
			for _, c := range clusters {
				if d := math.Hypot(pts[i].x-c.center.x, pts[i].y-c.center.y); d < near {
					best, near = c, d
				}
			}
			if owner[pts[i]] != best {
				owner[pts[i]] = best
				changed++
			}
			best.members = append(best.members, &pts[i])
		}
		for _, c := range clusters {
			s := pt{}
			for _, p := range c.members {
				s.x += p.x
				s.y += p.y
			}
			k := float64(max(1, len(c.members)))
			c.center = pt{s.x / k, s.y / k}
		}
		fmt.Printf("%d %d %.6f\n", round, changed, clusters[round%4].center)
		if changed == 0 {
			break
		}
	}
	fmt.Println(len(owner), clusters[0].members[0] == &pts[0], math.IsNaN(clusters[3].center.x))
}
