package main

import "math"

// shwaSize is a problem: cells from west to east and from south to north.
type shwaSize struct{ nx, ny, steps int }

var shwaSizes = map[string]shwaSize{
	"tiny":   {64, 48, 200},
	"small":  {400, 400, 2000},
	"medium": {400, 400, 1000},
	"large":  {800, 800, 20000},
	"long":   {800, 800, 100000},
}

// shwaWidth is the width of the basin from west to east, in metres.
const shwaWidth = 12800

// shwaRise is the amplitude of the tide. The river is higher than the sea by
// the same amount.
const shwaRise = 1.8

// shwaGround returns the level of the ground at a place of the basin, x and y
// from 0 to 1: an estuary, open to the sea in the west, to which a river winds
// from the east between hills, with an island and flats that fall dry. Levels
// are multiples of 1/1024 m, so that depth plus ground is exact.
func shwaGround(x, y float64) float32 {
	bump := func(cx, cy, wx, wy float64) float64 {
		dx, dy := (x-cx)/wx, (y-cy)/wy
		return math.Exp(-dx*dx - dy*dy)
	}
	// The channel: the distance from its middle, in half widths.
	middle := 0.5 + 0.20*x*math.Sin(7.2*x+0.4) - 0.02*math.Sin(19*x)
	half := 0.07 + 0.46*math.Pow(1-x, 1.6) + 0.018*math.Sin(23*x+1)*x
	r := math.Abs(y-middle) / half
	deep := 4 + 8*(1-x)
	b := deep * (r*r - 1)
	if b > 0 {
		b = 30 * b / (30 + b) // hills, not mountains
		b *= 1 + 0.35*math.Sin(17*x+9*y)*math.Sin(13*y-6*x+1) + 0.15*math.Sin(41*x+3)*math.Sin(37*y)
	} else {
		b *= 1 + 0.12*math.Sin(21*x+8*y)*math.Sin(17*y-5*x)
	}
	b += 17 * bump(0.33, 0.54, 0.075, 0.045) // the island
	b += 6 * bump(0.39, 0.49, 0.05, 0.03)    // its cape
	b += 9 * bump(0.20, 0.33, 0.045, 0.03)   // a shoal
	b += 4.5 * bump(0.62, 0.47, 0.10, 0.025) // flats in the channel
	return float32(math.Round(b*1024) / 1024)
}

// source returns the place of the contaminant's source, a disc of cells: its
// centre and the square of its radius.
func (s shwaSize) source() (i, j, r2 int) {
	r := max(1, s.nx/70)
	return s.nx * 76 / 100, s.ny * 50 / 100, r * r
}

// ground and start fill the arrays: the ground, and water at rest at level 0.
func (s shwaSize) ground(bed []float32) {
	for j := range s.ny {
		for i := range s.nx {
			bed[j*s.nx+i] = shwaGround((float64(i)+0.5)/float64(s.nx), (float64(j)+0.5)/float64(s.ny))
		}
	}
}

func (s shwaSize) start(u, bed []float32) {
	for j := range s.ny {
		for i := range s.nx {
			u[4*j*s.nx+i] = larger(0, -bed[j*s.nx+i])
		}
	}
}

func (s shwaSize) cell() float32 { return float32(shwaWidth) / float32(s.nx) }
