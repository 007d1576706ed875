// Dryrun has loops that launch kernels. A comment at a loop says in which arrays
// a dry run of an iteration may find parts that need not be saved.
package main

import (
	"fmt"
	"math/rand"
	"os"
	"time"

	"github.com/cairnrun/cairn/device"
)

type array = *device.Array[float64]

var (
	dev    *device.Device
	kernel *device.Kernel
	size   = device.Size{64}
	hook   func()
	count  int
)

type level struct {
	a, b array
	n    int
}

type grid struct {
	levels []level
	out    array
	name   string
	made   []func() error
}

func newGrid() *grid {
	g := &grid{out: device.New[float64](64)}
	for range 4 {
		g.levels = append(g.levels, level{device.New[float64](64), device.New[float64](64), 1})
	}
	return g
}

func (g *grid) down(l int) error {
	return dev.Launch(kernel, size, device.In(g.levels[l].a), device.Out(g.levels[l+1].a.Rows(0, 32)))
}

func (g *grid) cycle(step int) error {
	if step == 0 {
		if err := dev.Launch(kernel, size, device.Out(g.levels[0].a)); err != nil {
			return fmt.Errorf("level 0: %w", err)
		}
	}
	for l := range len(g.levels) - 1 {
		if err := g.down(l); err != nil {
			return err
		}
	}
	err := dev.Launch(kernel, size, device.In(g.levels[3].a), device.Out(g.out))
	if err != nil {
		return err
	}
	return nil
}

func levels() error { // out is read later
	g := newGrid()
	for i := range 10 { // dry run: g.levels[*].a, g.levels[*].b
		if err := g.cycle(i); err != nil {
			return err
		}
		count++
	}
	_, err := g.out.Read()
	return err
}

func direct() {
	a, b := device.New[float64](64), device.New[float64](64)
	for i := range 10 { // dry run: a, b
		err := dev.Launch(kernel, size, device.In(a.Rows(i, i+1)), device.Out(b))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

func after() error { // what comes after the calls does not matter
	g := newGrid()
	for range 10 { // dry run: g.levels[*].a, g.levels[*].b, g.out
		if err := g.down(0); err != nil {
			return err
		}
		count++
		if err := g.down(1); err != nil {
			return err
		}
	}
	return nil
}

func before() error { // something else comes before
	g := newGrid()
	for i := range 10 { // dry run:
		count++
		if err := g.cycle(i); err != nil {
			return err
		}
	}
	return nil
}

func own() error { // the argument is made in the iteration
	g := newGrid()
	for i := range 10 { // dry run:
		k := i % 2
		if err := g.cycle(k); err != nil {
			return err
		}
	}
	return nil
}

func again() error { // after a failure, the loop begins once more
	g := newGrid()
	for range 3 {
		for i := range 10 { // dry run:
			if err := g.cycle(i); err != nil {
				break
			}
		}
	}
	return nil
}

func goesOn() error { // after a failure, the loop continues
	g := newGrid()
	for i := range 10 { // dry run:
		if err := g.cycle(i); err != nil {
			continue
		}
	}
	return nil
}

func ignores() error {
	g := newGrid()
	for i := range 10 { // dry run:
		g.cycle(i)
	}
	return nil
}

func (g *grid) rescued(i int) error {
	if err := g.down(i); err != nil {
		return g.down(0)
	}
	return nil
}

func rescues() error {
	g := newGrid()
	for i := range 10 { // dry run:
		if err := g.rescued(i); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) swallowed(i int) error {
	if err := g.down(i); err != nil {
		return nil
	}
	return g.down(0)
}

func swallows() error {
	g := newGrid()
	for i := range 10 { // dry run:
		if err := g.swallowed(i); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) dropped(i int) error {
	g.down(i)
	return nil
}

func drops() error {
	g := newGrid()
	for i := range 10 { // dry run:
		if err := g.dropped(i); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) counted(i int) error {
	g.levels[i].n++
	return g.down(i)
}

func counts() error { // it changes what outlives the call
	g := newGrid()
	for i := range 10 { // dry run:
		if err := g.counted(i); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) copied(i int) error {
	l := g.levels[i] // a copy
	l.n++
	p := &l
	_ = p
	return g.down(min(l.n, i))
}

func copies() error {
	g := newGrid()
	for i := range 10 { // dry run: g.levels[*].a, g.levels[*].b, g.out
		if err := g.copied(i); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) pointed(i int) error {
	l := &g.levels[i]
	l.n++
	return g.down(i)
}

func points() error {
	g := newGrid()
	for i := range 10 { // dry run:
		if err := g.pointed(i); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) timed() error { return g.down(int(time.Now().Unix() % 2)) }

func times() error { // not the same after a restart
	g := newGrid()
	for range 10 { // dry run:
		if err := g.timed(); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) random() error { return g.down(rand.Intn(2)) }

func randoms() error {
	g := newGrid()
	for range 10 { // dry run:
		if err := g.random(); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) byKind() error {
	if dev.Info().Kind == device.GPU {
		return g.down(0)
	}
	return g.down(1)
}

func kinds() error { // another device may be of another kind
	g := newGrid()
	for range 10 { // dry run:
		if err := g.byKind(); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) byDevice(d, e *device.Device) error {
	if d == e {
		return g.down(0)
	}
	return g.down(1)
}

func same(d, e *device.Device) error { // they may be the same device after a restart
	g := newGrid()
	for range 10 { // dry run:
		if err := g.byDevice(d, e); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) byFloat(x float64) error {
	if x*x+x > 1 {
		return g.down(0)
	}
	return g.down(1)
}

func floats(x float64) error { // another machine may round otherwise
	g := newGrid()
	for range 10 { // dry run:
		if err := g.byFloat(x); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) readBack() error {
	if _, err := g.out.Read(); err != nil {
		return err
	}
	return g.down(0)
}

func readsBack() error {
	g := newGrid()
	for range 10 { // dry run:
		if err := g.readBack(); err != nil {
			return err
		}
	}
	return nil
}

func inOrder(fs ...func() error) error {
	for _, f := range fs {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) several() error {
	return inOrder(func() error { return g.down(0) }, func() error { return g.down(1) })
}

func literals() error {
	g := newGrid()
	for range 10 { // dry run: g.levels[*].a, g.levels[*].b, g.out
		if err := g.several(); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) hooked() error {
	hook()
	return g.down(0)
}

func hooks() error {
	hook = func() { count++ }
	g := newGrid()
	for range 10 { // dry run:
		if err := g.hooked(); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) printed() error {
	fmt.Println(g.name)
	return g.down(0)
}

func prints() error {
	g := newGrid()
	for range 10 { // dry run:
		if err := g.printed(); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) appended() error {
	list := append(g.levels, level{})
	return g.down(len(list) - 4)
}

func appends() error { // append may write to memory that others see
	g := newGrid()
	for range 10 { // dry run:
		if err := g.appended(); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	levels()
	direct()
	after()
	before()
	own()
	again()
	goesOn()
	ignores()
	rescues()
	swallows()
	drops()
	counts()
	copies()
	points()
	times()
	randoms()
	kinds()
	same(nil, nil)
	floats(float64(count))
	readsBack()
	literals()
	hooks()
	prints()
	appends()
}
