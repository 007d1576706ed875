//go:build linux

package supervise

import (
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/internal/control"
)

// A move with a directory per host. The state of a rank and its standard output
// come with the move; its journal and the rest follow when the source has
// handed over, and the destination has not begun:
//
//	switching   HandedOver ─▶ Fetch ─▶ StoreAttempt: the destination is the home ─▶ linking
//
// Until the record is stored, the source is the home and has everything. The
// checkpoints of the rank stay with the source, which holds them until there
// are newer ones.

// ownStep says where the journals of moving ranks are. It only grows.
type ownStep int

const (
	ownAway ownStep = iota
	ownComing
	ownThere
)

// bringOwn brings the journals of moving ranks to their destinations. It
// reports whether something has changed.
func (s *Supervisor) bringOwn(m *move) bool {
	if m.own == ownComing {
		return false
	}
	m.own = ownComing
	items := make(map[*host][]control.FetchItem)
	for _, x := range m.moving {
		switch {
		case x.to.files == nil || x.from.files == nil:
			return s.moveFailed("a helper has not told what is on its host")
		case x.to.files.ID != x.from.files.ID:
			items[x.to] = append(items[x.to], control.FetchItem{Rank: x.rank, Own: true, Moved: true, Host: x.from.title(), Addresses: x.from.addresses})
		}
	}
	waiting := 1
	done := func() {
		if waiting--; waiting == 0 && s.move == m {
			s.storeHomes(m)
		}
	}
	for h, list := range items {
		if h.state != hostUp {
			return s.moveFailed(h.err.Error())
		}
		waiting++
		h.ask(&control.Fetch{Run: s.rec.ID, Ranks: s.n, Items: list}, func(answer control.Message) {
			x, ok := answer.(*control.Fetched)
			switch {
			case s.move != m:
			case !ok:
				s.moveFailed(fmt.Sprintf("the helper on %s is lost", h.title()))
			case len(x.Failed) > 0:
				f := x.Failed[0]
				s.moveFailed(fmt.Sprintf("the journal of rank %d could not be brought from %s to %s: %s", f.Rank, f.Host, h.title(), f.Error))
			default:
				done()
			}
		})
	}
	done()
	return true
}

// storeHomes records that the destinations are the homes of the ranks that have
// moved.
func (s *Supervisor) storeHomes(m *move) {
	now := *s.rec.Started
	now.Number++
	now.Homes, now.Holders = slices.Clone(now.Homes), slices.Clone(now.Holders)
	var to []*host
	for _, x := range m.moving {
		if old := now.Homes[x.rank]; old.Dir != x.to.files.ID {
			if !slices.Contains(now.Holders, old) {
				now.Holders = append(now.Holders, old)
			}
			x.from.holds = true
		}
		now.Homes[x.rank] = control.Home{Host: x.to.title(), Dir: x.to.files.ID, Reach: now.Homes[x.rank].Reach, Contained: s.contains(x.to.files.ID)}
		s.local.at[x.rank] = x.to.files.ID
		if !slices.Contains(to, x.to) {
			to = append(to, x.to)
		}
	}
	s.local.commits, s.local.moved, s.local.tidied = 0, true, false
	s.rec.Started = s.stamped(&now)
	if err := s.record(); err != nil {
		s.moveFailed(fmt.Sprintf("cannot record where the ranks are now: %v", err))
		return
	}
	for _, h := range s.hosts { // those that keep copies for others need not have it to continue
		if h.state == hostUp && len(h.peer) > 0 && !slices.Contains(to, h) {
			h.ask(&control.StoreAttempt{AttemptRecord: now}, func(control.Message) {})
		}
	}
	waiting := len(to)
	for _, h := range to {
		if h.state != hostUp {
			s.moveFailed(h.err.Error())
			return
		}
		h.ask(&control.StoreAttempt{AttemptRecord: now}, func(answer control.Message) {
			x, ok := answer.(*control.AttemptStored)
			switch {
			case s.move != m:
			case !ok:
				s.moveFailed(fmt.Sprintf("the helper on %s is lost", h.title()))
			case x.Error != "":
				s.moveFailed(fmt.Sprintf("cannot record on %s where the ranks are now: %s", h.title(), x.Error))
			default:
				if waiting--; waiting == 0 {
					m.own = ownThere
				}
			}
		})
	}
}
