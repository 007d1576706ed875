//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier/local"
)

// localRun is a run whose hosts share no files: each has a directory with the
// checkpoints, journals and outputs of its ranks. Helpers tell what is in it,
// and bring files from one host to another.
type localRun struct {
	dir        string // on every host
	secret     []byte // for helpers among themselves
	supervisor string // identifies this supervisor to helpers
	damaged    map[copyOf]string
	rotten     map[keptCopy]string  // what hosts keep and cannot be used
	restored   control.Checkpointed // what this attempt restores
	failed     []copyOf             // of damaged: copies on tiers that could not be fetched; the next start tries again
	stored     []*tierStore         // what tiers outside of the hosts have; nil: they were not read for this start
	began      time.Time            // when this supervisor began
	left       map[string]time.Time // directories whose helpers were lost while ranks ran, and when
	found      *localInventory      // what hosts had when they were scanned last
	restores   uint64               // the checkpoint that this attempt restores; 0: none
	at         []string             // the directories in which its ranks run
	attemptID  string
	above      uint64
	commits    int   // since ranks got their homes
	moved      bool  // some got them while they ran
	tidied     bool  // files that ranks had elsewhere were removed since then
	outputErr  error // why the ranks' output is not complete here
}

func newLocalRun(rec *rundir.Record) *localRun {
	return &localRun{dir: filepath.Dir(rec.CheckpointDir), secret: randomBytes(32), supervisor: randomName(), damaged: make(map[copyOf]string), rotten: make(map[keptCopy]string), began: time.Now(), left: make(map[string]time.Time)}
}

// setup returns what a helper must know about its directory.
func (l *localRun) setup(s *Supervisor) *control.LocalDir {
	a := s.o.access()
	m := &control.LocalDir{Dir: l.dir, Run: s.rec.ID, Replaces: s.rec.Replaces, Supervisor: l.supervisor, Secret: l.secret, Group: a.Group, AnyOwner: a.AnyOwner}
	if s.launcher != nil {
		m.Secret = nil // the helper makes it of its own
		m.Launch = s.launcher.id
	}
	m.Policy, m.Name, m.Env = s.rec.Policy, s.rec.Name, storeEnv(s.policy)
	return m
}

// start completes the order to a helper to start ranks.
func (l *localRun) start(s *Supervisor, m *control.Start) {
	m.Output, m.Attempt = local.OutputDir(l.dir), s.rec.Started
	w := &m.Welcome
	w.Dir, w.PerHost, w.RunID, w.AttemptID, w.Only, w.Above = local.CheckpointDir(l.dir), true, s.rec.ID, l.attemptID, l.restores, l.above
	w.Fresh, w.Avoid, w.Expect = false, nil, 0 // what counts is decided
}

// ask sends a request to a helper, which answers one after the other. take gets
// the answer, or nil if the helper is lost.
func (h *host) ask(m control.Message, take func(control.Message)) {
	h.asked = append(h.asked, take)
	h.queue.Send(m)
}

// answers passes an answer to who has asked first.
func (h *host) answers(m control.Message) {
	if len(h.asked) > 0 {
		take := h.asked[0]
		h.asked = h.asked[1:]
		take(m)
	}
}

// answersNothing tells all who have asked that the helper is lost.
func (h *host) answersNothing() {
	for len(h.asked) > 0 {
		h.answers(nil)
	}
}

// askHosts sends a request to each of some helpers, and waits for all answers.
// It reports whether all have answered. give returns nil for a helper that is
// not asked.
func (s *Supervisor) askHosts(ctx context.Context, give func(h *host) control.Message, take func(h *host, m control.Message)) bool {
	waiting, lost := 0, false
	for _, h := range s.hosts {
		if h.state != hostUp {
			continue
		}
		m := give(h)
		if m == nil {
			continue
		}
		waiting++
		h.ask(m, func(m control.Message) {
			waiting--
			if lost = lost || m == nil; m != nil {
				take(h, m)
			}
		})
	}
	s.until(ctx, func() bool { return waiting == 0 }, nil)
	return !lost
}

