package mpi

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/p2p"
	"github.com/cairnrun/cairn/internal/transport/mem"
)

// In these tests some ranks simulate machines of the other byte order. The
// memory of such a rank is byte-swapped, so that the native ranks see the right
// values if and only if messages are converted.

// turn changes the byte order of everything in v, value by value.
func turn(v reflect.Value) {
	flip := func(p unsafe.Pointer, n uintptr) { slices.Reverse(unsafe.Slice((*byte)(p), n)) }
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			turn(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			turn(v.Field(i))
		}
	case reflect.Complex64, reflect.Complex128:
		half := v.Type().Size() / 2
		flip(v.Addr().UnsafePointer(), half)
		flip(unsafe.Add(v.Addr().UnsafePointer(), half), half)
	default:
		flip(v.Addr().UnsafePointer(), v.Type().Size())
	}
}

// own returns values as a rank has them in memory.
func own[T any](c *Comm, foreign bool, values []T) []T {
	values = slices.Clone(values)
	if foreign {
		turn(reflect.ValueOf(values))
	}
	return values
}

// odd makes ranks 1, 3 … simulate the other byte order.
func odd(rank int) bool { return rank%2 == 1 }

func mixed(t *testing.T, n int, o mem.Options, body func(c *Comm, foreign bool) error) {
	t.Helper()
	err := local(n, o, func(cfg *p2p.Config) { cfg.OtherByteOrder = odd(cfg.Rank) }, func(c *Comm) error { return body(c, odd(c.Rank())) })
	if err != nil {
		t.Fatal(err)
	}
}

// waysOf are the ways in which messages are sent: eager, announced, pulled.
var waysOf = map[string]mem.Options{
	"eager":      {EagerLimit: 1 << 20},
	"rendezvous": {EagerLimit: 1},
	"pull":       {EagerLimit: 1, Pull: true},
	"narrow":     {EagerLimit: 64, Window: -1},
}

type (
	small  struct{ A, B uint16 }
	padded struct {
		A byte
		B int32
		_ byte
		C float64
		D [3]int16
		E struct {
			X bool
			Y complex128
		}
		f uint64
	}
	words  struct{ X, Y, Z float64 }
	halves struct {
		A [2]float32
		B complex64
		C uint32
	}
	text  struct{ S [7]byte }
	empty struct{}
	named int32
)

// travel sends values of a type in all ways, back and forth.
func travel[T any](values []T) func(c *Comm, foreign bool) error {
	return func(c *Comm, foreign bool) error {
		mine, peer := own(c, foreign, values), 1-c.Rank()
		got := func(what string, data []T, st Status, err error) error {
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if Count[T](st) != len(values) && unsafe.Sizeof(values[0]) > 0 {
				return fmt.Errorf("%s: %d values, want %d", what, Count[T](st), len(values))
			}
			if !reflect.DeepEqual(data[:len(values)], mine) {
				return fmt.Errorf("%s of %T: %v, want %v", what, values, data, mine)
			}
			return nil
		}
		buf := func() []T { return make([]T, len(values)+2) }
		// A pending receive, into which the message is written directly.
		a := buf()
		q := Irecv(c, a, peer, 1)
		if err := c.Barrier(); err != nil {
			return err
		}
		s := Isend(c, mine, peer, 1)
		st, err := q.Wait()
		if err := got("straight", a, st, err); err != nil {
			return err
		}
		if _, err := s.Wait(); err != nil {
			return err
		}
		// A message that waits for its receive.
		s = Isend(c, mine, peer, 2)
		if _, err := c.Probe(peer, 2); err != nil {
			return err
		}
		a = buf()
		st, err = Recv(c, a, AnySource, AnyTag)
		if err := got("late", a, st, err); err != nil {
			return err
		}
		if _, err := s.Wait(); err != nil {
			return err
		}
		a = buf()
		st, err = Sendrecv(c, mine, peer, 3, a, peer, 3)
		if err := got("exchanged", a, st, err); err != nil {
			return err
		}
		// Messages to itself are not converted.
		a = buf()
		st, err = Sendrecv(c, mine, c.Rank(), 4, a, c.Rank(), 4)
		return got("to itself", a, st, err)
	}
}

