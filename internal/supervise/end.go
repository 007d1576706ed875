//go:build linux

package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/supervise/scheduler"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// The end of a run on its tiers. When the ranks have finished, and the run
// directory says so, each tier gets the ranks' last packs, with their output
// and the program's files, and then what says that the run has finished:
//
//	shared, s3     a manifest with tier.EndIndex
//	partner, rs    AttemptRecord.End, on every host
//
// Only then are the checkpoints removed there. Where the run directory is lost,
// the same command finds the end, puts the files back, and computes nothing.

// errNotKept says why a tier does not get the end of the run.
var errNotKept = errors.New("the host that has a rank's files is not there")

// endText says how a run has finished.
func endText(e *control.RunEnd) string {
	with := ""
	if e.Status != 0 {
		with = fmt.Sprintf(" with status %d", e.Status)
	}
	return fmt.Sprintf("has finished%s, at %s", with, e.Time.Format(time.DateTime))
}

// keepEnd brings the end of the run to its tiers. If it is stopped meanwhile,
// it returns an error: the next start continues. A tier that fails does not get
// the end, and keeps its checkpoints.
func (s *Supervisor) keepEnd(ctx context.Context) error {
	if s.local == nil || len(s.tiers) == 0 || s.rec.Started == nil {
		return nil
	}
	job := s.rec.Job
	end := &control.RunEnd{Status: s.rec.Status, Discard: s.rec.Discard, Time: time.Now().Round(0), Job: job.Name, Restart: job.Restart, Command: s.endCommand()}
	if s.rec.Started.End != nil {
		end = s.rec.Started.End
	}
	s.runEnd = end
	for _, t := range s.tiers {
		t.ended, t.unended = false, nil
		s.endUpload(t, t.upload)
		switch {
		case !t.Kind.OnHosts():
			s.lookForEnd(t, helper.FirstPause)
		case t.alone || s.rec.Started.End != nil: // nobody holds for others, or all have it
			t.ended = true
		default:
			s.uploadEnd(t)
		}
	}
	began := time.Now()
	wait := func(t *storageTier) bool {
		if u := t.upload; u != nil && slices.ContainsFunc(u.waiting, func(h *host) bool { return h.state != hostUp }) {
			s.endUpload(t, u)
			t.unended = errNotKept
		}
		fails := t.state.Failing != nil || t.Kind.OnHosts() && s.lacksHolder()
		return !t.ended && t.unended == nil && (!fails || time.Since(began) < endTime)
	}
	s.keeping = true
	defer func() { s.keeping = false }()
	late := time.AfterFunc(endTime, func() { s.post(func() {}) })
	defer late.Stop()
	stopped := func() bool { return s.killed || s.stopping && time.Since(s.stopAt) >= s.stopGrace }
	if s.stopping {
		soon := time.AfterFunc(max(0, s.stopGrace-time.Since(s.stopAt)), func() { s.post(func() {}) })
		defer soon.Stop()
	}
	s.until(ctx, func() bool { return stopped() || s.overtaken() != nil || !slices.ContainsFunc(s.tiers, wait) }, time.After(uploadTime))
	step.At("end.uploaded")
	if err := s.overtaken(); err != nil {
		return err
	}
	if stopped() && slices.ContainsFunc(s.tiers, wait) {
		return errors.New("the run was stopped before all tiers had it")
	}
	s.endOnHosts(ctx, end)
	for _, t := range s.tiers {
		if t.ended {
			continue
		}
		s.endUpload(t, t.upload)
		if t.unended == nil {
			t.unended = errors.New("it does not answer")
			if f := t.state.Failing; f != nil {
				t.unended = errors.New(f.Why)
			}
		}
		then := "its checkpoints stay there, and without this run directory the same command resumes from them"
		if s.rec.Brought {
			then = "if it has checkpoints, they stay there, and --from with that place resumes from them"
		}
		s.say("WARNING: %s does not say that the run has finished: %v; %s", t, t.unended, then)
	}
	step.At("end.kept")
	return nil
}

// overtaken returns why the end of this start does not count: another start of
// the run is recorded on a tier.
func (s *Supervisor) overtaken() error {
	for _, t := range s.tiers {
		if errors.Is(t.unended, errSuperseded) || errors.Is(t.unended, tier.ErrExists) {
			return fmt.Errorf("%w: %w", errSuperseded, t.unended)
		}
	}
	return nil
}

