//go:build linux

package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/policy"
)

// Tiers besides the hosts' own disks. After a commit the supervisor tells
// helpers to upload the files of their ranks (Keep). When all have (Stored), it
// writes the manifest, and removes checkpoints that the tier does not keep any
// more. (Tiers on hosts have no manifests.) All of that is in the background: a
// tier that fails or hangs delays nothing but itself.

// storageTier is such a tier. Only the goroutine of Run uses it.
type storageTier struct {
	policy.Tier
	open    func(ctx context.Context, used bool) (tier.Tier, error) // of a tier outside of the hosts
	state   control.TierState
	asked   uint64      // the newest checkpoint that helpers were told to upload
	upload  *tierUpload // nil: none is under way
	jobs    []tierJob   // the first one is at work
	causes  causes      // of its failures
	ended   bool        // it has the end of the run
	unended error       // … or why it will not get that
	owned   atomic.Bool // its place belongs to this run, see claimPlace

	writing []*host // that may write to it now, at most Writers
	queue   []*host // that want to, the first one next

	groups [][]string             // of a tier on hosts: who holds for each other
	alone  bool                   // of a tier on hosts: there is one host, and nobody holds for it
	kept   []control.Checkpointed // of a tier on hosts: what it has
}

// tierUpload is a checkpoint on its way to a tier.
type tierUpload struct {
	index   uint64
	attempt string
	since   time.Time
	waiting []*host // that have not said Stored
	parts   []tier.Uploaded
}

// tierJob is something to do with a tier, and what follows from its outcome.
type tierJob struct {
	do   func(context.Context, tier.Tier) error
	then func(error)
}

// kind returns what control messages call the tier.
func (t *storageTier) kind() string { return string(t.Kind) }

// String returns the tier as users write it.
func (t *storageTier) String() string { return t.Name() }

// parseTiers reads Options.Tiers. It sets Options.Local. Without Options.Tiers,
// several hosts with Options.Local are partners. (Those that a launcher chooses
// are not known yet, and may have one name.)
func (s *Supervisor) parseTiers() error {
	o := &s.o
	if o.Tiers == "" {
		if o.Local == "" || s.launcher != nil || len(s.hosts) < 2 {
			return nil
		}
		dir, err := filepath.Abs(o.Local)
		s.policy, s.usualTiers = usualPolicy(dir), true
		return err
	}
	p, err := policy.Parse(o.Tiers)
	if err != nil {
		return optionError("--%v", err)
	}
	l := p.Of(policy.Local)
	switch {
	case l == nil && o.Local == "":
		return optionError("--tiers names no directory of each host: add local=DIR")
	case l == nil:
		home := policy.Defaults(policy.Local)
		home.Place = o.Local
		p.Tiers = slices.Insert(p.Tiers, 0, home)
	case o.Local != "" && o.Local != l.Place:
		return optionError("--local and the local tier of --tiers are different directories: name it once")
	default:
		o.Local = l.Place
	}
	if err := checkLocal(p); err != nil {
		return err
	}
	s.policy = p
	return s.readDomains()
}

// usualPolicy is the policy of a run on several hosts for which nobody has
// named tiers.
func usualPolicy(dir string) *policy.Policy {
	home := policy.Defaults(policy.Local)
	home.Place = dir
	return &policy.Policy{Tiers: []policy.Tier{home, policy.Defaults(policy.Partner)}, Scrub: policy.DefaultScrub}
}

// checkLocal refuses options of a policy that have no meaning for the hosts'
// own checkpoints.
func checkLocal(p *policy.Policy) error {
	t, usual := p.Of(policy.Local), policy.Defaults(policy.Local)
	if t.Every != usual.Every || t.Keep != usual.Keep {
		return optionError("--tiers: local takes every checkpoint; the program says how many it keeps (Options.Keep)")
	}
	return nil
}

