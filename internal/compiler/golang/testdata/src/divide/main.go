// Divide has functions that divide work among devices, in ways of which some can
// be repeated with other devices. The comment at a loop says what the compiler
// finds: malleable, or why not.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/cairnrun/cairn/device"
)

const n, steps = 1024, 100

var work = device.NewKernel("", "work", func(w *device.Work) {
	s := device.Slice[float32](w, 0)
	for i := range s {
		s[i]++
	}
})

func main() {
	for _, f := range []func() error{inline, method, helper, first, lazy, stale, swapped, counter, perDevice, indexed, viewsInLoop,
		hostIndexed, hostValues, control, early, aliased, pointer, moved, changing, readsOld, twice, grouped, shadowing, effects, inner, saved, captured, stored,
		callback, helperValues, partValues, blocks, updated, kernelCounts,
		scanned, printed, built, shortCircuit, recovered, sorted, searched, sortedByMethods, chosenType, chosenFunction, iterated, packageVariable,
		formatted, compared, encoded, deferred, converted, heldByFunction, kernelReads, share, reused, mapped,
		rowOfTable, rowOfMap, methodValue, generic, channel, switched} {
		if err := f(); err != nil {
			log.Fatal(err)
		}
	}
}

type part struct {
	dev  *device.Device
	rows int
	view *device.Array[float32]
}

func (p *part) launch() error {
	return p.dev.Launch(work, device.Size{p.rows}, device.InOut(p.view), int32(p.rows))
}

func inline() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	var parts []part
	for k, d := range devs {
		lo, hi := n*k/len(devs), n*(k+1)/len(devs)
		parts = append(parts, part{d, hi - lo, grid.Rows(lo, hi)})
	}
	fmt.Println("on", len(devs), "devices")
	for range steps { // want malleable: devs parts
		for i := range parts {
			if err := parts[i].launch(); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(os.Stderr, devs)
	return nil
}

// sim is divided by a method.
type sim struct {
	n     int
	grid  *device.Array[float32]
	parts []*part
}

func (s *sim) divide(devs []*device.Device) error {
	if len(devs) > s.n {
		return fmt.Errorf("%d devices", len(devs))
	}
	for _, p := range s.parts {
		p.view.Free()
	}
	s.parts = nil
	for k, d := range devs {
		lo, hi := s.n*k/len(devs), s.n*(k+1)/len(devs)
		s.parts = append(s.parts, &part{dev: d, rows: hi - lo, view: s.grid.Rows(lo, hi)})
	}
	return nil
}

func method() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	s := &sim{n: n, grid: device.New[float32](n)}
	if err := s.divide(devs); err != nil {
		return err
	}
	for range steps { // want malleable: parts
		for _, p := range s.parts {
			if err := p.launch(); err != nil {
				return err
			}
		}
	}
	return nil
}

// helped is divided by a function.
type helped struct {
	grid  *device.Array[float32]
	count int
	views []*device.Array[float32]
	devs  []*device.Device
}

func spreadHelped(h *helped, devs []*device.Device) {
	h.count, h.devs, h.views = len(devs), devs, nil
	for k := range devs {
		h.views = append(h.views, h.grid.Rows(n*k/len(devs), n*(k+1)/len(devs)))
	}
}

func helper() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	h := &helped{grid: device.New[float32](n)}
	spreadHelped(h, devs)
	for i := 0; i < steps; i++ { // want malleable: count views devs
		for k, v := range h.views {
			if err := h.devs[k].Launch(work, device.Size{n / h.count}, device.InOut(v)); err != nil {
				return err
			}
		}
	}
	return nil
}

func first() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	x, y := device.New[float32](n), device.New[float32](n)
	for range steps { // want malleable: devs
		if err := devs[0].Launch(work, device.Size{n}, device.In(x), device.InOut(y)); err != nil {
			return err
		}
		x, y = y, x
	}
	return nil
}

// lazySim is divided only if it was not before.
type lazySim struct {
	grid  *device.Array[float32]
	parts []*part
}

func (s *lazySim) divide(devs []*device.Device) {
	if s.parts != nil {
		return
	}
	for k, d := range devs {
		s.parts = append(s.parts, &part{d, n, s.grid.Rows(n*k/len(devs), n*(k+1)/len(devs))})
	}
}

func lazy() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	s := &lazySim{grid: device.New[float32](n)}
	s.divide(devs)
	for range steps { // want parts: the devices
		for _, p := range s.parts {
			if err := p.launch(); err != nil {
				return err
			}
		}
	}
	return nil
}

// staleSim keeps the number of devices in a field that the division does not
// set.
type staleSim struct {
	grid  *device.Array[float32]
	count int
	parts []*part
}

