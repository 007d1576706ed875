//go:build linux

package supervise

import (
	"fmt"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
)

// history writes the events of the run to its directory. An error does not stop
// the run: it is reported, once.
type history struct {
	file  *events.File
	anew  bool            // the run is new: the history of an earlier one is discarded first
	first []*events.Event // until then
	err   error
	told  bool // err was reported

	replaced bool // somebody replaced the file since the last event
}

// open opens the history. That of an earlier run stays until begin.
func (h *history) open(name string, anew bool) {
	h.anew = anew
	h.file, h.err = events.OpenFile(name)
}

// begin says that the directory belongs to this run now.
func (h *history) begin() {
	if h.file == nil || !h.anew {
		return
	}
	if h.anew, h.err = false, h.file.Clear(); h.err != nil {
		return
	}
	for _, e := range h.first {
		h.add(e)
	}
	h.first = nil
}

func (h *history) add(e *events.Event) {
	switch {
	case h.anew:
		h.first = append(h.first, e)
	case h.file != nil:
		err := h.file.Append(e)
		h.replaced = err == events.ErrReplaced
		if h.err == nil && !h.replaced {
			h.err = err
		}
	}
}

func (h *history) close() {
	if h.file != nil {
		h.file.Close()
		h.file = nil
	}
}

// say reports to the log and the user what is not an event of its own.
func (s *Supervisor) say(format string, args ...any) {
	kind := events.Note
	if strings.HasPrefix(format, "WARNING: ") {
		kind = events.Warning
	}
	s.report(events.Event{Kind: kind}, format, args...)
}

// report reports an event, with a text for people.
func (s *Supervisor) report(e events.Event, format string, args ...any) {
	e.Version, e.Time, e.Attempt, e.Text = events.Version, time.Now(), s.rec.Attempt, fmt.Sprintf(format, args...)
	s.dir.Log(e.Time, e.Text)
	s.history.add(&e)
	if s.o.Event != nil {
		s.o.Event(Event{e, s.snapshot()})
	}
	if s.history.replaced {
		s.history.replaced = false
		s.say("WARNING: %s: %v", events.FileName, events.ErrReplaced)
	}
	if err := s.history.err; err != nil && !s.history.told {
		s.history.told = true
		s.say("the history of the run could not be written: %v; the run continues", err)
	}
}

// reportCause reports that a rank was killed, or a host lost, from outside,
// after another rank that ended because of that was reported as the failure. It
// does nothing with a launcher, which kills ranks itself.
func (s *Supervisor) reportCause(why string) {
	if f := s.a.failure; f != nil && f.own && !s.a.outside && !s.stopping && s.launcher == nil {
		s.report(events.Event{Kind: events.Warning}, "%s, probably before that", why)
	}
}

// reportMove reports that a move has ended.
func (s *Supervisor) reportMove(m *control.MoveState) {
	state := *m
	s.report(events.Event{Kind: events.Move, Move: &state}, "%s", control.MoveText(m))
}

// reportTier reports a change of a tier; index is the checkpoint that it got.
func (s *Supervisor) reportTier(t *storageTier, index uint64, format string, args ...any) {
	state := t.state
	s.report(events.Event{Kind: events.Tier, Index: index, Tier: &state}, format, args...)
}

// changed reports a new state without an event.
func (s *Supervisor) changed() {
	if s.o.Event != nil {
		s.o.Event(Event{events.Event{Time: time.Now()}, s.snapshot()})
	}
}

// lost returns, and counts, the computing time that is repeated by an attempt
// that continues from a state with the given computing time.
func (s *Supervisor) lost(from time.Duration) time.Duration {
	lost := max(0, s.progress.hi-from)
	s.rec.LostNS += int64(lost)
	return lost
}

// hostNames returns the host of each rank.
func (a *attempt) hostNames() (names []string) {
	for i := range a.ranks {
		names = append(names, a.ranks[i].Host)
	}
	return names
}
