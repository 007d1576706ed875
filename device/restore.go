package device

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"weak"

	"github.com/cairnrun/cairn/internal/graph"
)

// Programs that Cairn's compiler has made restartable hold devices, kernels and
// arguments of launches in their variables. A restored Device is a new one that
// stands for one of those that are there, so that devices which were different
// still are, and those that were the same too.

// position is how a device is found again.
type position struct {
	n      int    // its place in what Devices returned, or among those of Open
	opened bool   // by Open
	id     string // of a device that was opened
}

// real is the device that d stands for.
func (d *Device) real() *Device {
	if d.target != nil {
		return d.target
	}
	return d
}

// findPosition says how the device is found again.
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
	return position{}, fmt.Errorf("the device %v is not one that Devices or Open returned, and can't be found again", d)
}

// device returns the device that is meant now: of those that are there, in
// turn. A device that Open returned is the same again, if it is there and the
// environment does not say otherwise.
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

// CairnState makes a Device savable. A set has its place among the devices of
// the program; where it is restored, that is taken by what is there.
func (d *Device) CairnState(c *graph.Coder) error {
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
	if machine.stands == nil {
		machine.stands = make(map[int]*Device)
	}
	machine.stands[no.n] = d
	return nil
}

// substitutes returns what Devices returns where these are there.
func substitutes(there []*Device) []*Device {
	machine.Lock()
	defer machine.Unlock()
	if machine.seen == 0 {
		return there
	}
	if machine.stands == nil {
		machine.stands = make(map[int]*Device)
	}
	var out []*Device
	for i := range machine.seen {
		d := machine.stands[i]
		if d == nil {
			d = &Device{target: there[i%len(there)], position: position{n: i}}
			machine.stands[i] = d
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

// deviceCount is how many devices a program has seen.
type deviceCount struct{ _ byte }

func init() { graph.Part(new(deviceCount)) }

// CairnState saves and restores the number of devices.
func (*deviceCount) CairnState(c *graph.Coder) error {
	machine.Lock()
	defer machine.Unlock()
	n := machine.seen
	if n == 0 {
		n = len(machine.chosen)
	}
	graph.Field(c, "devices", &n)
	if !c.Restoring() || c.Err() != nil {
		return c.Err()
	}
	if n < 0 || n > 1<<20 {
		return fmt.Errorf("a program with %d devices", n)
	}
	machine.seen = n
	return nil
}

// CairnLost says why a device of the program is lost, nil if none is: a program
// that fails then may be brought back.
func (*deviceCount) CairnLost() error {
	machine.Lock()
	all := slices.Concat(machine.chosen, machine.given)
	machine.Unlock()
	for _, d := range all {
		if err := d.Err(); err != nil {
			return fmt.Errorf("%v is lost: %w", d, err)
		}
	}
	return nil
}

// CairnState makes a Kernel savable. It is compiled anew where it is launched.
func (k *Kernel) CairnState(c *graph.Coder) error {
	graph.Field(c, "source", &k.source)
	graph.Field(c, "name", &k.name)
	graph.Field(c, "host", &k.host)
	if c.Restoring() {
		k.self = weak.Make(k)
	}
	return c.Err()
}

// view is an Array of any type.
type view interface{ part() Arg }

// part is the array as an argument.
func (a *Array[T]) part() Arg { return argument(a, 0) }

// CairnState makes an Arg savable: its array is.
func (a *Arg) CairnState(c *graph.Coder) error {
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

// viewOf returns the array that an argument stands for.
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
