//go:build linux

package helper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/vfs"
)

const (
	scrubRate = 8 << 20   // bytes per second that a host reads again
	lookMost  = time.Hour // between two looks for what has to be read again
)

// scrubber reads what the host has of checkpoints again when it gets old, and
// repairs what is damaged: the files of its ranks in the checkpoint directory,
// what it keeps for tiers on hosts, and what its ranks have on the tiers
// outside of the hosts. It works while the ranks run, at a low rate, in one
// goroutine.
type scrubber struct {
	*localFiles
	holder *holder // nil: there is no tier on hosts
	leads  func() bool
	host   string
	policy *policy.Policy
	send   func(control.Message)
	now    func() time.Time
	after  func(time.Duration) <-chan time.Time
	limit  *tier.Limiter

	ctx    context.Context
	cancel context.CancelFunc
	begin  sync.Once // work
	done   chan struct{}

	read    map[string]time.Time // when something was written, or read last
	awaited map[copies.ID]bool   // of other hosts, which have been told that it is damaged

	// Of one pass:
	record *control.AttemptRecord
	outer  []*scrubbedTier
	met    map[string]bool // the keys of read that still exist
	said   control.Scrubbed
}

// scrubbedTier is a tier outside of the hosts, as far as it can be read.
type scrubbedTier struct {
	*policy.Tier
	t    tier.Tier
	list []*tier.Manifest // that count
}