// scanHosts asks all helpers what their hosts have.
func (s *Supervisor) scanHosts(ctx context.Context) {
	s.askHosts(ctx, func(*host) control.Message { return new(control.Scan) }, func(h *host, m control.Message) {
		if x, ok := m.(*control.Scanned); ok && x.Error == "" {
			h.files = x.Files
		} else if ok {
			s.say("cannot list the files on %s: %s", h.title(), x.Error)
		}
	})
	s.local.found = s.localFound()
}

// localFound puts together what hosts have.
func (s *Supervisor) localFound() *localInventory {
	var dirs []*hostDir
	for _, h := range s.hosts {
		if h.files != nil && h.state == hostUp {
			dirs = append(dirs, &hostDir{h.title(), h.files, h.addresses})
		}
	}
	p := newLocalInventory(s.n, s.rec.Started, dirs)
	p.damaged, p.rotten, p.avoid, p.tiers = s.local.damaged, s.local.rotten, s.rec.Quarantined, s.local.stored
	if s.last != nil {
		p.last = s.last.Index
	}
	for _, h := range s.hosts {
		if h.err != nil && h.state != hostUp {
			p.down[h.title()] = h.err
		}
	}
	return p
}

// completeLocal returns the complete checkpoints that were found last.
func (s *Supervisor) completeLocal() []rundir.Checkpoint {
	if s.local.found == nil {
		return nil
	}
	return s.local.found.complete()
}

// tidyAfter is how many checkpoints must be committed at the homes of ranks
// before the ranks' files on other hosts are removed.
const tidyAfter = 2

// After some commits, tidyHosts removes the files of ranks on hosts that are
// not their homes any more. It does nothing during a move: destinations have
// files on hosts that are not homes yet. A move, in turn, waits for helpers
// that are removing files.
func (s *Supervisor) tidyHosts() {
	if s.local == nil || s.local.tidied || s.local.commits < tidyAfter || s.move != nil || s.a == nil || s.a.failure != nil {
		return
	}
	s.local.tidied = true
	homes := make(map[string][]int)
	for r, home := range s.rec.Started.Homes {
		homes[home.Dir] = append(homes[home.Dir], r)
	}
	waiting, seen := 1, make(map[string]bool)
	done := func() {
		if waiting--; waiting == 0 {
			s.releaseHolders()
		}
	}
	for _, h := range s.hosts {
		if h.state != hostUp || h.files == nil || seen[h.files.ID] {
			continue
		}
		seen[h.files.ID] = true
		m := &control.Discard{Ranks: s.n, Keep: homes[h.files.ID]}
		if !s.local.moved && !slices.ContainsFunc(h.files.Parts, func(p control.Part) bool { return !slices.Contains(m.Keep, p.Rank) }) {
			continue
		}
		waiting++
		h.ask(m, func(m control.Message) {
			if x, ok := m.(*control.Discarded); ok && x.Error != "" {
				s.say("files that are not needed any more could not be removed from %s: %s", h.title(), x.Error)
			}
			done()
		})
	}
	s.rec.Started.Holders, s.local.moved = nil, false
	done()
}

// addHolders adds hosts that are not the run's any more, but have files of it.
// Their helpers run until these files are not needed any more.
func (s *Supervisor) addHolders() {
	if s.local == nil || s.launcher != nil || s.rec.Started == nil {
		return
	}
	own, _ := os.Hostname()
	for _, home := range append(slices.Clone(s.rec.Started.Homes), s.rec.Started.Holders...) {
		i := slices.IndexFunc(s.hosts, func(h *host) bool { return h.name == home.Host })
		if i < 0 {
			i = len(s.hosts)
			s.hosts = append(s.hosts, &host{s: s, name: home.Host, extra: true, local: home.Host == "localhost" || home.Host == "127.0.0.1" || home.Host == own})
		}
		s.hosts[i].holds = true
	}
}

// helperFor returns the helper that works for others in a directory: with
// mpirun and srun, which start several on a host, the one that keeps what tiers
// on hosts need. It returns nil if there is none any more.
func (s *Supervisor) helperFor(dir string) (found *host) {
	for _, h := range s.hosts {
		if h.state == hostUp && h.files != nil && h.files.ID == dir && (found == nil || len(found.peer) == 0 && len(h.peer) > 0) {
			found = h
		}
	}
	return found
}

