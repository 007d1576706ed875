package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/p2p"
	"github.com/cairnrun/cairn/internal/step"
)

// ErrRollback is documented in package cairn.
var ErrRollback = p2p.ErrRollback

// Rollback restores the newest checkpoint in the running program; see
// cairn.Run.Rollback.
func (p *Run) Rollback(ctx context.Context) (bool, error) {
	if err := p.usable(); err != nil {
		return false, err
	}
	p.Pause()
	defer p.Continue()
	p.Cancel()
	var table *ckpt.Table
	var err error
	if p.identity.Size > 1 {
		table, err = p.peers.rollback(ctx)
	} else {
		table, err = p.rollbackAlone(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("cairn: %w", err)
	}
	return table != nil, nil
}

// rollbackAlone is Rollback in a run of one rank.
func (p *Run) rollbackAlone(ctx context.Context) (*ckpt.Table, error) {
	indices, err := p.committedNow(ctx)
	if err != nil {
		return nil, err
	}
	table, err := p.restoreAlone(ctx, indices)
	if err == nil && table == nil {
		err = p.files.finish(true)
	}
	if err != nil {
		return nil, p.undefined(err)
	}
	p.rewind(table)
	p.schedule()
	p.tellRolledBack(0, lostDevices(), table)
	return table, nil
}

// committedNow waits for the writer, and returns this rank's checkpoints.
func (p *Run) committedNow(ctx context.Context) ([]uint64, error) {
	if err := p.awaitWriter(ctx); err != nil {
		return nil, err
	}
	if _, err := p.files.entries(); err != nil { // removes closed files
		return nil, err
	}
	return p.dir.Committed()
}

// undefined notes that a Rollback has failed: nothing is saved any more.
func (p *Run) undefined(err error) error {
	p.stateErr = fmt.Errorf("cairn: the state is undefined because Rollback failed: %w", err)
	p.wakePoint() // every Point returns the error
	return err
}

// rewind makes the run continue from a checkpoint that is loaded, or from the
// beginning.
func (p *Run) rewind(table *ckpt.Table) {
	p.stateErr = nil
	p.saver.Rewind(table, p.damaged)
	p.pendingErr, p.deferredReason = nil, ""
	if table == nil {
		p.points = 0
	}
}

// tellRolledBack tells the supervisor of a rollback that a rank began because
// it had lost a device.
func (p *Run) tellRolledBack(by int, why string, table *ckpt.Table) {
	m := &control.RolledBack{Rank: by, Why: why}
	if table != nil {
		m.Index = table.Index
	}
	p.reportedPoints.Store(p.points)
	p.NoteLoop(nil) // until the next checkpoint
	p.identity.supervisor.send(m)
}

// lostDevices returns which device this process has lost, and why; "" if none.
func lostDevices() string {
	for _, part := range graph.Parts() {
		if part, ok := part.(interface{ CairnLost() error }); ok {
			if err := part.CairnLost(); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// rollback is Rollback in a run of several ranks. All of them call it: one
// because it has lost a device, the others because their operations fail with
// ErrRollback. If it fails, the ranks cannot reach each other any more: the
// programs end, and a supervisor restarts all ranks.
func (t *peers) rollback(ctx context.Context) (table *ckpt.Table, err error) {
	p, e := t.run, t.engine
	defer func() {
		if err != nil {
			// It must not wrap the loss of a device, after which programs call
			// Rollback again.
			err = fmt.Errorf("the ranks cannot roll back in their running processes: %v; end the program, and all ranks are restarted from their last checkpoint", err)
			e.Fail(err)
			p.undefined(err)
		}
	}()
	if err := t.canRollback(); err != nil {
		return nil, err
	}
	why := lostDevices()
	for {
		table, err = t.rollbackOnce(ctx, why)
		if !errors.Is(err, ErrRollback) { // else another rank has begun one more
			break
		}
	}
	if err != nil {
		return nil, err
	}
	p.schedule()
	step.At("rollback.done")
	e.Lock()
	by, why := e.RollbackCause()
	e.Unlock()
	p.tellRolledBack(by, why, table)
	return table, nil
}

// canRollback returns an error if ranks that move, or that a C library drives,
// are not where they can roll back.
func (t *peers) canRollback() error {
	p := t.run
	if p.opts.Driver != nil {
		return errors.New("another process runs the program")
	}
	v := &p.migration
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.outgoing != nil || len(v.plans) > 0 {
		return errors.New("ranks are moving")
	}
	return nil
}

// rollbackOnce takes part in one rollback. If its error wraps ErrRollback,
// another one has begun.
func (t *peers) rollbackOnce(ctx context.Context, why string) (*ckpt.Table, error) {
	p, e := t.run, t.engine
	t.takeCommitted()
	if err := t.abandon(ctx, why); err != nil {
		return nil, err
	}
	step.At("rollback.begin")
	// Other ranks may have a checkpoint whose writer on this rank is not
	// done: the newest one that all can load is chosen after it.
	indices, err := p.committedNow(ctx)
	t.writing.Wait()
	if _, err := t.agree(err); err != nil {
		return nil, err
	}
	t.inflight = inflight{}
	known := p.lastCommitted
	table, err := t.restore(ctx, indices)
	if err != nil {
		return nil, err
	}
	if table == nil {
		if _, err = t.agree(p.files.check()); err == nil {
			_, err = t.agree(p.files.apply(true))
		}
		if err != nil {
			return nil, err
		}
	}
	late := table != nil && table.Index > known // all ranks have it, and not all knew
	if late {
		p.committed(table.Index)
	}
	for index := range p.uncommitted {
		p.saver.Failed(index)
		p.identity.supervisor.send(&control.SaveFailed{Index: index, Error: "the ranks rolled back to an older checkpoint"})
	}
	clear(p.uncommitted)
	p.rewind(table)
	if err := t.begin(); err != nil {
		return nil, err
	}
	if late {
		e.Lock()
		t.recordLine(table.Index)
		e.Unlock()
	}
	return table, nil
}

// abandon ends the coordination, and abandons all messages.
func (t *peers) abandon(ctx context.Context, why string) error {
	e := t.engine
	e.Lock()
	if t.node != nil {
		if asked, stop := t.node.Asked(); asked { // nobody else knows of it any more
			t.earlyRequests = append(t.earlyRequests, earlyRequest{"request", stop})
		}
	}
	line, done := t.line, t.recorderDone
	t.node, t.line, t.earlyMessages, t.earlyMoves = nil, nil, nil, nil
	t.save, t.moving, t.stop, t.outcomes = nil, nil, nil, nil
	t.paused, t.mayPass, t.stopCanceled = false, false, nil
	t.nextCheck.Store(0)
	err := e.Rollback(ctx, why)
	e.Unlock()
	if line != nil {
		close(line)
		<-done
	}
	return err
}

// Rollback is called by package p2p when another rank rolls back.
func (t *peers) Rollback() {
	t.nextCheck.Store(0)
	t.run.wakePoint()
}