// openTiers makes the tiers of the policy. It does not touch them.
func (s *Supervisor) openTiers() {
	if usual := usualPolicy(s.o.Local); s.policy == nil && !s.intent.New && s.rec.Policy == usual.String() && s.launcher == nil {
		s.policy, s.usualTiers = usual, true // this command names only one of its hosts, which may have copies
	}
	if s.policy == nil {
		if s.rec.Policy != "" && !s.intent.New {
			s.intent.Note = strings.TrimPrefix(s.intent.Note+"; this run had --tiers '"+s.rec.Policy+"' before, and these tiers are not used now", "; ")
		}
		s.rec.Policy, s.rec.Tiers, s.rec.Scrub = "", nil, nil
		return
	}
	if s.intent.New {
		s.rec.Scrub = nil
	}
	s.rec.Policy = s.policy.String()
	s.rec.Name = cmp.Or(s.rec.Name, local.Name(s.o.Run))
	was := s.rec.Tiers
	s.rec.Tiers = nil
	for _, p := range s.policy.Tiers {
		if p.Kind == policy.Local {
			continue
		}
		t := &storageTier{Tier: p, open: helper.Opener(&p, s.rec.Name, s.o.access())}
		t.state.Tier = t.String()
		if i := slices.IndexFunc(was, func(x control.TierState) bool { return x.Tier == t.state.Tier }); i >= 0 && !s.intent.New {
			t.state.Index, t.state.Time = was[i].Index, was[i].Time
		}
		t.asked = t.state.Index
		s.tiers = append(s.tiers, t)
	}
}

// storeEnv returns the variables by which object stores are reached.
func storeEnv(p *policy.Policy) (out []string) {
	if p == nil || p.Of(policy.S3) == nil {
		return nil
	}
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "AWS_") {
			out = append(out, v)
		}
	}
	return out
}

// do does something with a tier in the background, after what was asked before.
func (s *Supervisor) do(t *storageTier, do func(context.Context, tier.Tier) error, then func(error)) {
	if t.jobs = append(t.jobs, tierJob{do, then}); len(t.jobs) == 1 {
		s.nextJob(t)
	}
}

// nextJob begins the first job of a tier.
func (s *Supervisor) nextJob(t *storageTier) {
	j := t.jobs[0]
	used := slices.Contains(s.rec.UsedTiers, t.String())
	go func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-s.over:
				cancel()
			case <-ctx.Done():
			}
		}()
		x, err := t.open(ctx, used)
		opened := err == nil
		if opened {
			err = j.do(ctx, x)
		}
		s.post(func() {
			if opened && !slices.Contains(s.rec.UsedTiers, t.String()) {
				s.rec.UsedTiers = append(s.rec.UsedTiers, t.String())
				s.save()
			}
			j.then(err) // it may add jobs
			if t.jobs = t.jobs[1:]; len(t.jobs) > 0 {
				s.nextJob(t)
			}
		})
	}()
}

// uploadTime is how long an upload may take before it counts as a failure.
const uploadTime = time.Hour

// uploadCheckpoint brings a committed checkpoint to the tiers that it is due
// for. Before a run stops, its last checkpoint is due for all.
func (s *Supervisor) uploadCheckpoint(index uint64) {
	for _, t := range s.tiers {
		if u := t.upload; u != nil && t.state.Failing == nil && time.Since(u.since) > uploadTime {
			s.tierFails(t, fmt.Errorf("%s has been on its way since %s", tier.Title(u.index), u.since.Format(time.DateTime)))
			t.writing = nil // they hang; others may try
			t.nextTurn()
		}
		if t.upload != nil && t.state.Failing == nil && !s.stopping { // it is not to be given up because the next one is due
			continue
		}
		if t.asked == 0 || index >= t.asked+uint64(t.Every) || s.stopping {
			s.uploadTo(t, index)
		}
	}
}

