package device

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/mem"
)

func init() { control.SetDevices(inUse) }

// inUse describes the devices that the program has used, for the supervisor. It
// waits for nothing: a device may be stuck.
func inUse() []control.DeviceState {
	if !machine.TryLock() {
		return nil
	}
	defer machine.Unlock()
	out := []control.DeviceState{}
	for _, d := range openDevices() {
		s := control.DeviceState{ID: d.info.ID, Name: d.info.Name, Launches: d.launched.Load(), In: d.in.Load(), Out: d.out.Load(), Lost: d.gone.Load()}
		if s.Launches > 0 || s.In > 0 || s.Out > 0 || s.Lost {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b control.DeviceState) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// openDevices returns all devices of machine, which is locked.
func openDevices() (all []*Device) {
	for _, backend := range slices.Sorted(maps.Keys(machine.opened)) {
		all = append(all, machine.opened[backend]...)
	}
	return slices.AppendSeq(all, maps.Values(machine.hosts))
}

// running returns the kernels that may still run. Checkpoints measure with it
// how long they pause the program. It leaves out a device to which another
// goroutine gives a command right now.
func running() (out []mem.Kernels) {
	if !machine.TryLock() {
		return nil
	}
	defer machine.Unlock()
	for _, d := range openDevices() {
		if !d.busy() || !d.qmu.TryLock() {
			continue
		}
		ev, err := d.q.Record()
		d.qmu.Unlock()
		if err != nil {
			continue // the next command reports it
		}
		k := mem.Kernels{Wait: ev.Wait}
		if d.wrap == nil {
			k.Device = d.checkpointSide()
		}
		out = append(out, k)
	}
	return out
}

// busy reports whether launches may still run.
func (d *Device) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err == nil && uint64(d.launched.Load()) > d.done
}
