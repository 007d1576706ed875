// Command consts covers constants and iota, typed strings and bit flags, and
// arrays indexed by constants.
package main

import "fmt"

type color int

const (
	red color = iota
	green
	_
	blue
	colors
)

const (
	kb = 1 << (10 * (iota + 1))
	mb
)

type mode uint8

const (
	read mode = 1 << iota
	write
	exec
	all = read | write | exec
)

var names = [colors]string{red: "red", green: "green", blue: "blue"}

func (c color) String() string { return names[c%colors] }
func (m mode) String() string  { return fmt.Sprintf("%03b", uint8(m)) }

func main() {
	const rounds, step = 6, 2.5
	var hist [colors]int
	m := read
	const big = 1 << 100
	for i := red; i < rounds; i++ { //difftest:loop
		const limit = 3000
		for k := range limit {
			hist[(color(k)*7+i)%colors]++
		}
		m = m<<1 | m>>2&^exec
		m &= all
		fmt.Println(i, hist, m, float64(i)*step, kb+mb, big>>98)
	}
	fmt.Println(hist[blue], colors)
}