// uploadTo tells helpers to upload a checkpoint. One helper per directory does.
func (s *Supervisor) uploadTo(t *storageTier, index uint64) {
	if t.alone {
		if !s.usualTiers { // the hosts may be one, under several names
			s.tierFails(t, errors.New("there is no other host"))
		}
		return
	}
	u := &tierUpload{index: index, attempt: s.local.attemptID, since: time.Now()}
	ranks := make(map[*host][]int)
	for r, dir := range s.local.at {
		h := s.helperFor(dir)
		if h == nil { // the host is lost, and the attempt fails
			return
		}
		if ranks[h] == nil {
			u.waiting = append(u.waiting, h)
		}
		ranks[h] = append(ranks[h], r)
	}
	t.asked, t.upload = index, u
	if index != tier.EndIndex {
		t.state.Uploading = index
	}
	for _, h := range u.waiting {
		h.queue.Send(&control.Keep{Tier: t.kind(), Index: index, Ranks: ranks[h], All: s.n, Turns: !t.Kind.OnHosts() && len(u.waiting) > t.Writers})
	}
	s.changed()
}

// turn takes what a helper says about its turn to write to a tier. All helpers
// have linked the files of a checkpoint when they ask, so a turn may come late.
func (s *Supervisor) turn(h *host, m *control.Turn) {
	for _, t := range s.tiers {
		if t.kind() != m.Tier {
			continue
		}
		t.endTurn(h)
		if !m.Over {
			t.queue = append(t.queue, h)
		}
		t.nextTurn()
	}
}

// endTurns ends the turns of a host that is lost.
func (s *Supervisor) endTurns(h *host) {
	for _, t := range s.tiers {
		t.endTurn(h)
		t.nextTurn()
	}
}

func (t *storageTier) endTurn(h *host) {
	is := func(x *host) bool { return x == h }
	t.writing, t.queue = slices.DeleteFunc(t.writing, is), slices.DeleteFunc(t.queue, is)
}

// nextTurn lets as many hosts write as may.
func (t *storageTier) nextTurn() {
	for len(t.queue) > 0 && len(t.writing) < t.Writers {
		h := t.queue[0]
		t.queue, t.writing = t.queue[1:], append(t.writing, h)
		h.queue.Send(&control.Turn{Tier: t.kind()})
	}
}

// stored takes what a helper says about its share of an upload.
func (s *Supervisor) stored(h *host, m *control.Stored) {
	i := slices.IndexFunc(s.tiers, func(t *storageTier) bool { return t.kind() == m.Tier })
	if i < 0 {
		return
	}
	t := s.tiers[i]
	if m.Index == 0 {
		s.tierFails(t, fmt.Errorf("%s: %s", h.title(), m.Error))
		return
	}
	u := t.upload
	if u == nil || u.index != m.Index || !slices.Contains(u.waiting, h) {
		return
	}
	var up tier.Uploaded
	err := errors.New(tier.Readable(m.Error))
	switch {
	case m.Error == "" && t.Kind.OnHosts():
		err = nil
	case m.Error == "":
		err = json.Unmarshal(m.Part, &up)
	}
	if err != nil {
		s.tierFails(t, fmt.Errorf("%s from %s: %w", tier.Title(m.Index), h.title(), err))
		if m.Over {
			s.endUpload(t, u)
		}
		return
	}
	u.waiting = slices.DeleteFunc(u.waiting, func(x *host) bool { return x == h })
	u.parts = append(u.parts, up)
	switch {
	case len(u.waiting) > 0:
	case u.index == tier.EndIndex && !t.Kind.OnHosts():
		s.commitEnd(t, u, helper.FirstPause)
	case u.index == tier.EndIndex:
		s.reachedEnd(t, u)
	case t.Kind.OnHosts():
		s.reachedTier(t, u)
	default:
		s.commitTo(t, u, helper.FirstPause)
	}
}

// endUpload gives up an upload. The next checkpoint is due.
func (s *Supervisor) endUpload(t *storageTier, u *tierUpload) {
	if u != nil && t.upload == u {
		t.upload, t.state.Uploading, t.asked = nil, 0, 0
		s.changed()
	}
}

