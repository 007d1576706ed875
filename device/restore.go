package device

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/cairnrun/cairn/internal/graph"
)

// Programs that Cairn's compiler has made restartable hold devices, kernels and
// arguments of launches in their variables. A restored Device is a substitute
// for a device of this machine. Devices that were different before the restart
// are different *Device values after it, and equal ones are equal.

// position identifies a device after a restart.
type position struct {
	n      int    // its index in the results of Devices, or of Open
	opened bool   // Open has returned it
	id     string // if opened is set
}

// real returns the device of this machine that d is a substitute for, or d.
func (d *Device) real() *Device {
	if d.target != nil {
		return d.target
	}
	return d
}

// findPosition returns the position of the device.
func (d *Device) findPosition() (position, error) {
	if d.target != nil {
		return d.position, nil
	}
	machine.Lock()
	defer machine.Unlock()
	if n := slices.Index(machine.chosen, d); n >= 0 {
		return position{n: n}, nil
	}
	if n := slices.Index(machine.given, d); n >= 0 {
		return position{n, true, d.info.ID}, nil
	}
	return position{}, fmt.Errorf("cannot save device %v: neither Devices nor Open has returned it", d)
}

// device returns the device of this machine for a position. A device that Open
// returned is the same one again, unless it is gone or CAIRN_DEVICES is set.
// Else the devices of this machine are taken in turn.
func (no position) device() (*Device, error) {
	if no.n < 0 {
		return nil, fmt.Errorf("a device of number %d", no.n)
	}
	if no.opened && strings.TrimSpace(os.Getenv("CAIRN_DEVICES")) == "" {
		machine.Lock()
		list, err := choose(no.id)
		machine.Unlock()
		if err == nil && len(list) == 1 && !list[0].lost() {
			return list[0], nil
		}
	}
	devs, err := present()
	if err != nil {
		return nil, err
	}
	return devs[no.n%len(devs)], nil
}

// state saves and restores the device. A checkpoint holds its position among
// the program's devices.
func (d *Device) state(c *graph.Coder) error {
	var no position
	if !c.Restoring() {
		var err error
		if no, err = d.findPosition(); err != nil {
			return err
		}
	}
	graph.Field(c, "number", &no.n)
	graph.Field(c, "opened", &no.opened)
	graph.Field(c, "id", &no.id)
	if !c.Restoring() || c.Err() != nil {
		return c.Err()
	}
	as, err := no.device()
	if err != nil {
		return err
	}
	d.target, d.position = as, no
	if no.opened {
		return nil
	}
	machine.Lock()
	defer machine.Unlock()
	if machine.substitutes == nil {
		machine.substitutes = make(map[int]*Device)
	}
	machine.substitutes[no.n] = d
	return nil
}

