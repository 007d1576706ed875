//go:build linux

package supervise

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

const (
	keptMoves = 16 // maximum number of ended moves that are kept
	maxMoves  = 64 // maximum number of moves that wait
)

// moveRequest is a request for a move.
type moveRequest struct {
	ranks []int
	host  string // move all ranks that this host has, instead of ranks
	to    string // destination host; "": the supervisor chooses
	how   control.Migrate
	by    asker
	w     *commandRequest // the command that waits; nil: none
	tries int             // number of tries so far, if no command waits
	state *control.MoveState
}

// asker says who requested a move.
type asker int

const (
	byCommand asker = iota // a command, which waits
	byFile                 // RUN/evacuate
	byWatch                // --evacuate-when
)

// gone reports whether the asker has gone away or has cancelled.
func (q *moveRequest) gone() bool { return q.w != nil && (q.w.done || q.w.cancelled) }

// note reports the state of the move to the command.
func (q *moveRequest) note() {
	if q.w != nil && q.w.note != nil {
		q.w.note(q.message(true))
	}
}

// answer reports the result of the move to the command.
func (q *moveRequest) answer() {
	if q.w != nil {
		q.w.reply(q.message(false))
	}
}

func (q *moveRequest) message(more bool) *control.Answer {
	return &control.Answer{More: more, Run: &control.RunState{Moves: []control.MoveState{*q.state}}}
}

// migrate handles a request of a command.
func (s *Supervisor) migrate(w *commandRequest, m *control.Migrate) {
	q := &moveRequest{ranks: slices.Clone(m.Ranks), host: m.Host, to: m.To, how: *m, w: w}
	slices.Sort(q.ranks)
	q.ranks = slices.Compact(q.ranks)
	refuse := func(format string, args ...any) {
		w.reply(&control.Answer{Error: fmt.Sprintf(format, args...)})
	}
	switch {
	case s.o.Proxy != nil:
		refuse("'cairn run' has not started the program, so it cannot start it elsewhere")
	case s.ending():
		refuse("the run is to stop; nothing is moved any more")
	case (len(q.ranks) == 0) == (q.host == ""):
		refuse("either ranks or a host are to be moved")
	case len(q.ranks) > 0 && (q.ranks[0] < 0 || q.ranks[len(q.ranks)-1] >= s.n):
		refuse("there is no rank %s; the run has ranks 0 to %d", outside(q.ranks, s.n), s.n-1)
	case q.how.Chunk < 0 || q.how.Rounds < 0 || q.how.StartLimit < 0:
		refuse("chunk, rounds and the time for the start cannot be below zero")
	case q.to != "" && !hostName(q.to):
		refuse("%q is no host", q.to)
	case q.host != "" && q.host == q.to:
		refuse("host %s cannot be evacuated to itself", q.host)
	case q.to == "" && (q.how.Program != "" || len(q.how.Env) > 0):
		refuse("a program and variables are those of one host: name it with --to")
	case q.how.Program != "" && !filepath.IsAbs(q.how.Program):
		refuse("the program's path has to be absolute, not %q", q.how.Program)
	case slices.ContainsFunc(q.how.Env, func(v string) bool { return strings.Index(v, "=") < 1 || strings.ContainsRune(v, 0) }):
		refuse("variables are given as NAME=VALUE")
	case len(s.moveQueue) >= maxMoves:
		refuse("%d moves wait already; ask again when they are done", len(s.moveQueue))
	default:
		if q.host != "" && s.a != nil && s.a.begun() && !s.knows(q.host) {
			refuse("the run has no host %s; it has %s", q.host, strings.Join(s.titles(), ", "))
			return
		}
		s.addRequest(w)
		s.ask(q)
		s.judgeLater(q)
	}
}

func outside(ranks []int, n int) string {
	for _, r := range ranks {
		if r < 0 || r >= n {
			return fmt.Sprint(r)
		}
	}
	return ""
}

// hostName reports whether this can be the name of a host.
func hostName(name string) bool {
	return name != "" && !strings.HasPrefix(name, "-") && !strings.ContainsAny(name, " \t\n\r,/\x00") && len(name) < 256
}

// judgeSilent refuses a move of a program that does not use Cairn, when its
// ranks have had time to say Hello.
func (s *Supervisor) judgeSilent(q *moveRequest) {
	switch {
	case !slices.Contains(s.moveQueue, q):
	case s.a == nil || !s.a.begun():
		s.judgeLater(q)
	case !s.a.greeted():
		s.drop(q, "the program has not reported that it uses Cairn: it has not called Open yet, or never does; then it cannot be moved")
	}
}

func (s *Supervisor) judgeLater(q *moveRequest) {
	time.AfterFunc(helloTime, func() { s.post(func() { s.judgeSilent(q) }) })
}

// ask adds a request to the queue.
func (s *Supervisor) ask(q *moveRequest) {
	s.rec.Moved++
	q.state = &control.MoveState{ID: s.rec.Moved, Ranks: q.ranks, From: q.host, To: q.to, State: control.MoveWaiting, Time: time.Now()}
	if q.ranks == nil {
		q.state.Ranks = []int{}
	}
	s.moves = append(s.moves, q.state)
	for i := 0; len(s.moves) > keptMoves && i < len(s.moves); {
		if s.moves[i].Over() {
			s.moves = slices.Delete(s.moves, i, i+1)
		} else {
			i++
		}
	}
	s.moveQueue = append(s.moveQueue, q)
	s.save() // so that no number is used twice
	q.note()
	s.changed()
}

