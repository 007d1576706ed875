package device

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cairnrun/cairn/internal/control"
)

func init() { control.SetDevices(inUse) }

// inUse describes the devices that the program has used, for the supervisor. It
// waits for nothing: a device may be stuck.
func inUse() []control.DeviceState {
	if !machine.TryLock() {
		return nil
	}
	defer machine.Unlock()
	var all []*Device
	for _, backend := range slices.Sorted(maps.Keys(machine.opened)) {
		all = append(all, machine.opened[backend]...)
	}
	all = slices.AppendSeq(all, maps.Values(machine.hosts))
	out := []control.DeviceState{}
	for _, d := range all {
		s := control.DeviceState{ID: d.info.ID, Name: d.info.Name, Launches: d.launched.Load(), In: d.in.Load(), Out: d.out.Load(), Lost: d.gone.Load()}
		if s.Launches > 0 || s.In > 0 || s.Out > 0 || s.Lost {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b control.DeviceState) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