func (s *staleSim) divide(devs []*device.Device) {
	s.parts = nil
	for k, d := range devs {
		s.parts = append(s.parts, &part{d, n, s.grid.Rows(n*k/s.count, n*(k+1)/s.count)})
	}
}

func stale() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	s := newStale(len(devs))
	s.divide(devs)
	for range steps { // want count: the devices
		for _, p := range s.parts {
			if err := p.launch(); err != nil {
				return err
			}
		}
	}
	return nil
}

func newStale(count int) *staleSim {
	fmt.Println(count)
	return &staleSim{grid: device.New[float32](n), count: count}
}

// swapSim exchanges views in every step.
type swapSim struct {
	a, b  *device.Array[float32]
	parts []*swapPart
}

type swapPart struct {
	dev      *device.Device
	from, to *device.Array[float32]
}

func (s *swapSim) divide(devs []*device.Device) {
	s.parts = nil
	for k, d := range devs {
		lo, hi := n*k/len(devs), n*(k+1)/len(devs)
		s.parts = append(s.parts, &swapPart{d, s.a.Rows(lo, hi), s.b.Rows(lo, hi)})
	}
}

func swapped() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	s := &swapSim{a: device.New[float32](n), b: device.New[float32](n)}
	s.divide(devs)
	for range steps { // want from: the devices, and the loop changes it
		for _, p := range s.parts {
			if err := p.dev.Launch(work, device.Size{n}, device.In(p.from), device.Out(p.to)); err != nil {
				return err
			}
			p.from, p.to = p.to, p.from
		}
	}
	return nil
}

func counter() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	launches := 0
	for range steps { // want launches: the devices, and the loop changes it
		for _, d := range devs {
			if err := d.Launch(work, device.Size{n}, device.In(grid)); err != nil {
				return err
			}
			launches++
		}
	}
	fmt.Println(launches)
	return nil
}

// perDevice has an array of each device's own size whose values live on.
func perDevice() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	sums := make([]float32, 16)
	grid := device.New[float32](n)
	for range steps { // want sums: the devices
		for k, d := range devs {
			if err := d.Launch(work, device.Size{n}, device.In(grid)); err != nil {
				return err
			}
			sums[k]++
		}
	}
	fmt.Println(sums)
	return nil
}

func indexed() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	sums := device.New[float32](16)
	for range steps { // want sums: a kernel writes to it once for each device
		for k, d := range devs {
			if err := d.Launch(work, device.Size{1}, device.InOut(sums), int32(k)); err != nil {
				return err
			}
		}
	}
	return nil
}

func viewsInLoop() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	sums := device.New[float32](16)
	for range steps { // want sums: the loop makes views of it for each device
		for k, d := range devs {
			if err := d.Launch(work, device.Size{1}, device.InOut(sums.Rows(k, k+1))); err != nil {
				return err
			}
		}
	}
	return nil
}

func hostIndexed() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	sums := device.New[float32](16)
	for range steps { // want v: the host may write what follows from the devices to an array that they share
		v, err := sums.Data()
		if err != nil {
			return err
		}
		for k, d := range devs {
			if err := d.Launch(work, device.Size{1}); err != nil {
				return err
			}
			v[k]++
		}
	}
	return nil
}

func hostValues() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	g, err := grid.Data()
	if err != nil {
		return err
	}
	g[0] = float32(len(devs))
	for range steps { // want g: the host may write what follows from the devices to an array that they share
		if err := devs[0].Launch(work, device.Size{n}, device.InOut(grid)); err != nil {
			return err
		}
	}
	return nil
}

func control() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	mode := 0
	if len(devs) > 1 {
		mode = 1
	}
	for range steps { // want malleable: devs mode
		if err := devs[0].Launch(work, device.Size{n}, device.InOut(grid)); err != nil {
			return err
		}
	}
	fmt.Println(mode)
	return nil
}

func early() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid, mode := device.New[float32](n), 0
	for i := range 10 {
		if i == len(devs) {
			break
		}
		mode = i
	}
	for range steps { // want mode: the devices; what sets it does more: it sets grid
		if err := devs[0].Launch(work, device.Size{n}, device.InOut(grid)); err != nil {
			return err
		}
	}
	fmt.Println(mode)
	return nil
}

func aliased() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid, counts := device.New[float32](n), make([]uint16, 4)
	other := counts
	other[0] = uint16(len(devs))
	for range steps { // want counts: the devices
		if err := devs[0].Launch(work, device.Size{n}, device.InOut(grid)); err != nil {
			return err
		}
	}
	fmt.Println(counts[0])
	return nil
}

func pointer() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid, count := device.New[float32](n), int8(0)
	p := &count
	*p = int8(len(devs))
	for range steps { // want count: the devices
		if err := devs[0].Launch(work, device.Size{n}, device.InOut(grid)); err != nil {
			return err
		}
	}
	fmt.Println(count)
	return nil
}

