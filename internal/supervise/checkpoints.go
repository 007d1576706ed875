//go:build linux

package supervise

import (
	"fmt"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// showWait is how long a committed set waits for what ranks say of their parts:
// on its way from another host, that may be overtaken by rank 0's word that all
// have saved.
const showWait = 5 * time.Second

// growing is a set and how many ranks have told of their part of it.
type growing struct {
	*SetState
	parts int
}

// saved adds a rank's part of a set.
func (s *Supervisor) saved(m *control.Message) {
	p := s.pending[m.Set]
	switch {
	case s.unshown != nil && s.unshown.Set == m.Set:
		p = s.unshown
	case s.a.newSet && m.Set == s.last.Set: // late: it has been shown
		p = &growing{SetState: s.last}
	case s.a.newSet && m.Set < s.last.Set:
		return
	case p == nil:
		p = &growing{SetState: &SetState{Set: m.Set}}
		s.pending[m.Set] = p
	}
	if p.Reason == "" {
		p.Reason = m.Reason
	}
	p.parts++
	p.State += m.State
	p.Written += m.Written
	p.HeldNS, p.TookNS = max(p.HeldNS, m.HeldNS), max(p.TookNS, m.TookNS)
	if p == s.unshown && p.parts == s.n {
		s.showSet()
	}
}

// unsaved tells that a rank has not saved its part of a set.
func (s *Supervisor) unsaved(m *control.Message) {
	text := fmt.Sprintf("rank %d: set %d was not saved: %s", m.Rank, m.Set, m.Error)
	for _, w := range s.waiters {
		if w.kind == control.Checkpoint && !w.done {
			w.reply(&control.Message{Kind: control.Checkpoint, Set: m.Set, Error: text})
		}
	}
	now := time.Now()
	sets, tell := s.troubles.Add(m.Set, m.Error, now)
	if s.rec.Unsaved == nil {
		s.rec.Unsaved = &Unsaved{Since: now}
	}
	s.rec.Unsaved = &Unsaved{Since: s.rec.Unsaved.Since, Sets: sets, Why: fmt.Sprintf("rank %d: %s", m.Rank, m.Error)}
	s.changed()
	if !tell {
		return
	}
	s.save()
	if sets > 1 {
		text += fmt.Sprintf(" (%d sets in a row were not)", sets)
	}
	s.say("%s", text)
}

// committed notes that all ranks have saved a set. It is shown when all have
// told of their parts, or after a while.
func (s *Supervisor) committed(set uint64) {
	if s.a.newSet && set <= s.last.Set { // every rank may tell
		return
	}
	s.showSet()
	p := s.pending[set]
	if p == nil {
		p = &growing{SetState: &SetState{Set: set}}
	}
	p.Time = time.Now()
	for k := range s.pending {
		if k <= set {
			delete(s.pending, k)
		}
	}
	s.last, s.unshown, s.rec.Unsaved = p.SetState, p, nil
	s.a.newSet = true
	s.a.moved = p.Time
	s.reached = max(s.reached, set)
	s.faults, s.hasty = 0, 0
	s.tidy()
	if s.headway.saved(s.a, set, p.Time.Add(-time.Duration(p.TookNS))) {
		s.failures = 0
	}
	if p.parts >= s.n {
		s.showSet()
		return
	}
	s.save()
	s.after(showWait, func() {
		if s.unshown == p {
			s.showSet()
		}
	})
}

// showSet tells of the set that was committed last, if that was not done yet.
func (s *Supervisor) showSet() {
	if s.unshown == nil {
		return
	}
	p := s.unshown.SetState
	s.unshown = nil
	s.save()
	why := p.Reason
	if why != "" {
		why = ", " + why
	}
	if n := s.troubles.Over(); n > 0 {
		why += fmt.Sprintf("; sets are saved again, after %d that were not", n)
	}
	s.say("set %d committed: %s, %s written, held %s, durable after %s%s", p.Set, bytesText(p.State), bytesText(p.Written),
		timeText(time.Duration(p.HeldNS)), timeText(time.Duration(p.TookNS)), why)
	for _, w := range s.waiters {
		if w.kind == control.Checkpoint && !w.done {
			set := *p
			w.reply(&control.Message{Kind: control.Checkpoint, Set: p.Set, Run: &State{Last: &set}})
		}
	}
}
