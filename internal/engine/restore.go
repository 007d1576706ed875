package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/step"
)

// Restore loads the newest intact checkpoint; see cairn.Run.Restore.
func (p *Run) Restore(ctx context.Context) (bool, error) {
	if p.protectErr != nil {
		return false, p.protectErr
	}
	if p.phase != phaseOpen {
		return false, errors.New("cairn: Restore is called once, on an open run")
	}
	p.phase = phaseRestoring
	if p.identity.Size > 1 {
		p.peers.engine.EndRecord()
	}
	if p.isDestination() {
		p.shapes = p.fixedShapes()
		return true, p.receive(ctx)
	}
	indices, err := p.dir.Committed()
	if err != nil {
		return false, fmt.Errorf("cairn: %w", err)
	}
	for _, n := range p.identity.Avoid {
		p.damaged[n] = true
	}
	if indices, err = p.onlyTold(indices); err != nil {
		p.tellDamaged(p.identity.Only, err)
		return false, fmt.Errorf("cairn: %w", err)
	}
	p.shapes = p.fixedShapes()
	var table *ckpt.Table
	if err = p.findRunID(indices); err != nil {
		return false, p.Refuse(fmt.Errorf("cairn: %w", err))
	}
	switch d := p.opts.Driver; {
	case d != nil && d.Running:
		if len(indices) > 0 {
			p.lastCommitted = indices[0]
		}
	case p.identity.Size > 1:
		table, err = p.peers.restore(ctx, indices)
	default:
		table, err = p.restoreAlone(ctx, indices)
	}
	if err == nil && table == nil && p.identity.Expect > 0 && p.lastCommitted == 0 {
		err = p.vanished()
	}
	if err == nil {
		err = p.settleRunID(table != nil || p.opts.Driver != nil && p.opts.Driver.Running && p.lastCommitted > 0)
	}
	if err == nil && table != nil {
		err = p.remake(table.Index, indices)
	}
	if err == nil {
		err = p.files.mark()
	}
	if err != nil {
		return false, p.Refuse(fmt.Errorf("cairn: %w", err))
	}
	if err := p.readySaver(table); err != nil {
		return false, fmt.Errorf("cairn: %w", err)
	}
	step.At("restore.done")
	p.phase = phaseRunning
	p.files.resuming, p.files.restored = false, true
	if p.peers != nil {
		if err := p.peers.begin(); err != nil {
			return false, fmt.Errorf("cairn: %w", err)
		}
		if p.opts.Driver != nil && p.identity.Size > 1 {
			go p.progress()
		}
	}
	p.schedule()
	p.signals = watchSignals(p)
	p.identity.supervisor.send(&control.Restored{Index: p.lastCommitted, Fresh: table == nil, Stdout: p.files.printed, Settings: p.leadSettings()})
	return table != nil, nil
}

// share returns a rank's part of what all ranks together may use.
func (p *Run) share(all int64) int64 {
	if all == 0 {
		return 0
	}
	return max(1, all/int64(p.identity.Size))
}

// readySaver makes the saver, and reserves memory for the state as it is.
func (p *Run) readySaver(table *ckpt.Table) (err error) {
	opts := ckpt.Options{
		Rank: p.identity.Rank, Ranks: p.identity.Size, Run: p.runID.Run, Attempt: p.runID.Attempt, Helper: p.identity.writer,
		Keep: p.opts.Keep, DiskLimit: p.share(p.opts.DiskLimit), Compression: p.opts.Compression, Memory: p.opts.Memory,
		MaxBases: p.opts.MaxBases, NoTracking: p.opts.NoTracking, Damaged: p.damaged,
	}
	if d := p.opts.Driver; d != nil {
		opts.Tracker, opts.Stable, opts.Ready = d.Tracker, d.Stable, d.Ready
		opts.Helper = nil // this process outlives the program, too
	}
	if p.saver, err = ckpt.NewSaver(p.dir, table, opts); err != nil {
		return err
	}
	if p.told() {
		if err := p.saver.SetNext(max(p.saver.Next(), p.identity.Above+1)); err != nil {
			return err
		}
	}
	img, err := p.collector.Collect(p.roots, p.env())
	if err != nil && deferrable(err) {
		p.cost = time.Second // a guess, until one is measured
		return nil
	}
	if err != nil {
		return err
	}
	p.saver.Reserve(img)
	p.collector.Release()
	p.cost = time.Duration(imageBytes(img)) // until one is measured: a nanosecond per byte
	return nil
}