// commitTo writes the manifest of a checkpoint that all hosts have uploaded. If
// that fails, it tries again after a pause, unless a newer one is on its way.
func (s *Supervisor) commitTo(t *storageTier, u *tierUpload, pause time.Duration) {
	if t.upload != u {
		return
	}
	if !s.rec.Started.Counts(u.index, u.parts[0].Attempt) { // the run went back to an older one meanwhile
		s.endUpload(t, u)
		return
	}
	line := new(control.AttemptRecord)
	*line = *s.rec.Started
	claim := s.claimPlace(t)
	s.do(t, func(ctx context.Context, x tier.Tier) error {
		if err := claim(ctx, x); err != nil {
			return err
		}
		if _, err := createAttempt(ctx, x, line); err != nil { // it may not have been there when the run was started
			return err
		}
		_, err := tier.Commit(ctx, x, u.parts)
		return err
	}, func(err error) {
		switch {
		case errors.Is(err, errSuperseded) || errors.Is(err, tier.ErrExists):
			s.superseded(t, err)
		case errors.Is(err, tier.ErrAbandoned):
			s.tierFails(t, err)
			s.endUpload(t, u)
		case err != nil:
			s.tierFails(t, err)
			time.AfterFunc(pause, func() {
				s.post(func() { s.commitTo(t, u, min(2*pause, helper.LastPause)) })
			})
		default:
			s.reachedTier(t, u)
		}
	})
}

// reachedTier records that a tier has a checkpoint, and removes older ones.
func (s *Supervisor) reachedTier(t *storageTier, u *tierUpload) {
	if f := t.state.Failing; f != nil {
		s.reportTier(t, 0, "%s works again, after %s", t, control.Count(f.Count, "failure"))
	}
	t.state.Index, t.state.Time, t.state.Failing = u.index, time.Now(), nil
	if t.upload == u {
		t.upload, t.state.Uploading = nil, 0
	}
	s.reportTier(t, u.index, "checkpoint %d is on %s", u.index, t)
	s.secureOutput(u.index, true)
	s.saveTiers()
	if t.Kind.OnHosts() {
		t.kept = append(t.kept, control.Checkpointed{Index: u.index, Attempt: u.attempt})
		s.retain()
		return
	}
	if t.Keep == policy.KeepAll {
		return
	}
	line, keep := s.rec.Started, t.Keep
	s.do(t, func(ctx context.Context, x tier.Tier) error {
		return collectTier(ctx, x, line, keep)
	}, func(err error) {
		if err != nil {
			s.say("%v; the next collection tries again", err)
		}
	})
}

// collectTier removes all checkpoints but the newest that count.
func collectTier(ctx context.Context, x tier.Tier, line *control.AttemptRecord, keep int) error {
	list, err := tier.Checkpoints(ctx, x, line.Run)
	if err != nil {
		return err
	}
	var retain []uint64
	for _, m := range list {
		if len(retain) < keep && line.Counts(m.Index, m.Attempt) {
			retain = append(retain, m.Index)
		}
	}
	if len(retain) == 0 {
		return nil
	}
	_, err = tier.Collect(ctx, x, line.Run, tier.CollectOptions{Retain: retain})
	return err
}

// tierFails records a failure of a tier. It says so once for each cause, until
// the tier works again.
func (s *Supervisor) tierFails(t *storageTier, err error) {
	f := t.state.Failing
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	often := ""
	if f == nil {
		f = &control.Unsaved{Since: time.Now()}
		t.causes = make(causes)
	} else {
		often = fmt.Sprintf(", after %s since %s", control.Count(f.Count, "failure"), f.Since.Format(time.DateTime))
	}
	t.state.Failing = &control.Unsaved{Since: f.Since, Count: f.Count + 1, Why: text}
	if t.causes.isNew(text, time.Now()) {
		s.reportTier(t, 0, "%s fails: %s; it is tried again%s", t, text, often)
	}
	s.saveTiers()
}

// saveTiers records the states of tiers.
func (s *Supervisor) saveTiers() {
	s.rec.Tiers = s.tierStates()
	s.save()
	s.changed()
}