// movedSim changes the array that its division follows from.
type movedSim struct {
	grid, next *device.Array[float32]
	parts      []*part
}

func (s *movedSim) divide(devs []*device.Device) {
	s.parts = nil
	for k, d := range devs {
		s.parts = append(s.parts, &part{d, n, s.grid.Rows(n*k/len(devs), n*(k+1)/len(devs))})
	}
}

func moved() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	s := &movedSim{grid: device.New[float32](n), next: device.New[float32](n)}
	s.divide(devs)
	for range steps { // want grid: the division follows from it, and it changes while the loop runs
		for _, p := range s.parts {
			if err := p.launch(); err != nil {
				return err
			}
		}
		s.grid, s.next = s.next, s.grid
	}
	return nil
}

// changingSim is divided by values of an array that kernels write.
type changingSim struct {
	bounds *device.Array[int64]
	grid   *device.Array[float32]
	parts  []*part
}

func (s *changingSim) divide(devs []*device.Device) error {
	s.parts = nil
	b, err := s.bounds.Read()
	if err != nil {
		return err
	}
	for k, d := range devs {
		s.parts = append(s.parts, &part{d, n, s.grid.Rows(int(b[k]), int(b[k+1]))})
	}
	return nil
}

func changing() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	s := &changingSim{bounds: device.New[int64](17), grid: device.New[float32](n)}
	if err := s.divide(devs); err != nil {
		return err
	}
	for range steps { // want bounds: the division follows from its values, which may change
		for _, p := range s.parts {
			if err := p.launch(); err != nil {
				return err
			}
		}
		if err := devs[0].Launch(work, device.Size{1}, device.InOut(s.bounds)); err != nil {
			return err
		}
	}
	return nil
}

// oldSim derives its division from the one before.
type oldSim struct {
	grid  *device.Array[float32]
	first int
	parts []*part
}

func (s *oldSim) divide(devs []*device.Device) {
	was := len(s.parts)
	s.first = was
	s.parts = nil
	for k, d := range devs {
		s.parts = append(s.parts, &part{d, n, s.grid.Rows(n*k/len(devs), n*(k+1)/len(devs))})
	}
}

func readsOld() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	s := &oldSim{grid: device.New[float32](n)}
	s.divide(devs)
	for range steps { // want parts: the devices
		for _, p := range s.parts {
			if err := p.launch(); err != nil {
				return err
			}
		}
	}
	fmt.Println(s.first)
	return nil
}

// twoSim exists twice.
type twoSim struct {
	grid  *device.Array[float32]
	parts []*part
}

func (s *twoSim) divide(devs []*device.Device) {
	s.parts = nil
	for k, d := range devs {
		s.parts = append(s.parts, &part{d, n, s.grid.Rows(n*k/len(devs), n*(k+1)/len(devs))})
	}
}

func twice() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	a, b := &twoSim{grid: device.New[float32](n)}, &twoSim{grid: device.New[float32](n)}
	a.divide(devs)
	b.divide(devs)
	for range steps { // want parts: there may be several values of type twoSim
		for _, s := range []*twoSim{a, b} {
			for _, p := range s.parts {
				if err := p.launch(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func grouped() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid, group := device.New[float32](n), device.NewGroup(devs...)
	for i := range steps { // want group: the devices
		if err := group.At(i%group.Len()).Launch(work, device.Size{n}, device.InOut(grid)); err != nil {
			return err
		}
	}
	return nil
}

func shadowing() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	var parts []part
	for i, d := range devs {
		parts = append(parts, part{d, n, grid.Rows(n*i/len(devs), n*(i+1)/len(devs))})
	}
	for i := range steps { // want i: the loop's variable has the name of one that divides the work
		if err := parts[i%len(parts)].launch(); err != nil {
			return err
		}
	}
	return nil
}

// effectSim writes a file when it is divided.
type effectSim struct {
	grid  *device.Array[float32]
	parts []*part
}

func (s *effectSim) divide(devs []*device.Device) error {
	s.parts = nil
	for k, d := range devs {
		s.parts = append(s.parts, &part{d, n, s.grid.Rows(n*k/len(devs), n*(k+1)/len(devs))})
	}
	return os.WriteFile("devices", []byte(fmt.Sprint(len(devs))), 0o666)
}

func effects() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	s := &effectSim{grid: device.New[float32](n)}
	if err := s.divide(devs); err != nil {
		return err
	}
	for range steps { // want parts: the devices; what sets it does more
		for _, p := range s.parts {
			if err := p.launch(); err != nil {
				return err
			}
		}
	}
	return nil
}

// innerSim changes a part of its division after that was made.
type innerSim struct {
	grid  *device.Array[float32]
	parts []*innerPart
}

type innerPart struct {
	dev  *device.Device
	view *device.Array[float32]
	name string
}

func (s *innerSim) divide(devs []*device.Device) {
	s.parts = nil
	for k, d := range devs {
		s.parts = append(s.parts, &innerPart{dev: d, view: s.grid.Rows(n*k/len(devs), n*(k+1)/len(devs))})
	}
}

func (s *innerSim) name() {
	for _, p := range s.parts {
		p.name = os.Args[0]
		fmt.Println(p.name)
	}
}

func inner() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	s := &innerSim{grid: device.New[float32](n)}
	s.divide(devs)
	s.name()
	for range steps { // want name: the devices, and the loop changes it
		for _, p := range s.parts {
			if err := p.dev.Launch(work, device.Size{n}, device.InOut(p.view)); err != nil {
				return err
			}
		}
	}
	fmt.Println(s.parts[0].name)
	return nil
}

