//go:build linux

package supervise

import "github.com/cairnrun/cairn/internal/supervise/rundir"

// The states of a run, and the events that change them:
//
//	             start                 pause
//	          ┌────────┐           ┌──────────▶ waiting
//	          │        ▼           │               │
//	          └──── starting ──────┤◀──────────────┘ start
//	                   │ begin     │
//	                   ▼           │
//	                running ───────┘
//	      stop ┌───────┤ finish
//	           ▼       ▼
//	      stopping ─▶ finishing ──▶ finished
//	             finish         end
//
// Every state but finished may end as stopped or failed. A supervisor that
// completes the end of an earlier one goes from starting to finishing.

// event changes the state of a run.
type event string

const (
	startEvent  event = "start"  // an attempt starts
	beginEvent  event = "begin"  // its ranks start
	pauseEvent  event = "pause"  // it failed, and the next one has to wait
	stopEvent   event = "stop"   // the ranks are told to save and stop
	finishEvent event = "finish" // the ranks have finished
)

// transitions maps an event and a state to the next state.
var transitions = map[event]map[string]string{
	startEvent:  {rundir.Starting: rundir.Starting, rundir.Waiting: rundir.Starting, rundir.Running: rundir.Starting},
	beginEvent:  {rundir.Starting: rundir.Running},
	pauseEvent:  {rundir.Starting: rundir.Waiting, rundir.Running: rundir.Waiting},
	stopEvent:   {rundir.Running: rundir.Stopping},
	finishEvent: {rundir.Starting: rundir.Finishing, rundir.Running: rundir.Finishing, rundir.Stopping: rundir.Finishing},
}

// after returns the state that follows a state. It is the same if the event
// does not change it.
func (e event) after(state string) string {
	if next, ok := transitions[e][state]; ok {
		return next
	}
	return state
}

// after returns the state of a run that ends with this result.
func (r Result) after(state string) string {
	if state == rundir.Finished {
		return state
	}
	return r.State
}

// happens changes the state of the run.
func (s *Supervisor) happens(e event) { s.state = e.after(s.state) }

// phase is the phase of an attempt. It only grows:
//
//	preparing ──▶ launched ──▶ killed
//	helpers start   ranks run    all ranks were sent SIGKILL
type phase int

const (
	preparing phase = iota
	launched
	killed
)

// reaches advances the attempt to a phase, unless it is beyond it.
func (a *attempt) reaches(p phase) { a.phase = max(a.phase, p) }

// begun reports whether the ranks were started.
func (a *attempt) begun() bool { return a.phase >= launched }

// killed reports whether the ranks were killed by the supervisor.
func (a *attempt) killed() bool { return a.phase == killed }
