package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
)

// A checkpoint directory per host.
//
// With Options.PerHost, hosts do not share the checkpoint directory: each has
// the files of the ranks that run there. No rank sees what the others have.
//
//	one directory for all            one per host
//	rank 0 records the line          every rank does
//	rank 0 records the run's ID,     one rank of each host does: it leads
//	and the end of the run
//	what is missing is missing for   one host's disk may be blank or old, and the
//	all ranks                        others intact: ranks compare, and refuse
//
// A supervisor looks into the directories of all hosts before it starts ranks,
// and brings files to the hosts that need them. It decides which checkpoint all
// ranks restore (Welcome.Only), and ranks restore no other.

// hostDir is what a rank tells the others about its directory.
type hostDir struct {
	Host  string
	Dir   string
	Error string     `json:",omitempty"` // why it cannot be read
	End   *store.End `json:",omitempty"`
	Line  uint64     // the recovery line that is recorded there; 0: none
	Have  []uint64   // the checkpoints that the rank has there, newest first
	Known bool       // it has the run's ID
}

// together reports whether ranks with different directories must agree about
// them. A destination joins ranks that have agreed already.
func (p *Run) together() bool { return p.opts.PerHost && p.identity.Size > 1 && !p.isDestination() }

// told reports whether a supervisor says which checkpoint is restored.
func (p *Run) told() bool { return p.identity.PerHost }

// onlyTold returns the checkpoint that the supervisor names, if this rank has
// it. Newer ones do not count any more, and are removed.
func (p *Run) onlyTold(indices []uint64) ([]uint64, error) {
	if d := p.opts.Driver; !p.told() || d != nil && d.Running {
		return indices, nil
	}
	only := p.identity.Only
	for _, n := range indices {
		if n > only {
			p.damaged[n] = true
		}
	}
	switch {
	case only == 0:
		return nil, nil
	case slices.Contains(indices, only):
		return []uint64{only}, nil
	}
	return nil, fmt.Errorf("%w: rank %d has no file of checkpoint %d in %s on this host", ErrCorrupt, p.identity.Rank, only, p.dir.Path())
}

// tellDamaged tells the supervisor that this rank's file cannot be loaded. It
// looks for another copy, or an older checkpoint.
func (p *Run) tellDamaged(index uint64, err error) {
	if p.told() {
		p.identity.supervisor.send(&control.Damaged{Index: index, Error: errorText(err)})
	}
}

// readHostDir looks into this rank's directory.
func (p *Run) readHostDir() hostDir {
	d := hostDir{Host: p.identity.Host, Dir: p.dir.Path()}
	var errs [4]error
	d.Have, errs[0] = p.dir.Committed()
	var line store.Line
	if line, errs[1] = p.dir.Line(); errors.Is(errs[1], store.ErrLine) && len(d.Have) > 0 { // an older line does no harm
		line, errs[1] = store.Line{Index: d.Have[0]}, nil
	}
	d.Line = line.Index
	id, err := p.dir.ID()
	if d.Known = id != ""; errors.Is(err, store.ErrDamaged) {
		d.Known, err = true, nil
	}
	errs[2] = err
	d.End, errs[3] = p.dir.End()
	if err := errors.Join(errs[:]...); err != nil {
		d.Error = err.Error()
	}
	return d
}

// agreeOnDirectories compares the directories of all ranks. Call it before
// anything in the directories is changed. All ranks come to the same result.
func (p *Run) agreeOnDirectories(ctx context.Context) error {
	mine, err := json.Marshal(p.readHostDir())
	if err != nil {
		return err
	}
	texts, err := p.identity.exchange(ctx, mine)
	if err != nil {
		return fmt.Errorf("the ranks cannot compare their checkpoint directories: %w", err)
	}
	all := make([]hostDir, len(texts))
	for r, text := range texts {
		if err := json.Unmarshal(text, &all[r]); err != nil {
			return fmt.Errorf("what rank %d says about its checkpoint directory: %w", r, err)
		}
	}
	me := p.identity.Rank
	p.leads = me == slices.IndexFunc(all, func(d hostDir) bool { return d.Host == all[me].Host })
	if p.opts.Fresh {
		return p.discard()
	}
	var end *store.End
	for r, d := range all {
		if d.Error != "" {
			return fmt.Errorf("%s: %s", place(all, r), d.Error)
		}
		if d.End != nil && (end == nil || d.End.State == store.Finished) {
			end = d.End
		}
	}
	if err := p.checkEnd(end, nil); err != nil || end != nil {
		return err
	}
	if p.told() {
		return nil
	}
	return p.Refuse(compareDirectories(all, p.identity.Expect, p.startOver()))
}

// place names the directory of a rank.
func place(all []hostDir, r int) string {
	host, _, _ := strings.Cut(all[r].Host, " ")
	return fmt.Sprintf("the checkpoint directory of rank %d on %s, %s", r, host, all[r].Dir)
}

// startOver says how the user discards a run.
func (p *Run) startOver() string {
	if p.identity.supervisor != nil {
		return "--fresh"
	}
	return EnvFresh + "=1"
}

// compareDirectories returns an error if a rank's directory is blank, or an
// older copy, and others show that the run has a checkpoint. expect is a
// checkpoint that a supervisor knows of, or 0.
//
// All ranks record the line after all have committed the checkpoint. If a rank
// has neither the newest line nor the file of that checkpoint, its directory is
// not the one that it had then. A rank that has the line has only lost a file:
// the ranks may be able to load an older checkpoint.
func compareDirectories(all []hostDir, expect uint64, startOver string) error {
	line, witness, saved := expect, -1, -1
	for r, d := range all {
		if d.Line > 0 && d.Line >= line {
			line, witness = d.Line, r
		}
		if len(d.Have) > 0 && saved < 0 {
			saved = r
		}
	}
	remedy := fmt.Sprintf("bring that directory back (is its file system mounted?), or start over with %s", startOver)
	for r, d := range all {
		what := "is an older copy"
		if !d.Known && len(d.Have) == 0 {
			what = "is blank"
		}
		switch {
		case line > d.Line && !slices.Contains(d.Have, line):
			known := "the supervisor knows"
			if witness >= 0 {
				known = fmt.Sprintf("that of rank %d says", witness)
			}
			return fileMismatch(fmt.Sprintf("%s, %s: %s that checkpoint %d was complete, and this one does not have it: %s", place(all, r), what, known, line, remedy))
		case !d.Known && len(d.Have) == 0 && saved >= 0:
			return fileMismatch(fmt.Sprintf("%s, %s: that of rank %d has checkpoints of this run: %s", place(all, r), what, saved, remedy))
		}
	}
	return nil
}
