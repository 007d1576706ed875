// Package shape is a vendored dependency with state of its own.
package shape

var made int

// Shape is a list of corners.
type Shape struct {
	Corners [][2]float64
	id      int
}

// New makes a shape.
func New(n int) *Shape {
	made++
	return &Shape{Corners: make([][2]float64, n), id: made}
}

// Relax moves corners towards each other, some times.
func (s *Shape) Relax(times int) (moved float64) {
	for range times { //difftest:loop
		for range 300 {
			for i := range s.Corners {
				j := (i + 1) % len(s.Corners)
				d := (s.Corners[j][0] - s.Corners[i][0]) * 0.1
				s.Corners[i][0] += d
				moved += d * d
			}
		}
		s.Corners[0][0] += float64(s.id)
	}
	return moved
}

// Made says how many there are.
func Made() int { return made }
