package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// tone says how a piece of text is shown.
type tone int

const (
	plain tone = iota
	strong
	soft
	good
	attention
	bad
	mark
)

// span is text of one tone; a row is a line of them.
type (
	span struct {
		text string
		tone tone
	}
	row []span
)

// topView is what 'cairn top' knows of a run.
type topView struct {
	run    string
	state  *control.RunState
	read   time.Time // when state was read
	err    error     // why it could not be read since
	events []events.Event
	totals events.Totals
	pauses []time.Duration // of checkpoints, sorted
	ask    string          // a question, or what became of a request
}

// add takes events into the view.
func (v *topView) add(list []events.Event, anew bool) {
	if anew {
		v.events, v.totals, v.pauses = nil, events.Totals{}, nil
	}
	for i := range list {
		v.totals.Add(&list[i])
		if c := list[i].Checkpoint; c != nil && list[i].Kind == events.Checkpoint {
			pause := time.Duration(c.PauseNS)
			k, _ := slices.BinarySearch(v.pauses, pause)
			v.pauses = slices.Insert(v.pauses, k, pause)
		}
	}
	v.events = append(v.events, list...)
}

// live reports whether the run is being supervised.
func (v *topView) live() bool {
	if v.state == nil {
		return false
	}
	switch v.state.State {
	case rundir.Starting, rundir.Running, rundir.Waiting, rundir.Stopping, rundir.Finishing:
		return true
	}
	return false
}

// frame returns the picture of a run for a screen of that size.
func (v *topView) frame(now time.Time, width, height int) (rows []row) {
	add := func(r ...span) { rows = append(rows, clip(r, width)) }
	title := func(text string) { add(span{text, soft}) }
	st := v.state
	if st == nil {
		text := "connecting"
		if v.err != nil {
			text = v.err.Error()
		}
		add(span{text, bad})
		return rows
	}
	add(span{" " + st.State + " ", stateTone(st.State)}, span{"  " + printable(st.Run), strong}, span{"  " + printable(strings.Join(st.Command, " ")), soft})
	switch {
	case v.err != nil:
		now = v.read
		add(span{fmt.Sprintf("the run cannot be read; this is how it was at %s: %s", now.Format(time.TimeOnly), printable(v.err.Error())), bad})
	case st.Unsaved != nil:
		add(span{fmt.Sprintf("checkpoints fail since %s (%s): %s", st.Unsaved.Since.Format(time.TimeOnly), control.Count(st.Unsaved.Count, "time"), printable(st.Unsaved.Why)), bad})
	case st.Why != "" && st.State == rundir.Stopped:
		add(span{"stopped: " + printable(st.Why) + "; the same 'cairn run' command resumes the run", attention})
	case st.Why != "" && st.State != rundir.Running:
		add(span{printable(st.Why), bad})
	}
	add()
	rows = append(rows, v.figures(now, width)...)
	add()
	title("timeline")
	rows = append(rows, v.timeline(now, width)...)
	add()
	title("ranks")
	rows = append(rows, v.ranks(width, max(2, height/4))...)
	if text := loopText(st, now); text != "" {
		add(span{"loop  ", soft}, span{printable(strings.TrimPrefix(text, "loop ")), plain})
	}
	for _, d := range st.Devices() {
		tn := plain
		if d.Lost {
			tn = bad
		}
		add(span{"device  ", soft}, span{printable(d.String()), tn})
	}
	for i := range st.Tiers {
		t := &st.Tiers[i]
		tn := plain
		if t.Failing != nil {
			tn = bad
		}
		add(span{"tier  ", soft}, span{printable(tierText(t, now)), tn})
	}
	for _, text := range moveTexts(st.Moves, now) {
		add(span{"move  ", soft}, span{printable(text), plain})
	}
	add()
	title("log")
	for _, e := range v.events[max(0, len(v.events)-max(1, height-len(rows)-1)):] {
		add(span{e.Time.Local().Format(time.TimeOnly) + "  ", soft}, span{printable(e.Text), eventTone(e.Kind)})
	}
	return rows[:min(len(rows), max(1, height-1))]
}

// keys is the last line of the screen.
func (v *topView) keys(width int) row {
	switch {
	case v.ask != "":
		return clip(row{{v.ask, strong}}, width)
	case v.live():
		return clip(row{{"q", strong}, {" quit   ", soft}, {"c", strong}, {" checkpoint   ", soft}, {"s", strong}, {" save and stop", soft}}, width)
	}
	return clip(row{{"q", strong}, {" quit", soft}}, width)
}

// figures are the most important numbers, in columns.
func (v *topView) figures(now time.Time, width int) []row {
	st, t := v.state, &v.totals
	type figure struct{ name, value string }
	end := now
	if !v.live() {
		end = t.Last
	}
	list := []figure{{"elapsed", "-"}, {"start", fmt.Sprint(st.Attempt)}, {"last checkpoint", "none"}, {"checkpoints", fmt.Sprint(t.Checkpoints)}, {"pause", "-"}, {"failures", fmt.Sprint(t.Failures)}, {"work lost", "none"}}
	if !st.Began.IsZero() && end.After(st.Began) {
		list[0].value = roughly(end.Sub(st.Began))
	}
	if st.Last != nil {
		list[2].value = fmt.Sprintf("%d, %s", st.Last.Index, age(now, st.Last.Time))
	}
	if n := len(v.pauses); n > 0 { // the median and the longest
		list[4].value = control.TimeText(v.pauses[n/2]) + ", max " + control.TimeText(v.pauses[n-1])
	}
	if st.LostNS > 0 {
		list[6].value = roughly(time.Duration(st.LostNS))
	}
	var names, values row
	used := 0
	var rows []row
	for _, f := range list {
		w := max(textWidth(f.name), textWidth(f.value)) + 3
		if used+w > width && used > 0 {
			rows = append(rows, names, values)
			names, values, used = nil, nil, 0
		}
		names = append(names, span{pad(f.name, w), soft})
		values = append(values, span{pad(f.value, w), strong})
		used += w
	}
	return append(rows, clip(names, width), clip(values, width))
}