// endCommand returns the command as the end of a run names it.
func (s *Supervisor) endCommand() []string {
	if s.o.Proxy != nil { // the program is started by its user
		return nil
	}
	return append([]string{filepath.Base(s.o.Command[0])}, s.o.Command[1:]...)
}

// checkEndCommand refuses to bring back the end of a run that another command
// has started.
func (s *Supervisor) checkEndCommand(e *control.RunEnd, where string) error {
	own := s.endCommand()
	if len(e.Command) == 0 || len(own) == 0 || slices.Equal(e.Command, own) {
		return nil
	}
	return fmt.Errorf("the run on %s %s, and was started as %s: give that command for its files and its output, or begin a new run with --fresh or at another place", where, endText(e), control.ShellCommand(e.Command))
}

// endTime is how long the end of a run waits for a tier that fails.
const endTime = 30 * time.Second

// endAgain does something again with a tier that has failed, after a pause,
// while the end of the run waits for it.
func (s *Supervisor) endAgain(t *storageTier, err error, pause time.Duration, do func(next time.Duration)) {
	if errors.Is(err, errSuperseded) || errors.Is(err, tier.ErrExists) {
		t.unended = err
		return
	}
	s.tierFails(t, err)
	time.AfterFunc(pause, func() {
		s.post(func() {
			if s.keeping && !t.ended && t.unended == nil {
				do(min(2*pause, helper.LastPause))
			}
		})
	})
}

// lookForEnd brings the end of the run to a tier outside of the hosts, unless
// it is there. If that fails, it tries again after a pause.
func (s *Supervisor) lookForEnd(t *storageTier, pause time.Duration) {
	line := s.started()
	attempt, there := lastAttempt(line), false
	claim := s.claimPlace(t)
	s.do(t, func(ctx context.Context, x tier.Tier) error {
		err := claim(ctx, x)
		if err == nil {
			_, err = createAttempt(ctx, x, line)
		}
		if err == nil { // no rank of it runs any more
			err = tellQuiet(ctx, x, line)
		}
		var m *tier.Manifest
		if err == nil {
			m, err = tier.ReadEnd(ctx, x, line.Run)
		}
		if there = err == nil && m != nil && m.Attempt == attempt; err == nil && m != nil && !there { // the run went back to a checkpoint
			err = tier.RemoveEnd(ctx, x, line.Run)
		}
		return err
	}, func(err error) {
		switch {
		case err != nil:
			s.endAgain(t, err, pause, func(next time.Duration) { s.lookForEnd(t, next) })
		case there:
			t.ended = true
		case s.rec.Brought:
			t.unended = errors.New("this start has only brought the end from where it is")
		default:
			s.uploadEnd(t)
		}
	})
}

// started returns the record of this start, as tiers outside of the hosts have
// it.
func (s *Supervisor) started() *control.AttemptRecord {
	line := new(control.AttemptRecord)
	*line = *s.rec.Started
	line.End = nil
	return line
}

// lastAttempt returns the attempt of the newest start.
func lastAttempt(a *control.AttemptRecord) string { return a.Line[len(a.Line)-1].Attempt }

// uploadEnd tells helpers to upload the last packs of their ranks to a tier.
func (s *Supervisor) uploadEnd(t *storageTier) {
	t.state.Failing = nil
	if s.uploadTo(t, tier.EndIndex); t.upload == nil && !t.alone {
		t.unended = errNotKept
	}
}

// commitEnd says on a tier outside of the hosts that the run has finished. If
// that fails, it tries again after a pause. Another supervisor may start the
// run at the same time: it records its start and then looks for the end, and
// this one writes the end and then looks for a start, so one sees the other.
func (s *Supervisor) commitEnd(t *storageTier, u *tierUpload, pause time.Duration) {
	end, line := tier.End(*s.runEnd), s.started()
	s.do(t, func(ctx context.Context, x tier.Tier) error {
		step.At("end.commit")
		if _, err := createAttempt(ctx, x, line); err != nil {
			return err
		}
		err := tier.CommitEnd(ctx, x, u.parts, end)
		if err == nil {
			step.At("end.committed")
			if _, err = checkAttempts(ctx, x, line); errors.Is(err, errSuperseded) {
				err = errors.Join(err, tier.RemoveEnd(ctx, x, line.Run))
			}
		}
		return err
	}, func(err error) {
		if err != nil {
			s.endAgain(t, err, pause, func(next time.Duration) { s.commitEnd(t, u, next) })
			return
		}
		s.reachedEnd(t, u)
	})
}

