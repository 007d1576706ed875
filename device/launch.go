package device

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
)

// Size is the number of work items of a launch, in one to three dimensions. The
// first dimension varies fastest: it is get_global_id(0). A device may run more
// items, to fill its groups. So pass the size to kernels in OpenCL C, and have
// them check their position.
type Size []int

// In returns the size with groups of the given size, in as many dimensions.
// Without In, the device chooses the size of groups.
func (s Size) In(group ...int) Groups { return Groups{s, group} }

// Groups is a Size together with the size of groups.
type Groups struct{ size, group Size }

// Grid is the size of a launch: a Size, or Groups.
type Grid interface{ grid() (size, group Size) }

func (s Size) grid() (size, group Size)   { return s, nil }
func (g Groups) grid() (size, group Size) { return g.size, g.group }

// ranges returns a grid in the form that drivers take.
func ranges(g Grid) (global, local [3]int, err error) {
	if g == nil {
		return global, local, errors.New("a launch without a size")
	}
	size, group := g.grid()
	if len(size) == 0 || len(size) > 3 || group != nil && len(group) != len(size) {
		return global, local, fmt.Errorf("a launch of %v items in groups of %v: there are 1 to 3 dimensions, the same in both", size, group)
	}
	global = [3]int{1, 1, 1}
	for i, n := range size {
		if n <= 0 || group != nil && group[i] <= 0 {
			return global, local, fmt.Errorf("a launch of %v items in groups of %v: all sizes are at least 1", size, group)
		}
		global[i] = n
	}
	if group != nil {
		local = [3]int{1, 1, 1}
		copy(local[:], group)
	}
	return global, local, nil
}

// mode says what a kernel does with an array.
type mode uint8

const (
	reads mode = 1 << iota
	writes
)

// Arg is an argument of a launch: an array, or local memory.
type Arg struct {
	h        *handle
	lo, hi   int64
	mode     mode
	local    int
	constant bool
	gaps     []int // dimensions of a view with gaps
}

// In passes an array that the kernel only reads.
func In[T any](a *Array[T]) Arg { return argument(a, reads) }

// Out passes an array that the kernel overwrites completely. Its old values are
// not copied to the device.
func Out[T any](a *Array[T]) Arg { return argument(a, writes) }

// InOut passes an array that the kernel reads and writes, or writes only in
// part.
func InOut[T any](a *Array[T]) Arg { return argument(a, reads|writes) }

func argument[T any](a *Array[T], m mode) Arg {
	if a == nil {
		return Arg{mode: m}
	}
	arg := Arg{h: a.h, lo: a.lo, hi: a.hi, mode: m, constant: a.constant}
	if a.strides != nil {
		arg.gaps = a.dims
	}
	return arg
}

// Local passes scratch memory of n elements, which the work items of a group
// share. It is never saved.
func Local[T any](n int) Arg { return Arg{local: n * int(unsafe.Sizeof(*new(T)))} }

// Launch starts a kernel on the device. The kernel runs after all earlier
// launches on this device. Launch first copies what In and InOut need to the
// device.
//
// Launch does not wait for the kernel, unless the device is about 100 ms of
// launches behind.
//
// The arguments are results of In, Out, InOut and Local, or values of type
// int32, uint32, int64, uint64, float32 and float64. An array that the kernel
// writes must not overlap another argument. The same array may be passed twice.
//
// A kernel may fail after Launch has returned. A later call then returns the
// error, and the arrays that the kernel wrote cannot be read any more.
func (d *Device) Launch(k *Kernel, size Grid, args ...any) error {
	if k == nil {
		return fmt.Errorf("launch on %v: the kernel is nil: make one with NewKernel", d)
	}
	err := d.real().doLaunch(k, size, args)
	runtime.KeepAlive(args)
	if err != nil {
		return fmt.Errorf("launch of %s on %v: %w", k.name, d, err)
	}
	return nil
}