// dirBusy reports whether a helper is at work in a host's directory. With
// mpirun and srun, several helpers have one.
func (s *Supervisor) dirBusy(h *host) bool {
	return h.files != nil && slices.ContainsFunc(s.hosts, func(x *host) bool {
		return x.files != nil && x.files.ID == h.files.ID && len(x.asked) > 0
	})
}

// needsDir reports whether a directory has files that the run may need. The
// helpers of other directories discard the files there when they end.
func (s *Supervisor) needsDir(id string) bool {
	is := func(home control.Home) bool { return home.Dir == id }
	return s.rec.Started == nil || slices.ContainsFunc(s.rec.Started.Homes, is) || slices.ContainsFunc(s.rec.Started.Holders, is)
}

// releaseHolders ends the helpers of hosts that only had files.
func (s *Supervisor) releaseHolders() {
	for _, h := range s.hosts {
		h.holds = false
	}
	s.releaseEmptyHosts()
}

// prepareLocal decides what the ranks restore, and brings the files to the
// hosts on which they will run. It reports whether they can start; if not, it
// has set the attempt's failure, or the run stops.
func (s *Supervisor) prepareLocal(ctx context.Context) bool {
	l := s.local
	l.stored = nil
	for _, c := range l.failed {
		delete(l.damaged, c)
	}
	l.failed = nil
	clear(l.rotten)
	s.tellPeers()
	var own map[int]string // ranks whose own files come from a tier, and the tier
	for {
		p := s.localFound()
		l.found = p
		s.endQuarantine()
		p.avoid = s.rec.Quarantined
		up, ranks := s.assign()
		if ranks == nil {
			s.notBegun(fmt.Sprintf("%d ranks need room, and there is not enough", s.n))
			return false
		}
		l.at = make([]string, s.n)
		for i, h := range up {
			for _, r := range ranks[i] {
				l.at[r] = h.files.ID
			}
		}
		plan, err := p.plan(l.at)
		if len(s.outer()) > 0 && l.stored == nil && p.needsTiers(plan, err) {
			errs := s.readTiers(ctx)
			if s.stopping || s.killed {
				return false
			}
			for _, err := range errs {
				s.say("%v", err)
			}
			if len(l.stored) > 0 || err == nil && plan != nil {
				continue
			}
			if err == nil { // never from the beginning on a guess
				err = &refusal{why: "a directory of the run is gone"}
			}
			err = &refusal{why: errors.Join(append([]error{err}, errs...)...).Error(), temporary: true}
		}
		if err != nil {
			var r *refusal
			s.notBegun(strings.ReplaceAll(err.Error(), "\n", "; "))
			s.a.failure.fatal = s.a.failure.fatal || !errors.As(err, &r) || !r.temporary
			return false
		}
		if s.awaitLeft(ctx, p.missingHomes()) {
			if s.stopping || s.killed || s.launcher == nil && !s.gatherHelpers(ctx) {
				return false
			}
			s.tellPeers()
			l.stored = nil
			continue
		}
		l.restores, l.above, l.restored = 0, p.inventory().Highest(), control.Checkpointed{}
		if plan != nil {
			l.restores, l.restored = plan.Index, control.Checkpointed(plan.Checkpoint)
			if why := p.skipped(plan); why != "" {
				s.say("%s; the run resumes from checkpoint %d", why, plan.Index)
			}
		}
		items := p.fetches(plan, l.at)
		if own = fromTier(items); len(items) == 0 {
			if s.loadable(ctx) {
				break
			}
			continue
		}
		failed, whole := s.fetch(ctx, items)
		if s.stopping || s.killed {
			return false
		}
		if failed == 0 && whole && s.loadable(ctx) {
			break
		}
		if !whole || failed < 0 {
			s.notBegun("files of ranks could not be brought to the hosts on which they are to run")
			return false
		}
		s.scanHosts(ctx) // without the copies that failed
	}
	err := s.recordStart(own)
	if err == nil {
		step.At("start.claim")
		err = s.claimAttempt(ctx, own)
	}
	if s.stopping || s.killed {
		return false
	}
	if err == nil && s.rec.Found != nil {
		s.rec.Found = nil
		err = s.record()
	}
	if err != nil {
		then := ""
		if errors.Is(err, errFinishedMeanwhile) {
			then = "; for its files and its output, give the command with a new run directory (--run)"
		}
		if f := s.rec.Found; f != nil {
			then = fmt.Sprintf("; the run was on %s, and the same command looks there again", f.Tier)
		}
		s.a.failure = &failure{why: fmt.Sprintf("the start could not be recorded: %v%s", err, then), status: 1, fatal: true}
		return false
	}
	s.shareRecord(ctx)
	if s.stopping || s.killed {
		return false
	}
	step.At("start.placed")
	return true
}