// reachedEnd records that a tier has the end of the run.
func (s *Supervisor) reachedEnd(t *storageTier, u *tierUpload) {
	if t.upload == u {
		t.upload, t.state.Uploading, t.state.Failing = nil, 0, nil
	}
	t.ended = true
	s.reportTier(t, 0, "the end of the run is on %s", t)
}

// endOnHosts tells all hosts that the run has finished, if a tier on them has
// its end.
func (s *Supervisor) endOnHosts(ctx context.Context, end *control.RunEnd) {
	if s.rec.Started.End != nil || !slices.ContainsFunc(s.tiers, func(t *storageTier) bool { return t.Kind.OnHosts() && t.ended }) {
		return
	}
	record := *s.rec.Started
	record.End = end
	var failed []error
	asked := 0
	whole := s.askHosts(ctx, func(h *host) control.Message {
		if h.files == nil || s.helperFor(h.files.ID) != h {
			return nil
		}
		asked++
		return &control.StoreAttempt{AttemptRecord: record}
	}, func(h *host, m control.Message) {
		if x, ok := m.(*control.AttemptStored); ok && x.Error != "" {
			failed = append(failed, fmt.Errorf("%s: %s", h.title(), x.Error))
		}
	})
	if !whole {
		failed = append(failed, errNotKept)
	}
	if asked == 0 || len(failed) > 0 {
		for _, t := range s.tiers {
			if t.Kind.OnHosts() {
				t.ended, t.unended = false, errors.Join(failed...)
			}
		}
		return
	}
	s.rec.Started.End = end
	s.save()
}

// keptOnHosts reports whether a tier on hosts has the end of the run.
func (s *Supervisor) keptOnHosts() bool { return s.rec.Started != nil && s.rec.Started.End != nil }

// keepsCheckpoints reports whether hosts must keep their checkpoints: a tier on
// hosts did not get the end of the run.
func (s *Supervisor) keepsCheckpoints() bool {
	return slices.ContainsFunc(s.tiers, func(t *storageTier) bool { return t.Kind.OnHosts() && !t.ended })
}

// gatherToEnd starts helpers for the end of a run whose supervisor was killed,
// so that tiers get it.
func (s *Supervisor) gatherToEnd(ctx context.Context) {
	if s.local == nil || len(s.tiers) == 0 || s.rec.Started == nil {
		return
	}
	s.tick = time.AfterFunc(helper.PingEvery, func() { s.post(s.look) })
	s.a = newAttempt()
	defer func() { s.a = nil }()
	if !s.gatherHelpers(ctx) {
		if f := s.a.failure; f != nil {
			s.say("%s", f.why)
		}
		return
	}
	s.local.found = s.localFound()
	s.local.attemptID, s.local.at = lastAttempt(s.rec.Started), nil
	for _, home := range s.rec.Started.Homes {
		s.local.at = append(s.local.at, home.Dir)
	}
	s.tellPeers()
}

// finished reports whether the run that this start has found on tiers has
// finished.
func (s *Supervisor) finished() bool {
	return s.local != nil && s.rec.Started != nil && s.rec.Started.End != nil
}