// restoreAlone loads the newest checkpoint that can be loaded. It returns nil
// if there is none.
func (p *Run) restoreAlone(ctx context.Context, indices []uint64) (*ckpt.Table, error) {
	var bad []error
	for _, n := range indices {
		if slices.Contains(p.identity.Avoid, n) {
			bad = append(bad, fmt.Errorf("checkpoint %d is in quarantine: the program failed with it again and again", n))
			continue
		}
		if p.damaged[n] { // an earlier Rollback has reported it
			bad = append(bad, fmt.Errorf("%w: checkpoint %d was skipped before", ErrCorrupt, n))
			continue
		}
		err := p.verifyOlder(ctx, n, len(bad) > 0)
		var table *ckpt.Table
		if err == nil {
			if err := p.callOnChoose(n); err != nil {
				return nil, err
			}
			table, err = p.load(ctx, n)
		}
		if err == nil {
			if err = p.files.finish(p.phase == phaseRunning); err != nil {
				p.files.abandon()
				err = fmt.Errorf("%s: %w", p.dir.File(n), err)
			}
		}
		if err == nil {
			p.lastCommitted = n
			if p.peers != nil {
				err = p.peers.restoreInflight()
			}
			return table, err
		}
		switch {
		case errors.Is(err, ErrCorrupt):
			p.damaged[n] = !errors.Is(err, errOtherRun)
		case !errors.Is(err, syscall.EIO): // it may be temporary: skip the checkpoint, but keep it
			return nil, err
		}
		bad = append(bad, err)
		p.tellDamaged(n, err)
		p.log.Warn("cairn: skipping a damaged checkpoint", "checkpoint", n, "error", err)
	}
	if lost, err := p.dir.Lost(); err != nil {
		return nil, err
	} else if len(bad) == 0 && len(lost) > 0 {
		bad = append(bad, fmt.Errorf("%w: checkpoint %d has lost its file %s", ErrCorrupt, lost[0], p.dir.File(lost[0])))
	}
	if len(bad) > 0 {
		err := fmt.Errorf("none of %d checkpoints in %s can be loaded; to start over, move that directory away: %w", len(bad), p.dir.Path(), errors.Join(bad...))
		return nil, p.permanent(bad, err)
	}
	return nil, nil
}

// permanent marks the error of a restart for which all checkpoints are damaged:
// another start does not help. An I/O error may be temporary.
func (p *Run) permanent(bad []error, err error) error {
	if p.told() {
		return err // the supervisor knows whether there is another copy
	}
	for _, b := range bad {
		if !errors.Is(b, ErrCorrupt) || errors.Is(b, syscall.EIO) {
			return err
		}
	}
	return allDamaged{err}
}

// verifyOlder verifies an older checkpoint before Restore gives up a newer one,
// if a journal undoes changes of files: undoing them makes the newer checkpoint
// useless, even if it is repaired.
func (p *Run) verifyOlder(ctx context.Context, index uint64, older bool) error {
	if !older || p.onChoose == nil {
		return nil
	}
	s, err := ckpt.Open(p.dir.FS(), p.dir.File(index))
	if err != nil {
		return err
	}
	defer s.Close()
	if _, _, err := p.checkFits(s); err != nil {
		return err
	}
	return p.verify(ctx, s)
}

