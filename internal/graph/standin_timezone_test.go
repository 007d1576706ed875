package graph

import (
	"testing"
	"time"
)

// TestTime_OddZones restores times in fixed zones that have the names of
// others.
func TestTime_OddZones(t *testing.T) {
	for _, zone := range []*time.Location{
		time.FixedZone("UTC", 3600),
		time.FixedZone("UTC", 0),
		time.FixedZone("Local", 0),
		time.FixedZone("Europe/Berlin", 7),
		time.FixedZone("", 0),
	} {
		v := time.Unix(1e9, 5).In(zone)
		w := *roundTrip(t, &v, nil)
		_, want := v.Zone()
		if _, got := w.Zone(); got != want || !w.Equal(v) || w.String() != v.String() {
			t.Errorf("restored %v with offset %d, want %v with offset %d", w, got, v, want)
		}
	}
}
