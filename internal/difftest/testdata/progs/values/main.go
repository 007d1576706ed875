// Command values covers arrays and structs as values: copies that must stay
// apart, arrays of arrays, comparison, and map keys made of them.
package main

import "fmt"

type point struct{ x, y int }
type board [3][3]int8
type game struct {
	b     board
	last  point
	moves []point
}

func (g game) play(p point, who int8) game {
	g.b[p.y][p.x] = who
	g.last = p
	g.moves = append(g.moves[:len(g.moves):len(g.moves)], p)
	return g
}

func score(b board) (s int) {
	for range 500 {
		for y, row := range b {
			for x, v := range row {
				s = (s*3 + int(v)*(x+y*3+1)) % 2003
			}
		}
	}
	return s
}

func main() {
	start := game{}
	games := []game{start}
	seen := map[board]int{}
	best := map[[2]point]game{}
	g := start
	for turn := 0; turn < 9; turn++ { //difftest:loop
		p := point{(turn * 2) % 3, (turn*4 + turn/3) % 3}
		old := g
		g = g.play(p, int8(turn%2*2-1))
		seen[g.b] += score(g.b)
		best[[2]point{old.last, g.last}] = old
		games = append(games, g)
		copied := g.b
		copied[0][0] = 9
		fmt.Println(turn, g.b, old.b == g.b, copied == g.b, seen[g.b], len(old.moves))
	}
	fmt.Println(len(seen), len(best), start.b, games[4].moves, games[4].b != games[5].b)
}
