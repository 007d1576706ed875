package control

import (
	"fmt"
	"slices"
	"time"
)

// Loop is how far a program was, at its last checkpoint, in its outermost loop
// that counts to a known end.
type Loop struct {
	Where string `json:"where"` // main.go:12
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
}

// Percent returns how much of the loop is done: 0 to 99, as it has not ended.
func (l *Loop) Percent() int {
	return int(min(99, 100*l.ratio()))
}

func (l *Loop) ratio() float64 { return float64(l.Done) / float64(l.Total) }

// DeviceState is a device that a rank uses, and what it has done for the rank.
type DeviceState struct {
	ID       string `json:"id"` // cuda:0
	Name     string `json:"name"`
	Launches int64  `json:"launches"` // kernels
	In       int64  `json:"in"`       // bytes of arrays copied to it
	Out      int64  `json:"out"`      // … and from it
	Lost     bool   `json:"lost,omitempty"`
}

var devices func() []DeviceState

// SetDevices makes Devices call f. It is called from an init function.
func SetDevices(f func() []DeviceState) { devices = f }

// Devices returns the devices that this process uses; nil: none, or they are
// not known now.
func Devices() []DeviceState {
	if devices == nil {
		return nil
	}
	return devices()
}

// Ends returns when the loop of the slowest rank is expected to end, and that
// loop. Without estimates, the rank that has done least is the slowest. It
// returns nil if no rank says.
func (st *RunState) Ends() (*Loop, time.Time) {
	var loop *Loop
	var end time.Time
	for i := range st.Ranks {
		r := &st.Ranks[i]
		switch {
		case r.Loop == nil || r.State == "ended" || loop != nil && r.Ends.Before(end):
		case loop == nil, r.Ends.After(end), r.Loop.ratio() < loop.ratio():
			loop, end = r.Loop, r.Ends
		}
	}
	return loop, end
}

// DeviceUse is a device of a host, and what it has done for all ranks there.
type DeviceUse struct {
	Host  string
	Ranks int
	DeviceState
}

// Devices returns the devices in use, in the order of the ranks.
func (st *RunState) Devices() (out []DeviceUse) {
	for i := range st.Ranks {
		r := &st.Ranks[i]
		for _, d := range r.Devices {
			k := slices.IndexFunc(out, func(u DeviceUse) bool { return u.Host == r.Host && u.ID == d.ID })
			if k < 0 {
				k = len(out)
				out = append(out, DeviceUse{Host: r.Host, DeviceState: DeviceState{ID: d.ID, Name: d.Name}})
			}
			u := &out[k]
			u.Ranks++
			u.Launches += d.Launches
			u.In += d.In
			u.Out += d.Out
			u.Lost = u.Lost || d.Lost
		}
	}
	return out
}

// String describes the device in a line.
func (u *DeviceUse) String() string {
	text := fmt.Sprintf("%s (%s) of %s: %s, %s in, %s out", u.ID, u.Name, u.Host, Count(int(u.Launches), "kernel"), BytesText(u.In), BytesText(u.Out))
	if u.Ranks > 1 {
		text += fmt.Sprintf(", for %d ranks", u.Ranks)
	}
	if u.Lost {
		text += "; lost"
	}
	return text
}