// bringEnd gets the end of a run that has finished, which is its last files and
// its output, from a tier. If it fails, it sets the attempt's failure.
func (s *Supervisor) bringEnd(ctx context.Context) {
	e := s.rec.Started.End
	if err := s.checkEndCommand(e, "the hosts"); err != nil {
		s.notBegun(err.Error())
		s.a.failure.fatal = true
		return
	}
	s.say("the run %s; its files and its output are put back, and nothing is computed", endText(e))
	l := s.local
	l.found = s.localFound()
	var up []string
	for _, h := range s.hosts {
		if h.state == hostUp && h.files != nil && !slices.Contains(up, h.files.ID) {
			up = append(up, h.files.ID)
		}
	}
	l.at, l.attemptID, s.a.ranks = make([]string, s.n), lastAttempt(s.rec.Started), make([]rank, s.n)
	for r := range s.n {
		if l.at[r] = up[0]; r < len(s.rec.Started.Homes) && slices.Contains(up, s.rec.Started.Homes[r].Dir) {
			l.at[r] = s.rec.Started.Homes[r].Dir
		}
		h := s.helperFor(l.at[r])
		s.a.ranks[r] = rank{RankState: control.RankState{Rank: r, Host: h.title(), State: rundir.Finished}, on: h}
	}
	s.tellPeers()
	why := []error{}
	done := func(items []control.FetchItem, err error) bool {
		if err == nil {
			err = s.fetchEnd(ctx, items)
		}
		why = append(why, err)
		return err == nil || s.killed || s.stopping
	}
	ok := len(l.found.ends) > 0 && done(l.found.endItems(l.at, e))
	for _, t := range s.outer() {
		ok = ok || done(s.endItems(ctx, t))
	}
	err := error(nil)
	switch {
	case s.killed || s.stopping:
		return
	case ok:
		err = s.collectOutput(ctx)
	default:
		err = errors.Join(why...)
	}
	if err != nil {
		why := strings.ReplaceAll(err.Error(), "\n", "; ")
		if remedy := roomRemedy(why); remedy != "" {
			s.notBegun(fmt.Sprintf("the run %s, but its files and its output cannot be put back: %s; nothing is lost: %s, and give the same command again", endText(e), why, remedy))
		} else {
			s.notBegun(fmt.Sprintf("the run %s, but its files and its output cannot be fetched: %s; bring back the tier or the host that has them, or begin a new run with --fresh", endText(e), why))
		}
		s.a.failure.fatal = true
		return
	}
	s.a.over, s.a.status = true, e.Status
}

// roomRemedy returns what helps if something could not be written because of
// the disk; "": that was not the cause. Helpers send errors as text.
func roomRemedy(why string) string {
	for _, x := range []struct {
		err    syscall.Errno
		remedy string
	}{{syscall.ENOSPC, "make room there"}, {syscall.EDQUOT, "make room there"}, {syscall.EROFS, "make it writable"}} {
		if strings.Contains(why, x.err.Error()) {
			return x.remedy
		}
	}
	return ""
}

// endItems returns how ranks get their last packs from a tier outside of the
// hosts.
func (s *Supervisor) endItems(ctx context.Context, t *storageTier) (items []control.FetchItem, err error) {
	var m *tier.Manifest
	done := false
	s.do(t, func(ctx context.Context, x tier.Tier) (err error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeLimit)
		defer cancel()
		m, err = tier.ReadEnd(ctx, x, s.rec.ID)
		return err
	}, func(e error) { done, err = true, e })
	s.until(ctx, func() bool { return done || s.killed || s.stopping }, nil)
	if err == nil && (m == nil || m.Attempt != s.local.attemptID) {
		err = fmt.Errorf("%s does not have it", t)
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(m)
	for r := range s.n {
		items = append(items, control.FetchItem{Rank: r, Index: tier.EndIndex, Attempt: m.Attempt, Own: true, Tier: t.kind(), Manifest: text, Host: t.String(), End: s.rec.Started.End})
	}
	return items, err
}

// endItems returns how ranks get their last packs from hosts. at are the
// directories that get them, by rank.
func (p *localInventory) endItems(at []string, e *control.RunEnd) (items []control.FetchItem, err error) {
	only := &localInventory{ranks: p.ranks, record: new(control.AttemptRecord), dirs: make(map[string]*hostDir), damaged: p.damaged, kept: p.ends, rotten: p.rotten}
	*only.record = *p.record
	only.record.Homes = nil
	for id, d := range p.dirs {
		only.dirs[id] = &hostDir{d.host, &control.HostFiles{ID: d.ID, Dir: d.Dir}, d.addresses}
	}
	names := only.names()
	var want recovery.Want
	var stores []string
	for _, id := range at {
		want.Hosts = append(want.Hosts, names[id])
	}
	for _, id := range only.ids() {
		stores = append(stores, names[id])
	}
	want.Only = tier.EndIndex
	plan, err := recovery.MakePlan(only.inventory(), want)
	if err == nil && plan == nil {
		err = errors.New("no host has it")
	}
	if err != nil {
		return nil, errors.New(tier.Readable(err.Error()))
	}
	for r, part := range plan.Parts {
		x := helper.KeptItem{Part: part, Stores: stores}
		for _, f := range plan.Fetches {
			if f.Rank == r {
				x.Fetches = append(x.Fetches, f)
			}
		}
		text, err := json.Marshal(&x)
		if err != nil {
			return nil, err
		}
		items = append(items, control.FetchItem{Rank: r, Index: tier.EndIndex, Attempt: plan.Attempt, Own: true, Kept: text, Host: "other hosts", End: e})
	}
	return items, nil
}