func (d *Device) doLaunch(k *Kernel, size Grid, args []any) error {
	dry := dryRunning.Load()
	if dry == nil {
		operations.Add(1)
	}
	if err := d.Err(); err != nil {
		return err
	}
	global, local, err := ranges(size)
	if err != nil {
		return err
	}
	translated := k.translated()
	if translated != nil {
		if err := translated.check(global, local, args); err != nil {
			return err
		}
	}
	var v variant
	if translated != nil && d.info.Backend != "host" {
		v = translated.variant(global, local, args)
		v.small = v.small && d.info.Kind == GPU
	}
	built, err := k.on(d, v)
	if err != nil {
		return err
	}
	if dry == nil {
		d.throttle.beforeLaunch(d)
	}
	list := make([]driver.Arg, len(args))
	var values []byte // of scalars, 8 bytes each
	var few [8]Arg
	var fewAt [8]int
	arrays, at := few[:0], fewAt[:0] // their positions
	for i, x := range args {
		a, ok := x.(Arg)
		switch {
		case !ok:
			if values == nil {
				values = make([]byte, 8*len(args))
			}
			n, err := scalar(values[8*i:], x)
			if err != nil {
				return fmt.Errorf("argument %d: %w", i, err)
			}
			list[i].Value = values[8*i : 8*i+n : 8*i+n]
		case a.mode == 0:
			if a.local <= 0 {
				return fmt.Errorf("argument %d: local memory of %d bytes", i, a.local)
			}
			list[i].Local = a.local
		case a.h == nil:
			return fmt.Errorf("argument %d: an array that was not made with New", i)
		case a.gaps != nil:
			return fmt.Errorf("argument %d: a view of %v elements has gaps in memory, and kernels work on memory without: pass the whole array and the view's position, or Copy the view to an array made with New", i, a.gaps)
		case a.constant && a.mode&writes != 0:
			return fmt.Errorf("argument %d: the array is constant, and kernels only read it: use In, or New instead of NewConstant", i)
		default:
			arrays, at = append(arrays, a), append(at, i)
		}
	}
	if err := overlaps(arrays, at); err != nil {
		return err
	}
	if dry != nil {
		return dry.launch(arrays)
	}
	var fewHeld [8]*memory
	locked := lockAll(fewHeld[:0], arrays)
	defer unlockAll(locked)
	epoch := d.epoch.Load()
	err = d.prepare(arrays, at, locked, list)
	if err == nil && translated != nil && d.info.Backend != "host" {
		list = translated.hidden(global, list)
	}
	if err == nil {
		var seq uint64
		if seq, err = d.launch(built, global, local, list); err == nil {
			for _, a := range arrays {
				d.after(a, seq)
			}
		}
	}
	if d.epoch.Load() != epoch {
		// A command failed meanwhile: copies for this launch may be
		// missing.
		for _, a := range arrays {
			a.h.m.invalidate(d, a.lo, a.hi)
		}
		if err == nil {
			err = errBefore
		}
	}
	return err
}

// prepare copies what a launch reads to the device, and fills in the buffers.
func (d *Device) prepare(arrays []Arg, at []int, locked []*memory, list []driver.Arg) error {
	for i, a := range arrays {
		if a.h.m.freed {
			return fmt.Errorf("argument %d: %w", at[i], errFreed)
		}
		if d.wrap == nil || a.h.m.raw.device() {
			if _, err := a.h.m.cover(d, a.lo, a.hi, locked); err != nil {
				return fmt.Errorf("argument %d: %w", at[i], err)
			}
		}
	}
	for i, a := range arrays {
		m, arg := a.h.m, &list[at[i]]
		arg.Len = a.hi - a.lo
		var err error
		if d.wrap != nil {
			arg.Off = a.lo
			arg.Buffer, err = m.wrapped(d)
			if err == nil && a.mode&reads != 0 {
				err = m.toHost(d, a.lo, a.hi)
			}
			if err == nil && a.mode&writes != 0 {
				m.awaitLaunches(d, a.lo, a.hi, true)
			}
		} else {
			var b *buffer
			if b, err = m.cover(d, a.lo, a.hi, locked); err == nil {
				arg.Buffer, arg.Off = b.b, a.lo-b.lo
				if a.mode&reads != 0 {
					err = m.bring(b, a.lo, a.hi)
				}
			}
		}
		if err != nil {
			return fmt.Errorf("argument %d: %w", at[i], err)
		}
	}
	return nil
}