func newScrubber(l *localFiles, host string, p *policy.Policy, send func(control.Message)) *scrubber {
	s := &scrubber{localFiles: l, holder: l.holder, host: host, policy: p, send: send, now: time.Now, after: time.After, limit: tier.NewLimiter(scrubRate),
		done: make(chan struct{}), read: make(map[string]time.Time), awaited: make(map[copies.ID]bool)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// close ends the scrubber. It waits, but not for a file system that hangs.
func (s *scrubber) close() {
	if s == nil {
		return
	}
	s.cancel()
	s.begin.Do(func() { close(s.done) })
	select {
	case <-s.done:
	case <-time.After(uploadEndTime):
	}
}

func (s *scrubber) work() {
	defer close(s.done)
	for {
		select {
		case <-s.after(min(s.policy.Scrub/20, lookMost)):
			s.pass()
		case <-s.ctx.Done():
			return
		}
	}
}

// pass reads everything that is old, if no other helper does in this directory.
func (s *scrubber) pass() {
	if s.leads != nil && !s.leads() {
		return
	}
	var err error
	if s.record, err = s.Attempt(); err != nil || s.record == nil {
		return
	}
	lost := s.said.Lost
	s.met, s.said.Lost = make(map[string]bool), nil
	s.openOuter()
	s.scrubKept()
	s.scrubParts()
	for _, t := range s.outer {
		s.scrubTier(t)
	}
	if s.ctx.Err() != nil {
		return
	}
	maps.DeleteFunc(s.read, func(key string, _ time.Time) bool { return !s.met[key] })
	if s.said.Files > 0 || len(s.said.Repaired) > 0 || !slices.Equal(lost, s.said.Lost) {
		s.report()
	}
}

// report tells the supervisor what was read since the last time.
func (s *scrubber) report() {
	m := s.said
	s.send(&m)
	s.said = control.Scrubbed{Lost: slices.Clone(m.Lost)}
}

// due reports whether something that was written at a time is to be read again.
// If that time is in the future, a clock was wrong, and due ignores it.
func (s *scrubber) due(key string, written time.Time) bool {
	s.met[key] = true
	at, now := s.read[key], s.now()
	if written.Before(at) || written.Sub(now) > time.Hour {
		written = at
	}
	return now.Sub(written) >= s.policy.Scrub
}

// sound records that something was read and is what it should be.
func (s *scrubber) sound(key string, size int64) {
	s.read[key] = s.now()
	s.said.Files++
	s.said.Bytes += size
}

// fresh records that a file has been written and checked.
func (s *scrubber) fresh(st fs.FileInfo, err error) {
	if err == nil {
		s.read[inode(st)], s.met[inode(st)] = s.now(), true
	}
}

// did records what was repaired, or cannot be.
func (s *scrubber) did(index uint64, tier, what, from string, err error) {
	if s.ctx.Err() != nil {
		return
	}
	r := control.TierRepair{Checkpoint: index, Tier: tier, What: what, From: from}
	if err != nil {
		r.From, r.Why = "", strings.ReplaceAll(err.Error(), "\n", "; ")
		s.said.Lost = append(s.said.Lost, r)
		return
	}
	s.said.Repaired = append(s.said.Repaired, r)
	s.report()
}

// inode identifies a file, whatever links there are to it.
func inode(st fs.FileInfo) string {
	x, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return st.Name()
	}
	return fmt.Sprintf("%d:%d", x.Dev, x.Ino)
}

// mine reports whether this host is the home of a rank.
func (s *scrubber) mine(rank int) bool {
	return rank < len(s.record.Homes) && s.record.Homes[rank].Dir == s.ID
}

// openOuter opens the tiers outside of the hosts. One that cannot be read is
// left out: uploads to it fail, too, and say so.
func (s *scrubber) openOuter() {
	s.outer = nil
	for i := range s.policy.Tiers {
		p := &s.policy.Tiers[i]
		u := s.uploaders[string(p.Kind)]
		if u == nil {
			continue
		}
		t, err := u.open(s.ctx)
		if err != nil {
			continue
		}
		x := &scrubbedTier{Tier: p, t: tier.Limit(t, s.limit)}
		all, _ := tier.Checkpoints(s.ctx, x.t, s.Run) // the others, if some cannot be read
		for _, m := range all {
			if s.record.Counts(m.Index, m.Attempt) {
				x.list = append(x.list, m)
			}
		}
		s.outer = append(s.outer, x)
	}
}

// scrubKept reads what the host keeps for tiers on hosts.
func (s *scrubber) scrubKept() {
	if s.holder == nil {
		return
	}
	kept := s.holder.store
	for id := range s.awaited {
		if kept.Has(id) {
			s.did(objectIndex(id.Object), s.onHosts(id), keptWhat(id, s.host), "the host that saved it", nil)
			delete(s.awaited, id)
		}
	}
	ids, _ := kept.Have()
	for _, id := range ids {
		st, err := kept.Stat(id)
		if err != nil || !s.due(inode(st), st.ModTime()) {
			continue
		}
		if s.holder.service.Verify(s.ctx, id, s.limit) == nil {
			s.sound(inode(st), st.Size())
		}
	}
	bad := kept.Bad()
	maps.DeleteFunc(s.awaited, func(id copies.ID, _ bool) bool { return !slices.Contains(bad, id) })
	for _, id := range bad {
		if s.ctx.Err() != nil {
			return
		}
		if rank, _ := objectOf(id.Object); !s.mine(rank) && !s.awaited[id] {
			s.awaited[id] = true // the host that saved it sends it again, if it still copies it
			continue
		}
		from, err := s.mendKept(id)
		s.did(objectIndex(id.Object), s.onHosts(id), keptWhat(id, s.host), from, err)
		if err == nil {
			delete(s.awaited, id)
		}
	}
}

// onHosts names the tier on hosts that something belongs to.
func (s *scrubber) onHosts(id copies.ID) string {
	k := policy.Partner
	if id.Data > 0 || s.policy.Of(k) == nil {
		k = policy.RS
	}
	return s.policy.Of(k).Name()
}

// objectOf returns the rank and the checkpoint of an object that hosts keep.
func objectOf(object string) (rank int, index uint64) {
	if _, err := fmt.Sscanf(object, "rank-%d-%d-", &rank, &index); err != nil {
		return -1, 0
	}
	return rank, index
}

func objectIndex(object string) uint64 {
	_, index := objectOf(object)
	return index
}

// keptWhat says what an object that a host keeps is.
func keptWhat(id copies.ID, host string) string {
	rank, _ := objectOf(id.Object)
	what := fmt.Sprintf("rank %d's file", rank)
	if IsPack(id.Object) {
		what = fmt.Sprintf("rank %d's pack", rank)
	}
	if id.Data > 0 {
		what = fmt.Sprintf("shard %d of %s", id.Shard, what)
	}
	return what + " that host " + host + " keeps"
}

// scrubParts reads the files of checkpoint directories. It leaves out those
// that scrubKept has read: what the host keeps of its own ranks are links to
// these files.
func (s *scrubber) scrubParts() {
	members, err := store.Members(vfs.OS(), local.CheckpointDir(s.Path))
	if err != nil {
		return
	}
	for _, index := range slices.Backward(slices.Sorted(maps.Keys(members))) {
		for _, rank := range members[index] {
			if s.ctx.Err() != nil {
				return
			}
			s.scrubPart(rank, index)
		}
	}
}

func (s *scrubber) scrubPart(rank int, index uint64) {
	files, err := s.PartFiles(rank, index)
	main := files[mainName(rank)]
	if err != nil || main == "" { // the rank has removed it
		return
	}
	due := false
	sizes := make(map[string]int64)
	for _, at := range files {
		if st, err := os.Lstat(at); err == nil {
			sizes[inode(st)] = st.Size()
			due = s.due(inode(st), st.ModTime()) || due
		}
	}
	if !due {
		return
	}
	switch err = s.Sound(s.ctx, main, rank, index, s.limit); {
	case err == nil:
		for key, size := range sizes {
			s.sound(key, size)
		}
	case errors.Is(err, local.ErrDamaged):
		from, merr := s.mendPart(rank, index, files)
		if merr != nil {
			merr = fmt.Errorf("%w; %w", err, merr)
		}
		s.did(index, string(policy.Local), fmt.Sprintf("rank %d's file on host %s", rank, s.host), from, merr)
	}
}

// mainName returns the name of a rank's file in a checkpoint.
func mainName(rank int) string { return fmt.Sprintf("rank-%04d.h5", rank) }

// scrubTier reads what a tier outside of the hosts has of the parts whose first
// rank is here.
func (s *scrubber) scrubTier(t *scrubbedTier) {
	seen := make(map[string]error)
	for _, m := range t.list {
		var list []tier.Object
		err := tier.Repair(s.ctx, t.t, m, tier.RepairOptions{Seen: seen,
			Parts: func(p *tier.PartRef) bool { return s.mine(p.Ranks[0]) },
			Due: func(ctx context.Context, o tier.Object) bool {
				if !s.dueObject(ctx, t, o) {
					return false
				}
				list = append(list, o)
				return true
			},
			Get: func(ctx context.Context, w *tier.Wanted) (*os.File, string, error) { return s.find(wantedObject(w, t)) },
			Done: func(w *tier.Wanted, from string, err error) {
				if err != nil {
					err = fmt.Errorf("%w; %w", w.Err, err)
				}
				s.did(m.Index, t.Name(), fmt.Sprintf("%s (%s)", w, w.Name), from, err)
			}})
		for _, o := range list {
			if why, was := seen[o.Key()]; was && why == nil {
				s.sound(objectKey(t, o), o.Size)
			}
		}
		if errors.Is(err, tier.ErrDamaged) || errors.Is(err, tier.ErrNotExist) {
			s.did(m.Index, t.Name(), "its list of objects", "", fmt.Errorf("%w; 'cairn repair' may make a new one", err))
		}
		if s.ctx.Err() != nil {
			return
		}
	}
}

func objectKey(t *scrubbedTier, o tier.Object) string { return string(t.Kind) + "/" + o.Key() }

// dueObject reports whether an object of a tier is to be read again. A missing
// object is. An object never changes, so the tier is asked for its age once.
func (s *scrubber) dueObject(ctx context.Context, t *scrubbedTier, o tier.Object) bool {
	key := objectKey(t, o)
	if _, known := s.read[key]; !known {
		info, err := t.t.Stat(ctx, o.Name)
		if err != nil {
			return errors.Is(err, tier.ErrNotExist)
		}
		s.read[key] = info.Modified
	}
	return s.due(key, time.Time{})
}

// hostsText names hosts in a message.
func hostsText(names []string) string {
	if len(names) == 1 {
		return "host " + names[0]
	}
	return "hosts " + strings.Join(names, ", ")
}
