package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/cairnrun/cairn/device"
)

// The functions of this file have a variable that depends on the number of
// devices in a way that is not a plain assignment.

// views divides an array.
func views(a *device.Array[float32], devs []*device.Device) (list []part) {
	for k, d := range devs {
		lo, hi := n*k/len(devs), n*(k+1)/len(devs)
		list = append(list, part{d, hi - lo, a.Rows(lo, hi)})
	}
	return list
}

func launchAll(parts []part, factor int) error {
	for i := range parts {
		if err := parts[i].dev.Launch(work, device.Size{parts[i].rows}, device.InOut(parts[i].view), int32(factor)); err != nil {
			return err
		}
	}
	return nil
}

func scanned() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	level := 0
	fmt.Sscan(fmt.Sprint(len(devs)), &level)
	parts := views(grid, devs)
	for range steps { // want level: the devices
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

func printed() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	var page bytes.Buffer
	fmt.Fprint(&page, len(devs))
	parts := views(grid, devs)
	for range steps { // want page: the devices
		if err := launchAll(parts, page.Len()); err != nil {
			return err
		}
	}
	return nil
}

func built() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	var text strings.Builder
	for range devs {
		text.WriteByte('x')
	}
	parts := views(grid, devs)
	for range steps { // want text: the devices
		if err := launchAll(parts, text.Len()); err != nil {
			return err
		}
	}
	return nil
}

// gauge counts when it is asked.
type gauge struct{ asked int }

func (g *gauge) ask() bool { g.asked++; return true }

func shortCircuit() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	g := &gauge{}
	parts := views(grid, devs)
	if len(devs) > 2 && g.ask() {
		fmt.Println("many devices")
	}
	for range steps { // want asked: the devices
		if err := launchAll(parts, g.asked); err != nil {
			return err
		}
	}
	return nil
}

func recovered() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	level, table := 0, [2]int{3, 4}
	func() {
		defer func() { recover() }()
		fmt.Println(table[len(devs)-1])
		level = 1
	}()
	parts := views(grid, devs)
	for range steps { // want none
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

func sorted() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	count := len(devs)
	order := []int{5, 3, 4, 1}
	slices.SortFunc(order, func(a, b int) int { return a%count - b%count })
	parts := views(grid, devs)
	for i := range steps { // want order: the devices
		if err := launchAll(parts, order[i%4]); err != nil {
			return err
		}
	}
	return nil
}

func searched() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	level := sort.Search(10, func(i int) bool { return i >= len(devs) })
	parts := views(grid, devs)
	for range steps { // want level: the devices
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

// ranked is sorted by remainders.
type ranked struct {
	list  []int
	count int
}

func (r ranked) Len() int           { return len(r.list) }
func (r ranked) Less(i, j int) bool { return r.list[i]%r.count < r.list[j]%r.count }
func (r ranked) Swap(i, j int)      { r.list[i], r.list[j] = r.list[j], r.list[i] }

func sortedByMethods() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	order := []int{5, 3, 4, 1}
	sort.Sort(ranked{order, len(devs)})
	parts := views(grid, devs)
	for i := range steps { // want order: the devices
		if err := launchAll(parts, order[i%4]); err != nil {
			return err
		}
	}
	return nil
}

// solver is an interface of which the devices choose the type.
type solver interface{ weight() int }

type serial struct{}

func (serial) weight() int { return 1 }

type parallel struct{}

func (parallel) weight() int { return 2 }