// fetchEnd makes helpers get the last packs of ranks.
func (s *Supervisor) fetchEnd(ctx context.Context, items []control.FetchItem) error {
	var errs []error
	var notes []string
	whole := s.askHosts(ctx, func(h *host) control.Message {
		var mine []control.FetchItem
		for _, x := range items {
			if h.files != nil && s.helperFor(h.files.ID) == h && s.local.at[x.Rank] == h.files.ID {
				mine = append(mine, x)
			}
		}
		if len(mine) == 0 {
			return nil
		}
		return &control.Fetch{Run: s.rec.ID, Ranks: s.n, WorkDir: s.cwd, Items: mine}
	}, func(h *host, m control.Message) {
		if x, ok := m.(*control.Fetched); ok {
			for _, f := range x.Failed {
				errs = append(errs, fmt.Errorf("the last files of rank %d: %s: %s", f.Rank, f.Host, tier.Readable(f.Error)))
			}
			notes = append(notes, x.Notes...)
		}
	})
	if !whole {
		errs = append(errs, errNotKept)
	}
	slices.Sort(notes)
	for _, note := range slices.Compact(notes) {
		s.say("%s", note)
	}
	return errors.Join(errs...)
}

// finishBrought ends a run again whose end was brought from a tier.
func (s *Supervisor) finishBrought(ctx context.Context) (Result, error) {
	e := s.rec.Started.End
	s.rec.Brought, s.rec.Found = true, nil
	s.happens(finishEvent)
	err := rundir.SyncOutput(s.o.RankOutput)
	if err == nil {
		err = s.recordFinishing(e.Status, e.Discard)
	}
	if err == nil {
		step.At("finish.recorded")
		err = s.sink.ShowRest()
	}
	if err != nil {
		return s.incomplete(err), nil
	}
	return s.keepAndComplete(ctx)
}

// beginsAnew reports whether a finished run belongs to another job of the
// scheduler. Then this job begins a new run.
func (s *Supervisor) beginsAnew(e *tier.End) bool {
	job := s.scheduler.Job
	return s.o.From == "" && job.Name != "" && !job.Repeats(scheduler.Job{Name: e.Job, Restart: e.Restart})
}

// readEnd returns the manifest that says that a run on a tier has finished;
// nil: it has not.
func readEnd(ctx context.Context, x tier.Tier, a *control.AttemptRecord) (*tier.Manifest, error) {
	m, err := tier.ReadEnd(ctx, x, a.Run)
	if err != nil || m == nil || !a.Counts(m.Index, m.Attempt) {
		return nil, err
	}
	return m, nil
}

// foundEnd records that the run of this run directory is a finished one that a
// tier has, unless this job begins a new run.
func (s *Supervisor) foundEnd(f *foundRun) error {
	e := control.RunEnd(*f.end.End)
	if s.beginsAnew(f.end.End) {
		s.rec.Replaces = append(s.rec.Replaces, f.record.Run)
		s.intent.Note = strings.TrimPrefix(s.intent.Note+fmt.Sprintf("; the run on %s %s, in %s; this is another job, and a new run begins", f.tier, endText(&e), cmp.Or(e.Job, "no job")), "; ")
		return nil
	}
	if err := s.checkEndCommand(&e, f.tier); err != nil {
		return err
	}
	s.rec.ID, s.rec.Started, s.rec.Quiet, s.rec.Attempt = f.record.Run, f.record, true, 1
	s.rec.Started.End = &e
	s.found(f)
	s.intent.Note = strings.TrimPrefix(s.intent.Note+"; "+s.isNew()+", and the run is on "+f.tier, "; ")
	return nil
}