// TestByteOrder_Types sends values of all types between machines of both byte
// orders.
func TestByteOrder_Types(t *testing.T) {
	bodies := []func(c *Comm, foreign bool) error{
		travel([]byte("bytes stay")), travel([]int8{-1, 2}), travel([]bool{true, false, true}),
		travel([]int16{1, -2, 0x1234}), travel([]uint16{0xfffe}), travel([]int32{1, -2, 3}), travel([]uint32{0xdeadbeef}),
		travel([]int64{1 << 40, -5}), travel([]uint64{0x0102030405060708}), travel([]int{7, -8}), travel([]uint{9}),
		travel([]float32{1.5, -2}), travel([]float64{3.25, 1e300, math.Copysign(0, -1)}), travel([]complex64{1 + 2i}), travel([]complex128{3 - 4i, 5}),
		travel([]named{4, 5}), travel([][3]float64{{1, 2, 3}, {4, 5, 6}}), travel([][2][2]int16{{{1, 2}, {3, 4}}}),
		travel([]small{{1, 2}, {3, 4}}), travel([]words{{1, 2, 3}, {4, 5, 6}}), travel([]halves{{[2]float32{1, 2}, 3 + 4i, 5}}),
		travel([]text{{[7]byte{1, 2, 3}}}), travel([]empty{{}, {}}), travel(make([]float64, 0, 1)[:1]),
		travel([]padded{{A: 1, B: 2, C: 3, D: [3]int16{4, 5, 6}, f: 8}, {A: 9, B: -9, C: 1e9}}),
		travel([][2]padded{{{B: 70000}, {C: 3}}}), travel(slices.Repeat([]float64{1.125}, 20000)),
		travel([]Loc[float32]{{1.5, 7}}),
	}
	for name, o := range waysOf {
		t.Run(name, func(t *testing.T) {
			mixed(t, 2, o, func(c *Comm, foreign bool) error {
				for _, b := range bodies {
					if err := b(c, foreign); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// sumOf returns an operation that adds values as this rank has them in memory.
func sumOf[T Number](foreign bool) Op[T] {
	return func(inout, in []T) {
		in = slices.Clone(in)
		if foreign {
			turn(reflect.ValueOf(inout))
			turn(reflect.ValueOf(in))
			defer func() { turn(reflect.ValueOf(inout)) }()
		}
		Sum(inout, in)
	}
}

// TestByteOrder_Collectives runs collectives on machines of both byte orders.
func TestByteOrder_Collectives(t *testing.T) {
	for name, o := range waysOf {
		for _, n := range []int{2, 3, 5} {
			for _, length := range []int{3, 5000} { // short and long messages
				t.Run(fmt.Sprint(name, "/", n, "/", length), func(t *testing.T) {
					mixed(t, n, o, func(c *Comm, foreign bool) error { return collectives(c, foreign, length) })
				})
			}
		}
	}
}

func collectives(c *Comm, foreign bool, length int) error {
	n, me := c.Size(), c.Rank()
	given := func(rank int) []float64 {
		v := make([]float64, length)
		for i := range v {
			v[i] = float64(rank+1)*1000.5 + float64(i)
		}
		return v
	}
	mine := own(c, foreign, given(me))
	same := func(what string, got, want []float64, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if want = own(c, foreign, want); !slices.Equal(got, want) {
			return fmt.Errorf("%s is not what it should be", what)
		}
		return nil
	}
	var all, sum, upto []float64
	sum = make([]float64, length)
	for r := range n {
		all = append(all, given(r)...)
		for i, v := range given(r) {
			sum[i] += v
		}
		if r == me {
			upto = slices.Clone(sum)
		}
	}
	a := slices.Clone(mine)
	if err := same("Bcast", a, given(1), Bcast(c, a, 1)); err != nil {
		return err
	}
	a = make([]float64, n*length)
	if err := same("Allgather", a, all, Allgather(c, mine, a)); err != nil {
		return err
	}
	a = make([]float64, n*length)
	err := Gather(c, mine, a, 0)
	if me != 0 {
		a = own(c, foreign, all)
	}
	if err := same("Gather", a, all, err); err != nil {
		return err
	}
	a = make([]float64, length)
	if err := same("Scatter", a, given(me), Scatter(c, own(c, foreign, all), a, n-1)); err != nil {
		return err
	}
	var wanted []float64
	for r := range n {
		wanted = append(wanted, given(r)...)
	}
	a = make([]float64, n*length)
	if err := same("Alltoall", a, wanted, Alltoall(c, slices.Repeat(mine, n), a)); err != nil {
		return err
	}
	op := sumOf[float64](foreign)
	a = make([]float64, length)
	if err := same("Allreduce", a, sum, Allreduce(c, mine, a, op)); err != nil {
		return err
	}
	a = own(c, foreign, sum)
	if err := same("Reduce", a, sum, Reduce(c, mine, a, op, 0)); err != nil && me == 0 {
		return err
	}
	a = make([]float64, length)
	if err := same("Scan", a, upto, Scan(c, mine, a, op)); err != nil {
		return err
	}
	return c.Barrier()
}

// TestByteOrder_IntSize shows that a rank whose ints have another size can
// receive what does not depend on it.
func TestByteOrder_IntSize(t *testing.T) {
	type spread struct {
		A int32
		B float64
	}
	type sorted struct {
		A float64
		B [2]int32
	}
	for _, foreign := range []bool{false, true} {
		err := local(2, mem.Options{}, func(cfg *p2p.Config) { cfg.OtherIntSize, cfg.OtherByteOrder = cfg.Rank == 1, cfg.Rank == 1 && foreign }, func(c *Comm) error {
			peer := 1 - c.Rank()
			if _, err := Sendrecv(c, []int64{5}, peer, 0, make([]int64, 1), peer, 0); err != nil {
				return err
			}
			if _, err := Sendrecv(c, []sorted{{}}, peer, 0, make([]sorted, 1), peer, 0); err != nil {
				return err
			}
			if _, err := Sendrecv(c, []int{5}, c.Rank(), 0, make([]int, 1), c.Rank(), 0); err != nil {
				return err
			}
			if _, err := Sendrecv(c, []int{5}, peer, 0, make([]int, 1), peer, 0); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "int ") {
				return fmt.Errorf("int: %v", err)
			}
			if _, err := Sendrecv(c, []spread{{}}, peer, 0, make([]spread, 1), peer, 0); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "spread") {
				return fmt.Errorf("spread: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPortable checks which types have the same layout on all machines.
func TestPortable(t *testing.T) {
	for _, c := range []struct {
		v    any
		want bool
	}{
		{int64(0), true}, {float64(0), true}, {complex128(0), true}, {[4]uint16{}, true}, {byte(0), true},
		{0, false}, {uint(0), false}, {[3]int{}, false},
		{struct {
			A int64
			B int32
		}{}, false}, // it ends in padding
		{struct {
			A int32
			B complex128
		}{}, false},
		{struct {
			A int32
			B complex64
		}{}, true},
		{struct{ A, B int32 }{}, true}, {small{}, true}, {words{}, true}, {padded{}, false}, {empty{}, true},
		{struct {
			A int64
			B struct{}
		}{}, false},
		{struct {
			A int16
			B [0]int64
		}{}, false},
	} {
		if got := portable(reflect.TypeOf(c.v)); got != c.want {
			t.Errorf("%T: %v", c.v, got)
		}
	}
}
