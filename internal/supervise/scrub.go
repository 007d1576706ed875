//go:build linux

package supervise

import (
	"slices"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// scrubbed takes what a host has found when it read old checkpoints again. The
// state is replaced, not changed: snapshots have the old one.
func (s *Supervisor) scrubbed(h *host, m *control.Scrubbed) {
	state := control.ScrubState{}
	if s.rec.Scrub != nil {
		state = *s.rec.Scrub
	}
	state.Time = time.Now()
	state.Files += m.Files
	state.Bytes += m.Bytes
	state.Repaired += len(m.Repaired)
	for i := range m.Repaired {
		s.say("read again: %s", &m.Repaired[i])
	}
	for i := range m.Lost {
		if !slices.Contains(h.rotten, m.Lost[i]) {
			s.say("read again: %s", &m.Lost[i])
		}
	}
	h.rotten, state.Lost = m.Lost, nil
	for _, x := range s.hosts {
		state.Lost = append(state.Lost, x.rotten...)
	}
	s.rec.Scrub = &state
	s.save()
	s.changed()
}

// Damaged returns what hosts have read again and found damaged, and could not
// repair.
func (v *HostView) Damaged() []control.TierRepair {
	if v.rec.Scrub == nil {
		return nil
	}
	return v.rec.Scrub.Lost
}
