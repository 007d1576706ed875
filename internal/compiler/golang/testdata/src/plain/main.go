// Each loop and main say what they count; see package load for the rules.
package main

var table [10]int

const limit = 5

func main() { // total s=15 a=12
	x, y := 1, 2
	var z int
	var w = x
	for i := 0; i < x; i++ { // s=4 a=5
		y = x + y
		table[i] = y
		z += table[x]
	}
	if x > y {
		x = y
		y = x * z
	} else {
		z = w
	}
	switch z {
	case 1, 2:
		x++
	case limit:
	default:
		y--
	}
	for { // s=2 a=1
		if x == 0 {
			break
		}
		x--
	}
	_ = w
}