// last is a package variable with a device.
var last *device.Device

func saved() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	last = devs[len(devs)-1]
	for range steps { // want malleable: last devs
		if err := devs[0].Launch(work, device.Size{n}, device.InOut(grid)); err != nil {
			return err
		}
	}
	return nil
}

func captured() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	count := len(devs)
	tell := func(s string) { fmt.Println(s, count) }
	for range steps { // want malleable: devs count
		if err := devs[0].Launch(work, device.Size{n}, device.InOut(grid)); err != nil {
			return err
		}
		tell("step")
	}
	return nil
}

// stores keeps a list of devices in an interface.
func stored() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	var box any = devs
	for range steps { // want box: the devices
		if err := devs[0].Launch(work, device.Size{n}, device.InOut(grid)); err != nil {
			return err
		}
	}
	fmt.Println(box)
	return nil
}

// callback counts in a function that a library calls once for each device.
func callback() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	launches := 0
	for range steps { // want devs: the devices, and the loop changes it
		if slices.ContainsFunc(devs, func(d *device.Device) bool {
			launches++
			return d.Launch(work, device.Size{n}, device.In(grid)) != nil
		}) {
			return errors.New("a launch failed")
		}
	}
	fmt.Println(launches)
	return nil
}

func note(v []float64, k int) { v[k]++ }

func helperValues() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	sums := device.New[float64](16)
	for range steps { // want v: the host may write what follows from the devices to an array that they share
		v, err := sums.Data()
		if err != nil {
			return err
		}
		for k, d := range devs {
			if err := d.Launch(work, device.Size{1}); err != nil {
				return err
			}
			note(v, k)
		}
	}
	return nil
}

func partValues() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	sums := device.New[uint8](16)
	v, err := sums.Data()
	if err != nil {
		return err
	}
	some := v[1:]
	some[len(devs)] = 1
	for range steps { // want v: the host may write what follows from the devices to an array that they share
		if err := devs[0].Launch(work, device.Size{n}, device.InOut(sums)); err != nil {
			return err
		}
	}
	return nil
}

// blockSim exists twice, in blocks.
type blockSim struct {
	grid  *device.Array[float32]
	parts []*part
}

func (s *blockSim) divide(devs []*device.Device) {
	s.parts = nil
	for k, d := range devs {
		s.parts = append(s.parts, &part{d, n, s.grid.Rows(n*k/len(devs), n*(k+1)/len(devs))})
	}
}

func blocks() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	a := &blockSim{grid: device.New[float32](n)}
	a.divide(devs)
	{
		b := &blockSim{grid: device.New[float32](n)}
		b.divide(devs)
		for range steps { // want parts: there may be several values of type blockSim
			for k := range a.parts {
				if err := a.parts[k].launch(); err != nil {
					return err
				}
				if err := b.parts[k].launch(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func updated() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	for range steps { // want none
		if err := grid.Update(func(v []float32) { v[len(devs)]++ }); err != nil {
			return err
		}
		if err := devs[0].Launch(work, device.Size{n}, device.InOut(grid)); err != nil {
			return err
		}
	}
	return nil
}

func kernelCounts() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid, calls := device.New[float32](n), 0
	count := device.NewKernel("", "count", func(*device.Work) { calls++ })
	for range steps { // want none
		for _, d := range devs {
			if err := d.Launch(count, device.Size{n}, device.In(grid)); err != nil {
				return err
			}
		}
	}
	fmt.Println(calls)
	return nil
}

func tiled() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n, n)
	edge := device.New[float32](n)
	for range steps { // want none
		for i, d := range devs {
			if err := device.Copy(edge, grid.View([]int{0, i}, []int{n, i + 1})); err != nil {
				return err
			}
			if err := d.Launch(work, device.Size{n}, device.InOut(edge)); err != nil {
				return err
			}
		}
	}
	return nil
}