func chosenType() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	var s solver = serial{}
	if len(devs) > 1 {
		s = parallel{}
	}
	level := s.weight()
	parts := views(grid, devs)
	for range steps { // want s: the devices
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

func one() int { return 1 }
func two() int { return 2 }

func chosenFunction() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	f := one
	if len(devs) > 1 {
		f = two
	}
	level := f()
	parts := views(grid, devs)
	for range steps { // want f: the devices
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

func counted(count int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; i < count; i++ {
			if !yield(i) {
				return
			}
		}
	}
}

func iterated() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	level := 0
	for range counted(len(devs)) {
		level++
	}
	parts := views(grid, devs)
	for range steps { // want level: the devices
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

func countDevices() int {
	devs, _ := device.Devices()
	return len(devs)
}

var initial = countDevices()

func packageVariable() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	parts := views(grid, devs)
	for range steps { // want initial: the devices
		if err := launchAll(parts, initial); err != nil {
			return err
		}
	}
	return nil
}

// settings has a field with the number of devices.
type settings struct {
	name  string
	count int
}

func formatted() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	c := settings{"run", len(devs)}
	text := fmt.Sprint(c)
	h := fnv.New32()
	h.Write([]byte(text))
	level := int(h.Sum32())
	parts := views(grid, devs)
	for range steps { // want level: the devices; what sets it does more
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

func compared() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	c := &settings{"run", len(devs)}
	same := *c == settings{"run", 2}
	level := 1
	if same {
		level = 2
	}
	parts := views(grid, devs)
	for range steps { // want same: the devices
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

func encoded() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	c := &settings{"run", len(devs)}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	parts := views(grid, devs)
	for range steps { // want text: the devices
		if err := launchAll(parts, len(text)); err != nil {
			return err
		}
	}
	return nil
}

func late(devs []*device.Device) (count int) {
	defer func() { count = len(devs) }()
	return 0
}

func deferred() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	level := late(devs)
	parts := views(grid, devs)
	for range steps { // want level: the devices
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

// twin has the fields of settings.
type twin struct {
	name  string
	count int
}

func converted() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	c := twin(settings{"run", len(devs)})
	parts := views(grid, devs)
	for range steps { // want malleable: devs c parts
		if err := launchAll(parts, c.count); err != nil {
			return err
		}
	}
	return nil
}

// stepper returns a function that holds the parts.
func stepper(parts []part) func(i int) error {
	return func(i int) error { return parts[i].launch() }
}

func heldByFunction() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	step := stepper(views(grid, devs))
	for range steps { // want parts: the devices
		for i := range devs {
			if err := step(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func kernelReads() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	factor := float32(len(devs))
	k := device.NewKernel("", "scale", func(w *device.Work) {
		s := device.Slice[float32](w, 0)
		for i := range s {
			s[i] *= factor
		}
	})
	parts := views(grid, devs)
	for range steps { // want factor: a kernel uses it
		for i := range parts {
			if err := parts[i].dev.Launch(k, device.Size{parts[i].rows}, device.InOut(parts[i].view)); err != nil {
				return err
			}
		}
	}
	return nil
}

func share() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	weight := 1 / float32(len(devs))
	parts := views(grid, devs)
	for range steps { // want weight: a kernel gets it
		for i := range parts {
			if err := parts[i].dev.Launch(work, device.Size{parts[i].rows}, device.InOut(parts[i].view), weight); err != nil {
				return err
			}
		}
	}
	return nil
}

func reused() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	text := []byte("0123456789")
	fmt.Println(string(fmt.Append(text[:0], len(devs))))
	parts := views(grid, devs)
	for range steps { // want text: the devices
		if err := launchAll(parts, int(text[0])); err != nil {
			return err
		}
	}
	return nil
}

func mapped() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	level := len(strings.Map(func(r rune) rune {
		if len(devs) > 1 {
			return -1
		}
		return r
	}, "abc"))
	parts := views(grid, devs)
	for range steps { // want level: the devices
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

func rowOfTable() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	table := [][]int{{1, 2}, {3, 4}}
	row := table[0]
	row[1] = len(devs)
	parts := views(grid, devs)
	for range steps { // want row: the devices
		if err := launchAll(parts, table[0][1]); err != nil {
			return err
		}
	}
	return nil
}

func rowOfMap() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	table := map[string][]uint8{"a": {1, 2}}
	row := table["a"]
	for k := range devs {
		row[k%2]++
	}
	level := int(table["a"][1])
	parts := views(grid, devs)
	for range steps { // want table: the devices
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

// ticks counts by a method value.
type ticks struct{ n int }

func (t *ticks) tick() { t.n++ }

func methodValue() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	t := &ticks{}
	f := t.tick
	for range devs {
		f()
	}
	parts := views(grid, devs)
	for range steps { // want n: the devices
		if err := launchAll(parts, t.n); err != nil {
			return err
		}
	}
	return nil
}

// box holds any value.
type box[T any] struct{ v T }

func (b *box[T]) set(v T) { b.v = v }

func generic() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	b := &box[int]{}
	b.set(len(devs))
	parts := views(grid, devs)
	for range steps { // want v: there may be several values of type box
		if err := launchAll(parts, b.v); err != nil {
			return err
		}
	}
	return nil
}

func channel() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	ch := make(chan int8, 8)
	for range devs {
		ch <- 1
	}
	level := len(ch)
	parts := views(grid, devs)
	for range steps { // want ch: the devices
		if err := launchAll(parts, level); err != nil {
			return err
		}
	}
	return nil
}

func switched() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	grid := device.New[float32](n)
	g := &gauge{}
	parts := views(grid, devs)
	switch {
	case len(devs) > 2:
		g.ask()
	case g.ask():
	}
	for range steps { // want asked: the devices
		if err := launchAll(parts, g.asked); err != nil {
			return err
		}
	}
	return nil
}