// shareRecord stores the record of this start on the hosts that keep copies for
// others and run no rank. (The others get it with the order to start ranks.) So
// each host knows the run if all others are lost, with the run directory.
func (s *Supervisor) shareRecord(ctx context.Context) {
	if len(s.tiers) == len(s.outer()) {
		return
	}
	s.askHosts(ctx, func(h *host) control.Message {
		if h.files == nil || len(h.peer) == 0 || s.helperFor(h.files.ID) != h || slices.Contains(s.local.at, h.files.ID) {
			return nil
		}
		return &control.StoreAttempt{AttemptRecord: *s.rec.Started}
	}, func(h *host, m control.Message) {
		if x, ok := m.(*control.AttemptStored); ok && x.Error != "" {
			s.say("the record of this start could not be stored on %s: %s", h.title(), x.Error)
		}
	})
}

// assign decides which ranks run on which hosts. It returns nil if there is no
// room.
func (s *Supervisor) assign() (up []*host, ranks [][]int) {
	var slots []int
	for _, h := range s.hosts {
		if h.state == hostUp && (h.slots > 0 || h.fixed != nil) {
			up, slots = append(up, h), append(slots, h.slots)
		}
	}
	if s.launcher != nil {
		for _, h := range up {
			ranks = append(ranks, h.fixed)
		}
		return up, ranks
	}
	if s.local != nil {
		var dirs []string
		for _, h := range up {
			dirs = append(dirs, h.files.ID)
		}
		return up, s.local.found.place(slots, dirs)
	}
	counts := place(s.n, slots)
	if counts == nil {
		return up, nil
	}
	next := 0
	for _, n := range counts {
		var list []int
		for range n {
			list = append(list, next)
			next++
		}
		ranks = append(ranks, list)
	}
	return up, ranks
}

// fetch brings files to hosts. It returns how many items could not be fetched
// (negative: nobody else has one of them), and whether all helpers have
// answered.
func (s *Supervisor) fetch(ctx context.Context, items map[string][]control.FetchItem) (failed int, whole bool) {
	var moved []int
	for _, list := range items {
		for _, x := range list {
			if (len(x.Addresses) > 0 || x.Tier != "" || len(x.Kept) > 0) && !slices.Contains(moved, x.Rank) {
				moved = append(moved, x.Rank)
			}
		}
	}
	slices.Sort(moved)
	if len(moved) > 0 {
		s.say("the files of %s are brought to other hosts", control.RanksText(moved))
	}
	whole = s.askHosts(ctx, func(h *host) control.Message {
		if h.files == nil || s.helperFor(h.files.ID) != h || len(items[h.files.ID]) == 0 {
			return nil
		}
		return &control.Fetch{Run: s.rec.ID, Ranks: s.n, WorkDir: s.cwd, Items: items[h.files.ID]}
	}, func(h *host, m control.Message) {
		x, ok := m.(*control.Fetched)
		if !ok {
			return
		}
		for _, f := range x.Failed {
			what := "its journal and output"
			if f.Index > 0 {
				what = fmt.Sprintf("its file of checkpoint %d", f.Index)
			}
			s.say("rank %d: %s could not be fetched from %s: %s", f.Rank, what, f.Host, f.Error)
			if f.Index == 0 {
				failed = -1 << 30 // nobody else has it
				continue
			}
			failed++
			s.local.fetchFailed(&f)
		}
	})
	return failed, whole
}

// fetchFailed records that a file could not be fetched from where it was. The
// next plan does without it.
func (l *localRun) fetchFailed(f *control.FetchFailure) {
	if f.Host == "other hosts" {
		l.keptFailed(f)
	}
	for _, t := range l.stored {
		if t.name == f.Host {
			c := copyOf{t.name, f.Rank, f.Index}
			if l.damaged[c] = f.Error; !f.Damaged {
				l.failed = append(l.failed, c)
			}
		}
	}
	for id, d := range l.found.dirs {
		if d.host == f.Host {
			l.damaged[copyOf{id, f.Rank, f.Index}] = f.Error
		}
	}
}