// timeline shows the attempts, and below them the pauses of checkpoints.
func (v *topView) timeline(now time.Time, width int) []row {
	if len(v.events) == 0 || width < 10 {
		return []row{{{"nothing has happened yet", soft}}}
	}
	begin, end := v.events[0].Time, v.events[len(v.events)-1].Time
	if v.live() {
		end = now
	}
	whole := max(end.Sub(begin), time.Second)
	at := func(t time.Time) int {
		return min(width-1, max(0, int(float64(width)*float64(t.Sub(begin))/float64(whole))))
	}
	line := make([]rune, width)
	tones := make([]tone, width)
	longest := make([]time.Duration, width)
	for i := range line {
		line[i] = ' '
	}
	fill := func(from, to int, c rune, tn tone) {
		for i := from; i <= to && i < width; i++ {
			line[i], tones[i] = c, tn
		}
	}
	started := time.Time{}
	var failed time.Time
	var failures []int
	for i := range v.events {
		e := &v.events[i]
		if e.LostNS > 0 && !failed.IsZero() {
			fill(at(failed.Add(-time.Duration(e.LostNS))), at(failed), '▒', attention)
		}
		switch e.Kind {
		case events.Start:
			if !started.IsZero() && i > 0 {
				fill(at(started), at(v.events[i-1].Time), '█', good)
			}
			started = e.Time
		case events.Failure, events.End:
			if !started.IsZero() {
				fill(at(started), at(e.Time), '█', good)
				started = time.Time{}
			}
			if e.Kind == events.Failure {
				failed = e.Time
				failures = append(failures, at(failed))
			}
		case events.Checkpoint:
			if e.Checkpoint != nil {
				k := at(e.Time)
				longest[k] = max(longest[k], time.Duration(e.Checkpoint.PauseNS), 1)
			}
		}
	}
	if !started.IsZero() {
		fill(at(started), at(end), '█', good)
	}
	for _, k := range failures { // last: nothing may hide them
		fill(k, k, '✗', bad)
	}
	var attempts row
	for i, c := range line {
		attempts = append(attempts, span{string(c), tones[i]})
	}
	bars := make([]rune, width)
	for i, d := range longest {
		if bars[i] = ' '; d > 0 {
			bars[i] = pauseBar(d)
		}
	}
	left, right := begin.Local().Format(time.DateTime), end.Local().Format(time.TimeOnly)
	axis := left + strings.Repeat(" ", max(1, width-len(left)-len(right))) + right
	return []row{attempts, {{string(bars), mark}}, clip(row{{axis, soft}}, width)}
}

// pauseBar is the higher the longer a pause is: from 0.1 ms to 10 s.
func pauseBar(d time.Duration) rune {
	bars := []rune("▁▂▃▄▅▆▇█")
	i := 0
	for limit := 400 * time.Microsecond; d > limit && i < len(bars)-1; limit *= 4 {
		i++
	}
	return bars[i]
}

// ranks shows the hosts with their ranks, in at most so many lines.
func (v *topView) ranks(width, lines int) (rows []row) {
	st := v.state
	type group struct {
		name string
		list []control.RankState
	}
	var hosts []*group
	byName := make(map[string]*group)
	most := uint64(1)
	for _, r := range st.Ranks {
		g := byName[r.Host]
		if g == nil {
			g = &group{name: r.Host}
			byName[r.Host] = g
			hosts = append(hosts, g)
		}
		g.list = append(g.list, r)
		most = max(most, r.Points)
	}
	for i, g := range hosts {
		if i == lines-1 && len(hosts) > lines {
			return append(rows, row{{fmt.Sprintf("and %d more hosts", len(hosts)-i), soft}})
		}
		least, points := uint64(0), uint64(0)
		r := row{{pad(printable(g.name), 16), plain}, {" ", plain}}
		for k, x := range g.list {
			if k == 0 || x.Points < least {
				least = x.Points
			}
			points = max(points, x.Points)
			tn, c := soft, "·"
			switch {
			case x.State == rundir.Running:
				tn, c = good, string([]rune("▁▂▃▄▅▆▇█")[min(7, 8*x.Points/(most+1))])
			case x.State == rundir.Starting:
				tn, c = attention, "○"
			}
			r = append(r, span{c, tn})
		}
		text := fmt.Sprintf("  %s", control.Count(len(g.list), "rank"))
		if points > 0 {
			text += fmt.Sprintf(", %d", least)
			if points > least {
				text += fmt.Sprintf(" to %d", points)
			}
			text += " points"
		}
		rows = append(rows, clip(append(r, span{text, soft}), width))
	}
	return rows
}

// roughly returns a duration in the units that matter.
func roughly(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// clip cuts a row to a width.
func clip(r row, width int) (out row) {
	for _, s := range r {
		if width <= 0 {
			return out
		}
		s.text = clipText(s.text, width)
		out = append(out, s)
		width -= textWidth(s.text)
	}
	return out
}

func stateTone(state string) tone {
	switch state {
	case rundir.Running, rundir.Finished:
		return good
	case rundir.Failed, rundir.Interrupted, rundir.Silent:
		return bad
	}
	return attention
}

func eventTone(k events.Kind) tone {
	switch k {
	case events.Failure, events.Rollback, events.Unsaved, events.Warning:
		return bad
	case events.Start, events.Restore, events.End:
		return strong
	case events.Checkpoint:
		return soft
	}
	return plain
}
