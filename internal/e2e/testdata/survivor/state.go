package main

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"time"
)

// state is everything that the result depends on.
type state struct {
	Step    int
	Title   string
	Dense   []float64 // each changes in every step
	Sparse  []float64 // a few change in every step, close to each other
	Phases  []complex128
	Matrix  [][]float32
	Counts  map[string]int64
	Nested  map[int][]string
	Product *big.Int
	Clock   time.Time
	Drawn   *rand.Rand
	Mixed   mixed
	Ring    *node
	Mean    *float64 // the last element of Dense
	Things  []any
	log     []record
}

// mixed is laid out differently on different machines.
type mixed struct {
	Flag  bool
	Short int16
	Word  uint32
	Byte  int8
	Wide  uint64
	Half  float32
	Sizes [3]uint
	Text  [2]string
}

type node struct {
	Value int32
	Next  *node
}

type record struct {
	step int
	what string
	when time.Time
}

func newState(dense, sparse int) *state {
	s := &state{
		Title: "survivor", Dense: make([]float64, dense), Sparse: make([]float64, sparse),
		Phases: make([]complex128, 16), Counts: make(map[string]int64), Nested: make(map[int][]string),
		Product: big.NewInt(3), Clock: time.Date(2001, 2, 3, 4, 5, 6, 7, time.FixedZone("Mid", 5400)),
		Drawn: rand.New(rand.NewPCG(7, 11)), Ring: &node{Value: 1},
	}
	for i := range s.Dense {
		s.Dense[i] = 1 / float64(i+2)
	}
	for i := range s.Phases {
		s.Phases[i] = complex(1/float64(i+1), 1)
	}
	for range 5 {
		s.Matrix = append(s.Matrix, make([]float32, 7))
	}
	last := s.Ring
	for i := range int32(5) {
		last.Next = &node{Value: i}
		last = last.Next
	}
	last.Next = s.Ring
	s.Mean = &s.Dense[dense-1]
	s.Things = []any{1, "two", 3.0, s.Ring, &s.Mixed, []uint16{4, 5}}
	return s
}

// advance does a step.
func (s *state) advance() {
	s.Step++
	sum := 0.0
	for i, x := range s.Dense {
		x = float64(float64(3.7*x) * (1 - x)) // the logistic map
		s.Dense[i] = x
		sum += x
	}
	*s.Mean = sum / float64(len(s.Dense)+1)
	at := 5 * s.Step % len(s.Sparse)
	if s.Step%64 == 0 {
		at = s.Drawn.IntN(len(s.Sparse))
	}
	for i := at; i < min(at+8, len(s.Sparse)); i++ {
		s.Sparse[i] += s.Drawn.Float64()
	}
	for i, z := range s.Phases {
		re, im := 0.6, 0.8
		s.Phases[i] = complex(float64(real(z)*re)-float64(imag(z)*im), float64(real(z)*im)+float64(imag(z)*re))
	}
	s.Matrix[s.Step%5][s.Step%7] += float32(s.Drawn.Float64())
	key := fmt.Sprintf("k%d", s.Drawn.IntN(40))
	s.Counts[key] += int64(s.Step)
	if s.Step%11 == 0 {
		delete(s.Counts, key)
	}
	s.Nested[s.Step%9] = append(s.Nested[s.Step%9], key)
	if len(s.Nested[s.Step%9]) > 6 {
		delete(s.Nested, s.Step%9)
	}
	s.Product.Mul(s.Product, big.NewInt(int64(2*s.Step+1)))
	if s.Product.BitLen() > 500 {
		s.Product.Rsh(s.Product, 333)
	}
	s.Clock = s.Clock.Add(time.Duration(s.Drawn.Int64N(1e12)))
	m := &s.Mixed
	m.Flag = !m.Flag
	m.Short, m.Byte = m.Short*3+1, m.Byte+5
	m.Word, m.Wide = m.Word*1664525+1013904223, m.Wide*6364136223846793005+1442695040888963407
	m.Half += float32(1) / float32(s.Step)
	m.Sizes[s.Step%3] = uint(m.Word)
	m.Text[s.Step%2] = key + "," + s.Clock.Weekday().String()
	s.Ring.Value += int32(s.Step)
	s.Ring = s.Ring.Next
	s.Things[0] = s.Things[0].(int) + s.Step
	s.Things[5].([]uint16)[0]++
	s.log = append(s.log, record{s.Step, key, s.Clock})
	if len(s.log) > 20 {
		s.log = s.log[10:]
	}
}

// line is the step's line in the time series.
func (s *state) line() string {
	return fmt.Sprint(s.Step, " ", *s.Mean, " ", s.Phases[0], " ", s.Mixed.Wide, " ", s.Clock.UnixNano())
}

// describe tells the whole state.
func (s *state) describe() string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Step, s.Title, s.Product, s.Clock, s.Mixed)
	fmt.Fprintln(&b, s.Phases, s.Matrix, s.Counts, s.Nested)
	fmt.Fprintln(&b, s.Things[0], s.Things[1], s.Things[2], s.Things[5], s.Drawn.Uint64())
	for n, i := s.Ring, 0; i < 6; n, i = n.Next, i+1 {
		fmt.Fprintln(&b, "ring", n.Value, n == s.Things[3], s.Things[4] == &s.Mixed, s.Mean == &s.Dense[len(s.Dense)-1])
	}
	for _, r := range s.log {
		fmt.Fprintln(&b, "log", r.step, r.what, r.when)
	}
	for i, x := range s.Dense {
		fmt.Fprintln(&b, "dense", i, x)
	}
	for i, x := range s.Sparse {
		if x != 0 {
			fmt.Fprintln(&b, "sparse", i, x)
		}
	}
	return b.String()
}