// recordStart records which checkpoints count from now on, and where the ranks
// are. Helpers record it before they start a rank. The own files of some ranks
// have come from a tier.
func (s *Supervisor) recordStart(own map[int]string) error {
	l := s.local
	was := l.found.record
	if was == nil {
		was = &control.AttemptRecord{Run: s.rec.ID, Ranks: s.n}
	}
	l.attemptID, l.commits, l.moved, l.tidied = store.NewID(), 0, false, false
	s.rec.Quiet = false
	s.rec.Started = s.stamped(was.Next(l.restores, l.attemptID))
	for r := range s.n {
		home := control.Home{Host: l.found.dirs[l.at[r]].host, Dir: l.at[r], Contained: s.contains(l.at[r])}
		switch {
		case own[r] != "":
			home.Reach = l.restores
		case l.restores > 0 && r < len(was.Homes):
			home.Reach = was.Homes[r].Reach
		}
		s.rec.Started.Homes = append(s.rec.Started.Homes, home)
	}
	for _, id := range slices.Sorted(maps.Keys(l.found.dirs)) {
		if d := l.found.dirs[id]; len(d.Parts)+len(d.Lines)+len(d.Journals) > 0 && !slices.Contains(l.at, id) { // until it is tidied up
			s.rec.Started.Holders = append(s.rec.Started.Holders, control.Home{Host: d.host, Dir: id})
		}
	}
	return s.record()
}

// contains reports whether processes on the host of a directory end with this
// one: it is the first of its process namespace, in which it has started them.
func (s *Supervisor) contains(dir string) bool {
	h := s.helperFor(dir)
	return os.Getpid() == 1 && s.launcher == nil && h != nil && h.local
}

// stamped adds to a record who has made it.
func (s *Supervisor) stamped(a *control.AttemptRecord) *control.AttemptRecord {
	host, _ := os.Hostname()
	a.Host, a.Cwd, a.Pid, a.Time, a.Grace = host, s.cwd, os.Getpid(), time.Now().Round(0), s.o.Grace
	return a
}

// damagedCopy records that a rank could not load its file. Another attempt
// takes another copy, or an older checkpoint.
func (s *Supervisor) damagedCopy(r *rank, m *control.Damaged) {
	if s.local == nil || s.local.at == nil || m.Index == 0 {
		return
	}
	s.local.damaged[copyOf{s.local.at[r.Rank], r.Rank, m.Index}] = m.Error
	s.a.damaged = fmt.Sprintf("rank %d on %s cannot load checkpoint %d: %s", r.Rank, r.Host, m.Index, m.Error)
}

// endLocal scans the hosts after an attempt, before their helpers end. If the
// ranks have finished, it brings their output here.
func (s *Supervisor) endLocal(ctx context.Context) {
	s.scanHosts(ctx)
	if a := s.a; a.failure == nil && a.whole() {
		s.local.outputErr = s.collectOutput(ctx)
	}
}

// discardLocal removes the files of a finished run from the hosts, except those
// of its end that tiers on them keep.
func (s *Supervisor) discardLocal() {
	if s.keepsCheckpoints() {
		return
	}
	var kept []string
	for _, h := range s.hosts {
		if h.state != hostUp && h.slots > 0 {
			kept = append(kept, h.title())
		}
	}
	asked := 0
	whole := s.askHosts(context.Background(), func(h *host) control.Message {
		if h.files == nil || s.helperFor(h.files.ID) != h {
			return nil
		}
		asked++
		return &control.Discard{All: true, End: s.keptOnHosts() && len(s.policy.OnOthers()) > 0}
	}, func(h *host, m control.Message) {
		if x, ok := m.(*control.Discarded); ok && x.Error != "" {
			s.say("the checkpoints of the finished run could not be removed from %s: %s", h.title(), x.Error)
		}
	})
	if len(kept) > 0 || !whole || asked == 0 {
		s.say("the checkpoints of the finished run stay in %s on %s, until the next run there or 'rm -r'", s.local.dir, strings.Join(append(kept, "hosts that were not reached"), ", "))
	}
}
