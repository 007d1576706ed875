// Command times covers time.Duration and time.Time values that are kept, with
// several locations, none of them read from the clock.
package main

import (
	"fmt"
	"time"
)

type event struct {
	at   time.Time
	took time.Duration
	name string
}

func main() {
	east := time.FixedZone("east", 5*3600)
	t := time.Date(2024, 2, 27, 22, 30, 0, 0, time.UTC)
	var events []event
	zero := time.Time{}
	for i := range 7 { //difftest:loop
		n := 0
		for k := range 3000 {
			n += k % (i + 1)
		}
		d := time.Duration(n) * time.Second
		t = t.Add(d).AddDate(0, 0, i)
		if i == 3 {
			t = t.In(east)
		}
		events = append(events, event{t, d, t.Weekday().String()})
		fmt.Println(t.Format(time.RFC3339), d, events[i].name, t.Sub(events[0].at).Round(time.Minute), zero.IsZero())
	}
	fmt.Println(events[0].at.Before(events[6].at), events[5].at.Location(), events[2].at.Location() == time.UTC, events[4].at.Equal(events[4].at.UTC()))
}
