// Overwrite has loops that use arrays of package device. A comment at a loop
// says which of them need not be saved at the beginning of its iterations.
package main

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/mpi"
)

type array = *device.Array[float64]

var (
	dev    *device.Device
	kernel *device.Kernel
	size   = device.Size{64}
)

// grouped writes an array in a loop over groups.
func grouped(w *device.Work) {
	y := device.Slice[float64](w, 0)
	for g := range w.Groups() {
		lo, hi := g.Range(0)
		for i := lo; i < hi; i++ {
			y[i] = 1
		}
	}
}

var groups = device.KernelOf(grouped)

func launch(args ...any) error { return dev.Launch(kernel, size, args...) }

func first() {
	state, tmp := device.New[float64](64), device.New[float64](64)
	for range 10 { // left out: tmp
		if dev.Launch(kernel, size, device.In(state), device.Out(tmp)) != nil {
			return
		}
		if dev.Launch(kernel, size, device.In(tmp), device.InOut(state)) != nil {
			return
		}
	}
	state.Read()
}

func ignored() { // the first launch may have failed
	state, tmp := device.New[float64](64), device.New[float64](64)
	for range 10 { // left out:
		dev.Launch(kernel, size, device.In(state), device.Out(tmp))
		dev.Launch(kernel, size, device.In(tmp), device.InOut(state))
	}
}