// substitutes returns the result of Devices, given the devices of this machine.
func substitutes(there []*Device) []*Device {
	machine.Lock()
	defer machine.Unlock()
	if machine.seen == 0 {
		return there
	}
	if machine.substitutes == nil {
		machine.substitutes = make(map[int]*Device)
	}
	var out []*Device
	for i := range machine.seen {
		d := machine.substitutes[i]
		if d == nil {
			d = &Device{target: there[i%len(there)], position: position{n: i}}
			machine.substitutes[i] = d
		}
		if !d.lost() {
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return there
	}
	return out
}

// deviceCount saves how many devices the program knows.
type deviceCount struct{ _ byte }

func init() {
	graph.Describe(described.state)
	graph.DescribeMemory(handled.addresses)
	graph.Part(new(deviceCount))
}

// described is implemented by the types of this package that a checkpoint can
// hold.
type described interface{ state(*graph.Coder) error }

// handled is an Array of any element type, the handle of a memory.
type handled interface {
	addresses() (unsafe.Pointer, int64)
}

// state saves and restores the number of devices.
func (*deviceCount) state(c *graph.Coder) error {
	machine.Lock()
	n := machine.seen
	if n == 0 {
		n = len(machine.chosen)
	}
	machine.Unlock()
	var parts []any
	if !c.Restoring() {
		parts = unwritten()
	}
	graph.Field(c, "devices", &n)
	if !c.Restoring() || c.Has("unwritten") { // older checkpoints have none
		graph.Field(c, "unwritten", &parts)
	}
	if !c.Restoring() || c.Err() != nil {
		return c.Err()
	}
	if n < 0 || n > 1<<20 {
		return fmt.Errorf("a program with %d devices", n)
	}
	machine.Lock()
	machine.seen = n
	machine.Unlock()
	dividesAnew(n)
	return restoreUnwritten(parts)
}

// onLoss is called when a device is lost, and may not return.
var onLoss atomic.Pointer[func(id string)]

// CairnOnLoss sets a function that is called with the ID of each device that is
// lost. It may end or replace the process.
func (*deviceCount) CairnOnLoss(f func(id string)) { onLoss.Store(&f) }

// CairnDevices returns how many devices Devices chooses from, with those that
// are lost.
func (*deviceCount) CairnDevices() int {
	machine.Lock()
	defer machine.Unlock()
	return len(machine.chosen)
}

// CairnExclude makes Devices leave out devices that were lost before a
// restart, of a number of devices. If there is another number now, the system
// leaves them out already, and their IDs may be those of others.
func (*deviceCount) CairnExclude(ids []string, of int) {
	machine.Lock()
	defer machine.Unlock()
	machine.excluded, machine.before = ids, of
	exclude()
}

// exclude excludes devices, unless none would remain. The caller holds
// machine's lock.
func exclude() {
	if len(machine.excluded) == 0 || len(machine.chosen) != machine.before {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(machine.chosen), func(d *Device) bool { return slices.Contains(machine.excluded, d.info.ID) })
	if len(rest) > 0 {
		machine.chosen = rest
	}
}

// lastLoss is why the last device was lost that this process has lost.
var lastLoss atomic.Pointer[error]

// CairnLost returns why a device of the program is lost, or nil if none is. A
// program that fails after such a loss may be restarted.
func (*deviceCount) CairnLost() error {
	if err := lastLoss.Load(); err != nil {
		return *err
	}
	return nil
}

// state saves and restores the kernel. It is compiled again when it is
// launched.
func (k *Kernel) state(c *graph.Coder) error {
	graph.Field(c, "source", &k.source)
	graph.Field(c, "name", &k.name)
	graph.Field(c, "host", &k.host)
	if !c.Restoring() || c.Has("contract") { // older checkpoints do not say
		graph.Field(c, "contract", &k.contract)
	}
	if c.Restoring() {
		k.self = weak.Make(k)
	}
	return c.Err()
}

// view is an Array of any element type.
type view interface{ part() Arg }

// part returns the array as an argument without a mode.
func (a *Array[T]) part() Arg { return argument(a, 0) }

// state saves and restores the argument with its array.
func (a *Arg) state(c *graph.Coder) error {
	var of any
	m, local := a.mode, a.local
	if !c.Restoring() && a.h != nil {
		of = a.h.m.view(*a)
	}
	graph.Field(c, "array", &of)
	graph.Field(c, "mode", &m)
	graph.Field(c, "local", &local)
	if !c.Restoring() || c.Err() != nil {
		return c.Err()
	}
	*a = Arg{}
	if v, ok := of.(view); ok {
		*a = v.part()
	}
	a.mode, a.local = m, local
	return nil
}

// viewOf returns the array of an argument.
func viewOf[T any](arg Arg) any {
	a := &Array[T]{h: arg.h, lo: arg.lo, hi: arg.hi, constant: arg.constant}
	m := arg.h.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if arg.lo == 0 && arg.hi == m.size {
		for _, n := range m.shape {
			a.dims = append(a.dims, int(n))
		}
	} else {
		a.dims = []int{a.Len()}
	}
	return a
}
