package device

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/cuda"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/internal/driver/opencl"
)

// backends are the kinds of devices, the best first.
var backends = []struct {
	name     string
	open     func() ([]driver.Device, error)
	pointers bool // their devices implement driver.Pointers
}{
	{"cuda", cuda.Open, true},
	{"opencl", opencl.Open, false},
}

// machine holds the devices that were found. They belong to the process, as the
// libraries behind them do.
var machine struct {
	sync.Mutex
	opened  map[string][]*Device // by backend
	missing map[string]error
	hosts   map[string]*Device // by name and number
	chosen  []*Device          // the result of Devices, with lost devices
	err     error

	// For programs that the compiler has made restartable:
	given       []*Device       // devices that Open returned
	seen        int             // after a restart: the number of devices that the program knows
	substitutes map[int]*Device // … and those that take their places
	excluded    []string        // see CairnExclude
	before      int             // …
}

// Devices returns the devices of this machine, the best first: GPUs, other
// accelerators, then the host's processors, which are always there. Lost
// devices are left out. All calls return the same *Device values.
//
// The environment variable CAIRN_DEVICES selects devices and their order, by
// backend or ID: "cuda", "opencl:0.1,host", "host,host" (two host devices).
// Without it, Devices leaves out OpenCL devices that are the host's processors,
// and GPUs that CUDA has found, too.
//
// A program that Cairn's compiler has made restartable gets as many devices
// after a restart as before, unless it can divide its work anew. Several of
// them may then use the same device of the machine.
func Devices() ([]*Device, error) {
	out, err := present()
	if err != nil {
		return nil, err
	}
	return substitutes(out), nil
}

// present returns the devices of this machine that are not lost.
func present() ([]*Device, error) {
	machine.Lock()
	if machine.chosen == nil && machine.err == nil {
		list := os.Getenv("CAIRN_DEVICES")
		machine.chosen, machine.err = choose(list)
		exclude()
		if machine.err != nil && list != "" {
			machine.err = fmt.Errorf("CAIRN_DEVICES=%q: %w", list, machine.err)
		}
	}
	chosen, err := machine.chosen, machine.err
	machine.Unlock()
	if err != nil {
		return nil, err
	}
	var out []*Device
	for _, d := range chosen {
		if !d.lost() {
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("all %d devices are lost; the first: %w", len(chosen), chosen[0].Err())
	}
	return out, nil
}

// Open returns the devices in list, which has the form of CAIRN_DEVICES. An
// empty list means all devices. Besides backends and IDs, the list may hold
// "discrete": the host's processors with a memory of their own, as if they were
// a separate device. That is useful for tests. The same name gives the same
// *Device in all calls.
func Open(list string) ([]*Device, error) {
	machine.Lock()
	defer machine.Unlock()
	devs, err := choose(list)
	for _, d := range devs {
		if !slices.Contains(machine.given, d) {
			machine.given = append(machine.given, d)
		}
	}
	return devs, err
}

// Missing returns, by backend, why devices could not be opened.
func Missing() map[string]error {
	machine.Lock()
	defer machine.Unlock()
	for i := range backends {
		backend(i)
	}
	return maps.Clone(machine.missing)
}

// withPointers returns the devices of this machine whose memory has addresses,
// whether the program uses them or not.
func withPointers() []*Device {
	machine.Lock()
	defer machine.Unlock()
	var out []*Device
	for i, b := range backends {
		if b.pointers {
			out = append(out, backend(i)...)
		}
	}
	return out
}

// backend returns the devices of a backend. The caller holds machine's lock.
func backend(i int) []*Device {
	b := backends[i]
	if devs, ok := machine.opened[b.name]; ok {
		return devs
	}
	if machine.opened == nil {
		machine.opened, machine.missing = make(map[string][]*Device), make(map[string]error)
	}
	drvs, err := b.open()
	var devs []*Device
	for _, drv := range drvs {
		d, e := newDevice(drv)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		devs = append(devs, d)
	}
	if len(devs) == 0 && err == nil {
		err = errors.New("there are no devices")
	}
	if err != nil {
		machine.missing[b.name] = err
	}
	machine.opened[b.name] = devs
	return devs
}

// hostDevice returns host device i. It creates the device when it is first
// called for it. The caller holds machine's lock.
func hostDevice(kind string, i int) (*Device, error) {
	key := fmt.Sprintf("%s:%d", kind, i)
	if d := machine.hosts[key]; d != nil {
		return d, nil
	}
	o := host.Options{Index: i}
	if kind == "discrete" {
		// Their IDs follow those of the other host devices.
		o.Index, o.Discrete = i+discreteIDs, true
	}
	d, err := newDevice(host.New(o))
	if err != nil {
		return nil, err
	}
	if machine.hosts == nil {
		machine.hosts = make(map[string]*Device)
	}
	machine.hosts[key] = d
	return d, nil
}

const discreteIDs = 100

// all returns all devices, the best first.
func all() ([]*Device, error) {
	var out []*Device
	have := false
	for i, b := range backends {
		for _, d := range backend(i) {
			if b.name == "opencl" && d.info.Kind == CPU {
				continue // these are the host's processors
			}
			if b.name == "opencl" && have && strings.Contains(strings.ToLower(d.info.Name), "nvidia") {
				continue // CUDA has found the same GPU
			}
			have = have || b.name == "cuda"
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b *Device) int { return cmp.Compare(a.info.Kind, b.info.Kind) })
	h, err := hostDevice("host", 0)
	if err != nil {
		return nil, err
	}
	return append(out, h), nil
}

// choose returns the devices in a list. The caller holds machine's lock.
func choose(list string) ([]*Device, error) {
	if strings.TrimSpace(list) == "" {
		return all()
	}
	var out []*Device
	hosts := make(map[string]int)
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		found, err := named(name, hosts)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			if slices.Contains(out, d) {
				return nil, fmt.Errorf("device %s is named twice", d.info.ID)
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// named returns the devices with a name: a backend or an ID. hosts counts the
// host devices that the list has named before.
func named(name string, hosts map[string]int) ([]*Device, error) {
	if name == "host" || name == "discrete" {
		i := hosts[name]
		hosts[name]++
		d, err := hostDevice(name, i)
		return []*Device{d}, err
	}
	kind, id, _ := strings.Cut(name, ":")
	if kind == "host" {
		var i int
		if n, err := fmt.Sscanf(id, "%d", &i); n == 1 && err == nil && i >= 0 && i < discreteIDs && fmt.Sprint(i) == id {
			d, err := hostDevice("host", i)
			return []*Device{d}, err
		}
	}
	for i, b := range backends {
		if b.name != kind {
			continue
		}
		devs := backend(i)
		if name == kind && len(devs) > 0 {
			return devs, nil
		}
		for _, d := range devs {
			if d.info.ID == name {
				return []*Device{d}, nil
			}
		}
		if err := machine.missing[kind]; err != nil {
			return nil, fmt.Errorf("there is no device %q: %w", name, err)
		}
	}
	return nil, fmt.Errorf("there is no device %q; there are %s; the name of a backend (cuda, opencl, host) means all of its devices", name, strings.Join(names(), ", "))
}

// names returns the IDs of all devices.
func names() []string {
	var out []string
	for i := range backends {
		for _, d := range backend(i) {
			out = append(out, d.info.ID)
		}
	}
	return append(out, "host:0 (as many as are named)")
}