// tierStates returns copies of the tiers' states.
func (s *Supervisor) tierStates() (out []control.TierState) {
	for _, t := range s.tiers {
		out = append(out, t.state)
	}
	return out
}

// endTiers waits until tiers have the last checkpoint of a run that stops, as
// long as there is time.
func (s *Supervisor) endTiers(ctx context.Context) {
	busy := func() bool { return slices.ContainsFunc(s.tiers, func(t *storageTier) bool { return t.upload != nil }) }
	if !s.stopping || s.killed || !busy() {
		return
	}
	left := max(0, s.stopGrace-time.Since(s.stopAt))
	s.say("waiting for tiers to get the last checkpoint, at most %s", control.TimeText(left.Round(time.Millisecond)))
	s.until(ctx, func() bool { return s.killed || s.proxied.hasty || !busy() }, time.After(left))
	for _, t := range s.tiers {
		if t.upload != nil {
			s.say("%s does not have checkpoint %d", t, t.upload.index)
			s.endUpload(t, t.upload)
		}
	}
}

const (
	emptyTime    = time.Minute     // how long the end of a run waits for a tier to be emptied
	emptyingTime = 3 * time.Second // … before it says so
)

// emptyTiers removes the checkpoints of a finished run from those of its tiers
// that have its end.
func (s *Supervisor) emptyTiers() {
	var left []string
	stopping := s.stopping
	for _, t := range s.tiers {
		if t.upload, t.state.Uploading = nil, 0; t.Kind.OnHosts() && t.ended { // they are empty
			t.state = control.TierState{Tier: t.state.Tier}
		}
	}
	for _, t := range s.outer() {
		var pins []tier.Pin
		if !t.ended { // keepEnd has said so
			continue
		}
		left = append(left, t.String())
		line := s.started()
		s.do(t, func(ctx context.Context, x tier.Tier) (err error) {
			if _, err := checkAttempts(ctx, x, line); err != nil { // it may have gone back to a checkpoint
				return err
			}
			pins, err = tier.RemoveRest(ctx, x, line.Run)
			return errors.Join(err, disown(ctx, x, line.Run)) // its end counts until another run has the place
		}, func(err error) {
			left = slices.DeleteFunc(left, func(name string) bool { return name == t.String() })
			if err != nil {
				s.say("the checkpoints of the finished run stay on %s: %v", t, err)
				return
			}
			for _, p := range pins {
				s.say("checkpoint %d stays on %s, pinned as %s", p.Index, t, p.Name)
			}
			t.state = control.TierState{Tier: t.state.Tier}
		})
	}
	// An earlier stop has let the end be stored; a new one ends the wait.
	done := func() bool { return len(left) == 0 || s.stopping && !stopping }
	if s.until(context.Background(), done, time.After(emptyingTime)); !done() {
		s.say("the checkpoints of the finished run are being removed from %s; this takes at most %s more", strings.Join(left, ", "), control.TimeText(emptyTime-emptyingTime))
		s.until(context.Background(), done, time.After(emptyTime-emptyingTime))
	}
	if len(left) > 0 {
		s.say("the checkpoints of the finished run could not all be removed from %s, and stay there until the next run at that place", strings.Join(left, ", "))
	}
	s.rec.Tiers, s.rec.Scrub = s.tierStates(), nil
}

// removeReplaced removes earlier runs from the tiers that this one replaces.
func (s *Supervisor) removeReplaced() {
	old := slices.DeleteFunc(slices.Clone(s.rec.Replaces), func(id string) bool { return id == control.AnyRun || id == s.rec.ID })
	if len(old) == 0 {
		return
	}
	for _, t := range s.outer() {
		s.do(t, func(ctx context.Context, x tier.Tier) error {
			there, err := tier.Runs(ctx, x)
			for _, id := range there {
				if err == nil && slices.Contains(old, id) {
					_, err = endOnTier(ctx, x, id)
				}
			}
			return err
		}, func(err error) {
			if err != nil {
				s.say("an earlier run could not be removed from %s: %v", t, err)
			}
		})
	}
}
