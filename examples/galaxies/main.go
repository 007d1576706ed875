// Galaxies lets two galaxies meet, as A. and J. Toomre did in 1972. Two cores
// attract each other and all stars; stars attract nothing. The tides draw the
// stars out into a bridge and two tails. The program prints pictures, and
// writes the path of the second core to a file.
//
// This is a plain program. It imports nothing of Cairn and does not know that
// it may be killed:
//
//	cairn run ./examples/galaxies
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
)

const end = 8.4 // time at which the program ends

type vector struct{ x, y float64 }

func (a vector) plus(b vector, t float64) vector { return vector{a.x + t*b.x, a.y + t*b.y} }

type body struct{ at, speed vector }

func (b *body) drift(t float64) { b.at = b.at.plus(b.speed, t) }

// pull returns the acceleration of a body at a by a core at c.
func pull(a, c vector) vector {
	const soft = 0.02
	dx, dy := c.x-a.x, c.y-a.y
	d := dx*dx + dy*dy + soft
	f := 1 / (d * math.Sqrt(d))
	return vector{dx * f, dy * f}
}

type sky struct {
	cores [2]body
	stars []body
}

// encounter puts two galaxies on parabolas around each other.
func encounter(stars int) *sky {
	const far, near = 6.0, 0.8 // distance of the cores at the start, and the shortest one
	across := 2 * math.Sqrt(near) / far
	toward := math.Sqrt(4/far - across*across)
	s := &sky{cores: [2]body{
		{vector{-far / 2, 0}, vector{toward / 2, -across / 2}},
		{vector{far / 2, 0}, vector{-toward / 2, across / 2}},
	}}
	r := rand.New(rand.NewPCG(19, 72))
	for i := range stars {
		home := s.cores[i%2]
		radius := 0.7 * math.Sqrt(0.05+0.95*r.Float64())
		sin, cos := math.Sincos(2 * math.Pi * r.Float64())
		speed := math.Sqrt(radius * pull(vector{}, vector{radius, 0}).x)
		s.stars = append(s.stars, body{home.at.plus(vector{cos, sin}, radius), home.speed.plus(vector{-sin, cos}, speed)})
	}
	return s
}

// move advances all bodies by a short time.
func (s *sky) move(t float64) {
	a, b := &s.cores[0], &s.cores[1]
	a.drift(t / 2)
	b.drift(t / 2)
	a.speed, b.speed = a.speed.plus(pull(a.at, b.at), t), b.speed.plus(pull(b.at, a.at), t)
	for i := range s.stars {
		c := &s.stars[i]
		c.drift(t / 2)
		c.speed = c.speed.plus(pull(c.at, a.at), t).plus(pull(c.at, b.at), t)
		c.drift(t / 2)
	}
	a.drift(t / 2)
	b.drift(t / 2)
}

// draw prints a picture of the stars.
func (s *sky) draw() {
	const wide, high, scale = 76, 30, 8.0 // characters in a row, rows, characters in a unit of length
	const shades = " .:-=+*#%@"
	var count [high][wide]int
	for _, c := range s.stars {
		x := int(math.Floor(c.at.x*scale + wide/2))
		y := int(math.Floor(high/2 - c.at.y*scale/2))
		if x >= 0 && x < wide && y >= 0 && y < high {
			count[y][x]++
		}
	}
	for _, row := range count {
		line := make([]byte, wide)
		for x, n := range row {
			line[x] = shades[min(int(math.Log2(8000*float64(n)/float64(len(s.stars))+1)*1.5), len(shades)-1)]
		}
		fmt.Printf("%s\n", line)
	}
}

func main() {
	stars := flag.Int("stars", 20000, "how many stars there are")
	steps := flag.Int("steps", 20000, "into how many steps the time is cut")
	every := flag.Int("every", 4000, "draw a picture after so many steps")
	path := flag.String("path", "path.txt", "the file for the second core's path")
	flag.Parse()
	f, err := os.Create(*path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	defer w.Flush()
	s := encounter(*stars)
	for step := 1; step <= *steps; step++ {
		s.move(end / float64(*steps))
		fmt.Fprintln(w, step, s.cores[1].at.x, s.cores[1].at.y)
		if step%*every == 0 {
			fmt.Printf("time %.1f\n", end*float64(step)/float64(*steps))
			s.draw()
		}
	}
}