// drop ends a request that did not begin.
func (s *Supervisor) drop(q *moveRequest, why string) {
	s.close(q, control.NotMoved, why)
	q.answer()
}

// close records the end of a request that did not begin.
func (s *Supervisor) close(q *moveRequest, state, why string) {
	s.moveQueue = slices.DeleteFunc(s.moveQueue, func(x *moveRequest) bool { return x == q })
	q.state.State, q.state.Why, q.state.Time = state, why, time.Now()
	s.save()
	s.reportMove(q.state)
}

// settleMoves ends the current move and those that wait, and returns the
// requests to answer.
func (s *Supervisor) settleMoves(why string) (asked []*moveRequest) {
	if m := s.move; m != nil {
		s.endMove(m, control.NotMoved, why)
	}
	for _, m := range s.failedMoves {
		m.State, m.Why, m.Time = control.NotMoved, m.Why+"; "+why, time.Now()
		asked = append(asked, m.q)
	}
	s.failedMoves = nil
	for len(s.moveQueue) > 0 {
		asked = append(asked, s.moveQueue[0])
		s.close(s.moveQueue[0], control.NotMoved, why)
	}
	return asked
}

// nextMove begins the next move, if one waits and all ranks run. It reports
// whether it did something.
func (s *Supervisor) nextMove() bool {
	a := s.a
	if len(s.moveQueue) == 0 || a == nil || !a.begun() || a.failure != nil || a.killed() || s.stopping || s.killed || len(s.failedMoves) > 0 || a.inSpawn() {
		return false
	}
	if slices.ContainsFunc(a.ranks, func(r rank) bool { return r.done || r.State == "ended" }) {
		s.drop(s.moveQueue[0], "the program is about to end")
		return true
	}
	if slices.ContainsFunc(a.ranks, func(r rank) bool { return !r.Cairn || !r.ready || r.State != rundir.Running }) || s.n > 1 && a.endpoints == nil {
		return false
	}
	q := s.moveQueue[0]
	m := &move{MoveState: q.state, q: q, linked: make([]bool, s.n)}
	switch err := s.plan(m); {
	case err == errNobody: // this is the desired state
		text := ""
		if s.closeHost(q.host) {
			text = "none will be placed there any more"
		}
		s.close(q, control.Moved, text)
		q.answer()
		return true
	case err != nil:
		if w := s.watches[q.host]; w != nil && q.by == byWatch {
			w.told = err.Error()
		}
		s.drop(q, err.Error())
		return true
	}
	s.moveQueue = s.moveQueue[1:]
	a.moves++
	s.move = m
	state := *m.MoveState
	s.report(events.Event{Kind: events.Move, Move: &state}, "moving %s from %s to %s", control.RanksText(m.Ranks), m.From, m.To)
	s.prepareMove()
	return true
}

// lacks describes what the move waits for.
func (m *move) lacks() string {
	missing := func(have func(*movingRank) bool) string {
		var list []int
		for _, x := range m.moving {
			if !have(x) {
				list = append(list, x.rank)
			}
		}
		return control.RanksText(list)
	}
	switch m.State {
	case control.MovePreparing:
		var list []string
		for _, x := range m.moving {
			if name := cmp.Or(x.goal, m.To); (x.to == nil || x.to.state != hostUp) && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
		return fmt.Sprintf("no helper came from %s", strings.Join(list, ", "))
	case control.MoveStarting:
		return fmt.Sprintf("the new process of %s did not call Restore", missing(func(x *movingRank) bool { return x.destination >= listening }))
	case control.MovePrecopy:
		return fmt.Sprintf("%s did not finish its precopy", missing(func(x *movingRank) bool { return x.source >= precopied }))
	case control.MoveFinalCopy:
		if m.paused.IsZero() {
			return "not all ranks reached a point"
		}
		return fmt.Sprintf("the destination did not receive the state of %s", missing((*movingRank).copied))
	case control.MoveSwitching:
		return fmt.Sprintf("the source of %s did not hand over", missing(func(x *movingRank) bool { return x.source == handedOver }))
	}
	var list []int
	for r, ok := range m.linked {
		if !ok {
			list = append(list, r)
		}
	}
	return fmt.Sprintf("%s did not connect to the new processes", control.RanksText(list))
}

// addStats adds the stats of ranks that moved at the same time.
func addStats(sum, x *control.MoveStats) *control.MoveStats {
	if x == nil {
		return sum
	}
	if sum == nil {
		sum = new(control.MoveStats)
	}
	sum.State += x.State
	sum.Precopied += x.Precopied
	sum.Sent += x.Sent
	sum.Zero += x.Zero
	sum.Rounds = max(sum.Rounds, x.Rounds)
	sum.WriteNS, sum.TransferNS = max(sum.WriteNS, x.WriteNS), max(sum.TransferNS, x.TransferNS)
	sum.ReadNS, sum.AllNS = max(sum.ReadNS, x.ReadNS), max(sum.AllNS, x.AllNS)
	return sum
}
