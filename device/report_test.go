package device

import (
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
)

// TestDevices_ReportedToSupervisor checks what the supervisor is told of
// devices.
func TestDevices_ReportedToSupervisor(t *testing.T) {
	devs, err := Open("host")
	must(t, err)
	d := devs[0]
	find := func() control.DeviceState {
		all := control.Devices()
		if i := slices.IndexFunc(all, func(s control.DeviceState) bool { return s.ID == d.Info().ID }); i >= 0 {
			return all[i]
		}
		return control.DeviceState{}
	}
	before := find().Launches
	must(t, d.Launch(NewKernel("", "a", func(*Work) {}), Size{1}))
	if s := find(); s.Launches != before+1 || s.Name == "" || s.Lost {
		t.Errorf("%+v, after %d launches", s, before)
	}
}
