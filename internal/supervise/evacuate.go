//go:build linux

package supervise

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// Evacuate moves all ranks off the hosts that RUN/evacuate lists. A line is
// HOST, or HOST TARGET. Events report what fails. Any goroutine may call it, at
// any time.
func (s *Supervisor) Evacuate() {
	list, err := readEvacuations(s.dir.File(rundir.EvacuateFile))
	s.post(func() {
		if err != nil {
			s.say("no host is evacuated: %v", err)
			return
		}
		for _, l := range list {
			s.evacuate(&moveRequest{host: l.from, to: l.to, by: byFile}, "as "+rundir.EvacuateFile+" says")
		}
	})
}

type evacuation struct{ from, to string }

// readEvacuations reads a list of hosts to evacuate.
func readEvacuations(path string) (out []evacuation, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; write the names of hosts to evacuate into it, one per line", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for n := 1; in.Scan(); n++ {
		line, _, _ := strings.Cut(in.Text(), "#")
		words := strings.Fields(line)
		for _, w := range words {
			if !hostName(w) {
				return nil, fmt.Errorf("%s:%d: %q is no host", path, n, w)
			}
		}
		switch {
		case len(words) == 0:
		case len(words) == 1:
			out = append(out, evacuation{from: words[0]})
		case len(words) > 2:
			return nil, fmt.Errorf("%s:%d: %d words; a line is HOST, or HOST TARGET", path, n, len(words))
		case words[0] == words[1]:
			return nil, fmt.Errorf("%s:%d: host %s cannot be evacuated to itself", path, n, words[0])
		default:
			out = append(out, evacuation{words[0], words[1]})
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s names no host; write names of hosts into it, one per line", path)
	}
	return out, nil
}

// evacuate queues a move of all ranks off a host. No command waits for it.
func (s *Supervisor) evacuate(q *moveRequest, why string) {
	switch {
	case s.ending():
		s.say("host %s is not evacuated: the run is to stop", q.host)
		return
	case s.evacuating(q.host):
		s.say("host %s is being evacuated already", q.host)
		return
	}
	s.say("host %s is to be evacuated, %s", q.host, why)
	s.askEvacuation(q)
}

func (s *Supervisor) askEvacuation(q *moveRequest) {
	q.how.Rounds = control.DefaultRounds
	q.tries++
	s.ask(q)
}

// evacuating reports whether a move off a host waits or is in progress.
func (s *Supervisor) evacuating(name string) bool {
	same := func(q *moveRequest) bool { return q.host == name }
	return slices.ContainsFunc(s.moveQueue, same) || s.move != nil && same(s.move.q) ||
		slices.ContainsFunc(s.failedMoves, func(m *move) bool { return same(m.q) })
}

// ending reports whether no move may begin any more.
func (s *Supervisor) ending() bool { return s.stopping || s.killed || s.stopAfterMove != "" }

// evacuateTries is how often the supervisor tries to evacuate a host that the
// file lists.
const evacuateTries = 3

// again repeats a failed move that no command waits for. If a host's
// EvacuateWhen holds, the host requests the move again, and the supervisor
// tries it less and less often.
func (s *Supervisor) again(q *moveRequest) {
	later := s.limits.again
	switch w := s.watches[q.host]; {
	case q.by == byFile && q.tries < evacuateTries:
		time.AfterFunc(later, func() { // by then the ranks may have been restarted
			s.post(func() {
				if !s.ending() && !s.evacuating(q.host) {
					s.askEvacuation(&moveRequest{host: q.host, to: q.to, by: q.by, tries: q.tries})
				}
			})
		})
	case q.by == byWatch && w != nil:
		later <<= min(w.failed, 6)
		w.failed++
		w.next = time.Now().Add(later)
	default:
		return
	}
	s.say("host %s is to be evacuated: trying again in %s", q.host, control.TimeText(later))
}

// evacuationWatch is what is known about a host whose EvacuateWhen holds.
type evacuationWatch struct {
	told   string    // why the move could not begin, as reported last
	failed int       // number of failed moves
	next   time.Time // earliest time of the next try
}

// toEvacuate handles a helper's Evacuate. The helper repeats it at every poll,
// so that ranks move as soon as they can.
func (h *host) toEvacuate(m *control.Evacuate) {
	s, name := h.s, h.title()
	if m.Error != "" {
		s.say("host %s: %s", name, m.Error)
		return
	}
	h.evacuating = true
	q := &moveRequest{host: name, by: byWatch}
	w := s.watches[name]
	if w == nil { // one host may have several helpers
		s.watches[name] = new(evacuationWatch)
		if !s.evacuating(name) {
			s.evacuate(q, "as --evacuate-when says there")
		}
		return
	}
	if s.evacuating(name) || s.a == nil || !s.a.begun() || s.stopping || time.Now().Before(w.next) {
		return
	}
	ranks := s.ranksOn(name)
	if len(ranks) == 0 {
		return
	}
	if _, err := s.spread(q, ranks, []string{name}); err != nil {
		if err.Error() != w.told {
			w.told = err.Error()
			s.say("host %s is still to be evacuated: %s", name, w.told)
		}
		return
	}
	w.told = ""
	s.evacuate(q, "and now there is room for its ranks")
}