// load restores the variables of one checkpoint. Call p.files.finish or abandon
// after it: files are truncated only when it is certain that the checkpoint is
// used.
func (p *Run) load(ctx context.Context, index uint64) (*ckpt.Table, error) {
	s, err := ckpt.Open(p.dir.FS(), p.dir.File(index))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	img, roots, err := p.checkFits(s)
	if err == nil && p.identity.Size == 1 && (p.hasOptional() || p.stored.only) {
		err = p.verify(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	files, err := s.Files()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	p.files.begin(files)
	if err := p.checkOutsideFiles(); err != nil {
		p.files.abandon()
		return nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	step.At("restore.begin")
	if d := p.opts.Driver; d != nil && !p.stored.only && d.Loading != nil {
		if err := d.Loading(ctx); err != nil {
			p.files.abandon()
			return nil, err
		}
		s.Checked = d.Checked
	}
	if !p.stored.only {
		err = p.loadRoots(ctx, s, img, roots, p.opts.Drop, func(b *graph.Builder) { p.collector.KeepPlaces(b, p.roots) })
	}
	if err != nil {
		p.files.abandon()
		var m *graph.MismatchError
		if errors.As(err, &m) {
			err = fmt.Errorf("%w: %w; %s", ErrMismatch, err, p.remedy(fmt.Sprintf("to continue without the old value, add %q to Options.Drop and protect the variable as cairn.Optional", m.Name)))
		}
		return nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	if err := p.checkShapes(s.Path); err != nil {
		p.files.abandon()
		return nil, err
	}
	if ours, theirs := p.files.unmatched(); p.phase != phaseRunning && ours != "" && theirs != "" {
		p.files.abandon()
		return nil, fmt.Errorf("%s: %w: the run was writing to %s, but now the program has opened %s instead: start it with the paths it had", s.Path, ErrMismatch, theirs, ours)
	}
	step.At("restore.loaded")
	p.points = max(s.Header.Note.Points, 1) - 1 // the program calls the point that saved again
	return s.Table(), nil
}

// loadRoots loads variables; see reshape.
func (p *Run) loadRoots(ctx context.Context, s *ckpt.File, img *graph.Image, roots []graph.Root, drop []string, loaded func(*graph.Builder)) error {
	roots, settle := reshape(img, roots)
	if settle != nil && loaded != nil {
		loaded = func(*graph.Builder) { p.collector.Forget() } // the next image is another one
	}
	s.Shared = p.opts.Driver != nil
	err := s.Load(ctx, img, roots, p.env(), drop, loaded)
	if err == nil && settle != nil {
		err = settle()
	}
	return err
}

// errOtherRun says that a file belongs to another run. Restore skips the file
// and keeps it.
var errOtherRun = errors.New("not a checkpoint of this run")

// checkFits returns an error if a checkpoint cannot be loaded, as far as it can
// tell without changing anything, and otherwise what to restore.
func (p *Run) checkFits(s *ckpt.File) (*graph.Image, []graph.Root, error) {
	if err := s.Header.CheckRun(p.runID.Run); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %w; to resume from it, move %s and the other checkpoints away", s.Path, errOtherRun, err, filepath.Join(p.dir.Path(), "run-id"))
	}
	if n := max(s.Header.Ranks, 1); n != p.identity.Size {
		return nil, nil, fmt.Errorf("%s: %w: it was saved by a run of %d ranks, and this one has %d: start as many, or use another directory", s.Path, ErrMismatch, n, p.identity.Size)
	}
	img, err := s.Image()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	if p.stored.only {
		return img, nil, nil
	}
	roots, err := p.matchVariables(img)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	return img, roots, nil
}

// hasOptional reports whether older checkpoints may lack variables. If so, all
// blocks of a checkpoint are verified before any is loaded.
func (p *Run) hasOptional() bool {
	for name, how := range p.varOptions {
		if how&Optional != 0 && name != inflightName {
			return true
		}
	}
	return false
}

// verify checks all blocks of a checkpoint.
func (p *Run) verify(ctx context.Context, s *ckpt.File) error {
	bad, err := s.Verify(ctx, nil)
	if err == nil && len(bad) > 0 {
		err = bad[0].Err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Path, err)
	}
	return nil
}

// matchVariables compares the variables of a checkpoint with the protected
// ones, and returns those to restore.
func (p *Run) matchVariables(img *graph.Image) ([]graph.Root, error) {
	var errs []error
	vars, saved := 0, make(map[string]bool, len(img.Vars))
	protected, dropped := make(map[string]bool, len(p.roots)), make(map[string]bool, len(p.opts.Drop))
	for _, r := range p.roots {
		protected[r.Name] = true
	}
	for _, name := range p.opts.Drop {
		dropped[name] = true
	}
	for _, v := range img.Vars {
		if graph.IsStdVar(v.Name) {
			continue
		}
		vars++
		saved[v.Name] = true
		known := protected[v.Name]
		if !known && v.Name == inflightName { // the program does not send messages any more
			if p.peers == nil {
				errs = append(errs, fmt.Errorf("%w: the checkpoint holds messages between ranks; call World before Restore", ErrMismatch))
			}
			continue
		}
		if !known && !dropped[v.Name] {
			errs = append(errs, fmt.Errorf("%w: the checkpoint holds variable %q (%s), which the program does not protect; %s", ErrMismatch, v.Name, graph.TypeName(v.Type), p.remedy("add it to Options.Drop if it is not needed any more")))
		}
	}
	if len(errs) > 0 && len(errs) == vars {
		return nil, fmt.Errorf("%w: they have no variable in common; is this another program's directory?", ErrMismatch)
	}
	var roots []graph.Root
	for _, r := range p.roots {
		switch {
		case saved[r.Name]:
			roots = append(roots, r)
		case p.varOptions[r.Name]&Optional == 0:
			errs = append(errs, fmt.Errorf("%w: the program protects variable %q, which the checkpoint does not hold; %s", ErrMismatch, r.Name, p.remedy("protect it as cairn.Optional to keep the value it has")))
		}
	}
	return roots, errors.Join(errs...)
}

// checkShapes returns an error if a Fixed variable was restored with another
// shape.
func (p *Run) checkShapes(from string) error {
	for name, now := range p.fixedShapes() {
		if was := p.shapes[name]; now != was {
			return fmt.Errorf("%s: %w: variable %q has shape %s in the checkpoint, %s in the program", from, ErrMismatch, name, now, was)
		}
	}
	return nil
}

// shaped is a variable with dimensions.
type shaped interface{ Dims() []int }

// fixedShapes returns the lengths of the Fixed variables.
func (p *Run) fixedShapes() map[string]string {
	out := make(map[string]string)
	for _, r := range p.roots {
		if p.varOptions[r.Name]&Fixed == 0 {
			continue
		}
		if a, ok := r.Ptr.(shaped); ok {
			out[r.Name] = fmt.Sprint(a.Dims())
			continue
		}
		var lens []int
		v := reflect.ValueOf(r.Ptr).Elem()
		for v.Kind() == reflect.Slice {
			lens = append(lens, v.Len())
			if v.Len() == 0 {
				break
			}
			v = v.Index(0)
		}
		out[r.Name] = fmt.Sprint(lens)
	}
	return out
}