func rescued() error { // after a failure, the old values are read
	tmp := device.New[float64](64)
	for range 10 { // left out:
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			_, err := tmp.Read()
			return err
		}
		if err := dev.Launch(kernel, size, device.In(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func carried() error { // what an iteration writes, the next one reads
	tmp := device.New[float64](64)
	for range 10 { // left out:
		if err := dev.Launch(kernel, size, device.In(tmp)); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func updated() error {
	tmp := device.New[float64](64)
	for range 10 { // left out:
		if err := dev.Launch(kernel, size, device.InOut(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func partly() error { // only a part is overwritten
	tmp := device.New[float64](64)
	for range 10 { // left out:
		if err := dev.Launch(kernel, size, device.Out(tmp.Rows(0, 32))); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.In(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func viewed() error { // the view is another way to the same values
	tmp := device.New[float64](64)
	view := tmp.Rows(8, 16)
	for range 10 { // left out:
		if err := dev.Launch(kernel, size, device.In(view)); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func viewedLater() error { // a part of what was overwritten
	tmp := device.New[float64](64)
	for range 10 { // left out: tmp
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.In(tmp.Rows(8, 16))); err != nil {
			return err
		}
	}
	return nil
}

func hostReads() error {
	tmp, seen := device.New[float64](64), device.New[float64](64)
	for range 10 { // left out: seen
		if err := dev.Launch(kernel, size, device.Out(seen)); err != nil {
			return err
		}
		if _, err := seen.Read(); err != nil {
			return err
		}
		if _, err := tmp.Read(); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func hostReadsLater() error {
	tmp, last := device.New[float64](64), device.New[float64](64)
	for range 10 { // left out: tmp
		if err := dev.Launch(kernel, size, device.Out(tmp), device.Out(last)); err != nil {
			return err
		}
	}
	_, err := last.Data()
	return err
}

func hostReadsAtTheEnd() error {
	tmp := device.New[float64](64)
	defer func() { tmp.Read() }()
	for range 10 { // left out:
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

type work struct {
	state, tmp, both array
	args             []any
}

func (w *work) loop() error {
	for range 10 { // left out: w.tmp
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) step() error {
	if err := w.fill(w.state, w.tmp); err != nil {
		return err
	}
	if err := w.fill(w.state, w.both); err != nil {
		return fmt.Errorf("step: %w", err)
	}
	return w.fill(w.tmp, w.both)
}

func (w *work) fill(from, to array) error {
	return dev.Launch(kernel, size, device.In(from), device.Out(to))
}

func caller() { // it reads one of the arrays after the loop
	w := &work{state: device.New[float64](64), tmp: device.New[float64](64), both: device.New[float64](64)}
	if w.loop() == nil {
		w.both.Read()
	}
}

func sometimes() error {
	a, b := device.New[float64](64), device.New[float64](64)
	for i := range 10 { // left out: b
		if i%2 == 0 {
			if err := dev.Launch(kernel, size, device.Out(a)); err != nil {
				return err
			}
		}
		if err := dev.Launch(kernel, size, device.In(a)); err != nil {
			return err
		}
		if i%3 == 0 {
			if err := dev.Launch(kernel, size, device.Out(b)); err != nil {
				return err
			}
			if err := dev.Launch(kernel, size, device.In(b)); err != nil {
				return err
			}
		}
	}
	return nil
}

func swapped() error { // which array a variable has is not followed from one iteration to the next
	old, next := device.New[float64](64), device.New[float64](64)
	for range 10 { // left out:
		if err := dev.Launch(kernel, size, device.In(old), device.Out(next)); err != nil {
			return err
		}
		old, next = next, old
	}
	return nil
}

func prepared() error { // the argument was made before
	tmp := device.New[float64](64)
	in := device.In(tmp)
	for range 10 { // left out:
		if err := dev.Launch(kernel, size, in); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func listed() error { // arguments in a list are not told apart
	tmp := device.New[float64](64)
	for range 10 { // left out:
		if err := launch(device.In(tmp)); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

type part struct{ tmp, out array }

func parts(n int) error {
	whole, other := device.New[float64](64), device.New[float64](64)
	var list []part
	for i := range n {
		list = append(list, part{whole.Rows(i, i+1), other.Rows(i, i+1)})
	}
	for range 10 { // left out: list[*].tmp
		for _, p := range list {
			if err := dev.Launch(kernel, size, device.Out(p.tmp), device.Out(p.out)); err != nil {
				return err
			}
		}
		for i := range list {
			if err := dev.Launch(kernel, size, device.In(list[i].tmp)); err != nil {
				return err
			}
		}
		if err := dev.Launch(kernel, size, device.In(other)); err != nil { // there may be more than the parts
			return err
		}
	}
	return nil
}

func neighbours(list []part) error { // the first step reads what the second one overwrites
	for i := range list {
		list[i].tmp = device.New[float64](64)
	}
	for range 10 { // left out:
		for i, p := range list {
			if err := dev.Launch(kernel, size, device.Out(p.tmp)); err != nil {
				return err
			}
			if err := dev.Launch(kernel, size, device.In(list[(i+1)%len(list)].tmp)); err != nil {
				return err
			}
		}
	}
	return nil
}

func interrupted(list []part) error { // some parts may not be overwritten
	for i := range list {
		list[i].tmp, list[i].out = device.New[float64](64), device.New[float64](64)
	}
	for k := range 10 { // left out:
		for i, p := range list {
			if i == k {
				break
			}
			if err := dev.Launch(kernel, size, device.Out(p.tmp)); err != nil {
				return err
			}
		}
		for i, p := range list {
			if i == k {
				continue
			}
			if err := dev.Launch(kernel, size, device.Out(p.out)); err != nil {
				return err
			}
		}
		for _, p := range list {
			if err := dev.Launch(kernel, size, device.In(p.tmp), device.In(p.out)); err != nil {
				return err
			}
		}
	}
	return nil
}

func someParts(list []part) error { // only some elements
	for i := range list {
		list[i].tmp = device.New[float64](64)
	}
	for range 10 { // left out:
		for _, p := range list[1:] {
			if err := dev.Launch(kernel, size, device.Out(p.tmp)); err != nil {
				return err
			}
		}
		for _, p := range list {
			if err := dev.Launch(kernel, size, device.In(p.tmp)); err != nil {
				return err
			}
		}
	}
	return nil
}

func reordered(list []part) error { // the elements change
	for i := range list {
		list[i].tmp = device.New[float64](64)
	}
	for range 10 { // left out:
		for _, p := range list {
			if err := dev.Launch(kernel, size, device.Out(p.tmp)); err != nil {
				return err
			}
		}
		slices.Reverse(list)
		for _, p := range list {
			if err := dev.Launch(kernel, size, device.In(p.tmp)); err != nil {
				return err
			}
		}
	}
	return nil
}

func collected(list []part) error { // the first array overwrites, the others add
	to := device.New[float64](64)
	for i := range list {
		list[i].tmp = device.New[float64](64)
	}
	for range 10 { // left out: list[*].out
		for _, p := range list {
			for i, q := range list {
				arg := device.InOut(p.out)
				if i == 0 {
					arg = device.Out(p.out)
				}
				if err := dev.Launch(kernel, size, device.In(q.tmp), arg); err != nil {
					return err
				}
			}
			if err := dev.Launch(kernel, size, device.In(p.out), device.InOut(p.tmp), device.InOut(to)); err != nil {
				return err
			}
		}
	}
	_, err := to.Read()
	return err
}

func collector() {
	collected([]part{{out: device.New[float64](64)}})
}

func keyed() error {
	m := map[string]array{"a": device.New[float64](64)}
	n := map[string]array{"a": device.New[float64](64)}
	for range 10 { // left out: m[*]
		for _, a := range m {
			if err := dev.Launch(kernel, size, device.Out(a)); err != nil {
				return err
			}
		}
		if err := dev.Launch(kernel, size, device.Out(n["a"])); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.In(m["a"]), device.In(n["a"])); err != nil {
			return err
		}
	}
	return nil
}

func closed() error { // function literals are not followed
	tmp := device.New[float64](64)
	read := func() error { return dev.Launch(kernel, size, device.In(tmp)) }
	for range 10 { // left out:
		if err := read(); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

type reader interface{ Read() ([]float64, error) }

func abstract() error {
	tmp := device.New[float64](64)
	var r reader = tmp
	for range 10 { // left out:
		if _, err := r.Read(); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

type field struct{ array }

func embedded() error {
	f := field{device.New[float64](64)}
	for range 10 { // left out: f.array
		if err := dev.Launch(kernel, size, device.Out(f.array)); err != nil {
			return err
		}
		if _, err := f.Rows(0, 8).Read(); err != nil {
			return err
		}
	}
	return nil
}

func embeddedFirst() error {
	f := field{device.New[float64](64)}
	for range 10 { // left out:
		if _, err := f.Read(); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(f.array)); err != nil {
			return err
		}
	}
	return nil
}

func embeddedView() error {
	f := field{device.New[float64](64)}
	v := f.Rows(0, 8)
	for range 10 { // left out:
		if _, err := v.Read(); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(f.array)); err != nil {
			return err
		}
	}
	return nil
}

func method() error { // a method as a value
	tmp := device.New[float64](64)
	read := tmp.Read
	for range 10 { // left out:
		if _, err := read(); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func outer() error { // the loop around it reads
	tmp, own := device.New[float64](64), device.New[float64](64)
	for range 3 {
		if err := dev.Launch(kernel, size, device.In(tmp)); err != nil {
			return err
		}
		for range 10 { // left out: own
			if err := dev.Launch(kernel, size, device.Out(tmp), device.Out(own)); err != nil {
				return err
			}
		}
	}
	return nil
}

func pointed() error { // the variable is set by its address
	a, b := device.New[float64](64), device.New[float64](64)
	p := &a
	for range 10 { // left out: b
		if err := dev.Launch(kernel, size, device.Out(a), device.Out(b)); err != nil {
			return err
		}
		*p = device.New[float64](64)
		if err := dev.Launch(kernel, size, device.In(a), device.In(b)); err != nil {
			return err
		}
	}
	return nil
}

type pair struct{ tmp array }

type couple struct{ tmp array }

func converted() error {
	p := pair{device.New[float64](64)}
	c := couple(p)
	for range 10 { // left out:
		if err := dev.Launch(kernel, size, device.In(c.tmp)); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(p.tmp)); err != nil {
			return err
		}
	}
	return nil
}

// attempt may end without an error though a launch did not happen.
func attempt(x array) (err error) {
	defer func() { recover() }()
	return dev.Launch(kernel, size, device.Out(x))
}

func recovered() error {
	tmp := device.New[float64](64)
	for range 10 { // left out:
		if err := attempt(tmp); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.In(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func jump(x array, skip bool) error {
	if skip {
		goto end
	}
	if err := dev.Launch(kernel, size, device.Out(x)); err != nil {
		return err
	}
end:
	return nil
}

func jumped() error {
	tmp := device.New[float64](64)
	for i := range 10 { // left out:
		if err := jump(tmp, i == 3); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.In(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func concurrent() error {
	tmp := device.New[float64](64)
	for range 10 { // left out:
		go tmp.Read()
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func unsafely() error {
	tmp, other := device.New[float64](64), device.New[float64](64)
	p := (**device.Array[float64])(unsafe.Pointer(&other))
	for range 10 { // left out:
		*p = tmp
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

// maybe has an array of its own, or uses another one.
type maybe struct{ own, shared array }

func optional(list []*maybe) error {
	for i, m := range list {
		if m.shared = device.New[float64](64); i > 0 {
			m.own = device.New[float64](64)
		}
	}
	for range 10 { // left out: list[*].own if list[*].own is not nil, list[*].shared if list[*].own is nil, list[*].shared if list[*].own is not nil
		for _, m := range list {
			to := m.own
			if to == nil {
				to = m.shared
			}
			if err := dev.Launch(kernel, size, device.Out(to)); err != nil {
				return err
			}
		}
		for _, m := range list {
			for _, o := range list {
				if o.own == nil {
					break
				}
				if err := dev.Launch(kernel, size, device.In(o.own), device.Out(m.shared)); err != nil {
					return err
				}
			}
			if err := dev.Launch(kernel, size, device.In(m.shared)); err != nil {
				return err
			}
		}
	}
	return nil
}

func tiled() error { // a view by indices is another way to the same values
	tmp := device.New[float64](8, 8)
	column := tmp.View([]int{0, 3}, []int{8, 4})
	for range 10 { // left out:
		if _, err := column.Read(); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func copied() error {
	tmp, state := device.New[float64](64), device.New[float64](64)
	for range 10 { // left out:
		if err := device.Copy(state, tmp); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

var world *mpi.Comm

func sent() error { // messages read arrays, and with several ranks all are saved
	tmp := device.New[float64](64)
	for range 10 { // left out:
		if err := mpi.SendArray(world, tmp, 0, 0); err != nil {
			return err
		}
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
	}
	return nil
}

func received() error {
	tmp := device.New[float64](64)
	for range 10 { // left out:
		if err := dev.Launch(kernel, size, device.Out(tmp)); err != nil {
			return err
		}
		if _, err := mpi.RecvArray(world, tmp.Rows(0, 8), 0, 0); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	first()
	ignored()
	caller()
	collector()
	for _, f := range []func() error{rescued, carried, updated, partly, viewed, viewedLater, hostReads, hostReadsLater, hostReadsAtTheEnd,
		sometimes, swapped, prepared, listed, keyed, closed, abstract, embedded, embeddedFirst, embeddedView, method, outer, pointed, converted, recovered, jumped, concurrent, unsafely,
		tiled, copied, sent, received} {
		if err := f(); err != nil {
			fmt.Println(err)
		}
	}
	for _, f := range []func([]part) error{neighbours, interrupted, someParts, reordered} {
		if err := f(make([]part, 4)); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(parts(4), optional([]*maybe{{}, {}}))
}