// after notes what a launch does with an argument.
func (d *Device) after(a Arg, seq uint64) {
	m := a.h.m
	if a.mode&writes == 0 {
		if d.wrap != nil {
			m.noteUse(use{d, seq, a.lo, a.hi, false})
		}
		return
	}
	if m.raw.device() {
		return
	}
	var b *buffer
	if d.wrap == nil {
		b, _ = m.cover(d, a.lo, a.hi, nil) // prepare has made it
	}
	m.noteWrite(d, b, a.lo, a.hi, seq)
	m.join()
}

// invalidate drops copies on d that a failed command may not have written.
func (m *memory) invalidate(d *Device, lo, hi int64) {
	if m.freed || m.raw.device() {
		return
	}
	err := fmt.Errorf("a command on %v failed before it wrote them", d)
	if e := d.Err(); e != nil {
		err = e
	}
	i, j := m.cut(lo, hi)
	for ; i < j; i++ {
		s := &m.spans[i]
		for _, b := range s.on {
			if b.d == d {
				s.drop(b, err)
			}
		}
		if s.d == d && s.host {
			s.host, s.gone = false, err
		}
	}
}

// overlaps returns an error if two arguments share bytes that the kernel
// writes.
func overlaps(arrays []Arg, at []int) error {
	for i, a := range arrays {
		for j, b := range arrays[:i] {
			if a.h.m != b.h.m || a.hi <= b.lo || b.hi <= a.lo || (a.mode|b.mode)&writes == 0 || a.lo == b.lo && a.hi == b.hi {
				continue
			}
			return fmt.Errorf("arguments %d and %d overlap in memory, and one of them is written: give the same array twice, or views that are apart", at[j], at[i])
		}
	}
	return nil
}

// lockAll locks the memories of the arguments, each once, in the order of their
// addresses.
func lockAll(locked []*memory, arrays []Arg) []*memory {
	for _, a := range arrays {
		if !slices.Contains(locked, a.h.m) {
			locked = append(locked, a.h.m)
		}
	}
	slices.SortFunc(locked, func(a, b *memory) int { return cmp.Compare(uintptr(a.addr), uintptr(b.addr)) })
	for _, m := range locked {
		m.mu.Lock()
	}
	return locked
}

func unlockAll(locked []*memory) {
	for _, m := range locked {
		m.mu.Unlock()
	}
}

// scalar stores a number in p, in the machine's byte order, and returns its
// size.
func scalar(p []byte, x any) (int, error) {
	e := binary.NativeEndian
	switch v := x.(type) {
	case int32:
		e.PutUint32(p, uint32(v))
		return 4, nil
	case uint32:
		e.PutUint32(p, v)
		return 4, nil
	case float32:
		e.PutUint32(p, math.Float32bits(v))
		return 4, nil
	case int64:
		e.PutUint64(p, uint64(v))
		return 8, nil
	case uint64:
		e.PutUint64(p, v)
		return 8, nil
	case float64:
		e.PutUint64(p, math.Float64bits(v))
		return 8, nil
	case int:
		return 0, errors.New("an int has different sizes on different machines: convert it to int32 or int64, as the kernel declares it")
	}
	return 0, fmt.Errorf("a %T cannot be passed: pass the result of In, Out, InOut or Local, or an int32, uint32, int64, uint64, float32 or float64", x)
}
