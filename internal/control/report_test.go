package control

import (
	"testing"
	"time"
)

// TestReport_SlowestRankEnds checks that the slowest rank says when the run's
// loop ends.
func TestReport_SlowestRankEnds(t *testing.T) {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	st := RunState{Ranks: []RankState{{State: "running"}, {State: "running", Loop: &Loop{"a.go:1", 1, 10}}}}
	if l, end := st.Ends(); l == nil || l.Done != 1 || !end.IsZero() {
		t.Errorf("%v, %v", l, end)
	}
	st.Ranks = append([]RankState{{State: "running", Loop: &Loop{"a.go:1", 4, 10}}}, st.Ranks...)
	if l, end := st.Ends(); l == nil || l.Done != 1 || !end.IsZero() {
		t.Errorf("without estimates: %v, %v", l, end)
	}
	st.Ranks = append(st.Ranks, RankState{State: "running", Loop: &Loop{"a.go:1", 2, 10}, Ends: now}, RankState{State: "ended", Loop: &Loop{"a.go:1", 3, 10}, Ends: now.Add(time.Hour)})
	if l, end := st.Ends(); l == nil || l.Done != 2 || !end.Equal(now) {
		t.Errorf("%v, %v", l, end)
	}
	if l, _ := new(RunState).Ends(); l != nil {
		t.Errorf("%v", l)
	}
}

// TestRunState_DeviceShownOnce checks that a device is shown once, for all
// ranks that use it.
func TestRunState_DeviceShownOnce(t *testing.T) {
	gpu := DeviceState{ID: "cuda:0", Name: "H200", Launches: 3, In: 1 << 20, Out: 2 << 20}
	lost := gpu
	lost.Lost = true
	st := RunState{Ranks: []RankState{{Host: "a", Devices: []DeviceState{gpu}}, {Host: "b", Devices: []DeviceState{gpu}}, {Host: "a", Devices: []DeviceState{lost}}}}
	var got []string
	for _, d := range st.Devices() {
		got = append(got, d.String())
	}
	if len(got) != 2 || got[0] != "cuda:0 (H200) of a: 6 kernels, 2.0 MiB in, 4.0 MiB out, for 2 ranks; lost" || got[1] != "cuda:0 (H200) of b: 3 kernels, 1.0 MiB in, 2.0 MiB out" {
		t.Errorf("%q", got)
	}
}
