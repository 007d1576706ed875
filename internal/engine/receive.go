package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/migrate"
	"github.com/cairnrun/cairn/internal/p2p"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// spawn makes the MPI library start the helper of a destination. Messages of
// this rank wait meanwhile.
func (p *Run) spawn(m *control.Spawn) {
	say := func(err error) {
		said := &control.Spawned{Move: m.Move, Moving: m.Moving}
		if err != nil {
			said.Error = err.Error()
		}
		p.identity.supervisor.send(said)
	}
	v := &p.migration
	v.spawning.Lock()
	defer v.spawning.Unlock()
	v.mu.Lock()
	err := v.ended
	v.mu.Unlock()
	d := p.identity.mpi
	if err == nil && (d == nil || p.identity.Size == 1) {
		err = errors.New("this rank has no MPI library")
	}
	if err != nil {
		say(err)
		return
	}
	e := p.peers.engine
	e.Lock()
	defer e.Unlock() // this rank must do nothing else with the library
	p.identity.supervisor.send(&control.Spawned{Move: m.Move, Moving: m.Moving, Busy: true})
	say(d.Spawn(m.Host, m.Command, m.Env))
}

// isDestination reports whether this process takes over a running rank.
func (p *Run) isDestination() bool { return p.identity.Move != nil }

// awaitSource is Open in a destination.
func (p *Run) awaitSource(ctx context.Context) error {
	conn, err := p.listenForSource(ctx)
	if err == nil {
		var setup []p2p.SavedMessage
		if setup, err = readSetup(conn); err == nil && p.identity.Size > 1 {
			p.peers.engine.Replay(setup)
		}
	}
	if err != nil {
		p.moveFailed(p.identity.Move.ID, err)
		return fmt.Errorf("cairn: taking over rank %d: %w", p.identity.Rank, err)
	}
	p.migration.source = conn
	return nil
}

// readSetup reads what sendSetup sends: a length, and JSON.
func readSetup(r io.Reader) ([]p2p.SavedMessage, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	var said bytes.Buffer
	if _, err := io.CopyN(&said, r, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
		return nil, err
	}
	var setup []p2p.SavedMessage
	err := json.Unmarshal(said.Bytes(), &setup)
	return setup, err
}

// receive is Restore in a destination.
func (p *Run) receive(ctx context.Context) error {
	id := p.identity.Move.ID
	settle, err := p.files.redirectOutput(p.identity.Stdout)
	if err == nil {
		err = p.receiveState(ctx)
		settle(err == nil) // after an error, what the program prints is not the rank's output
	}
	if err != nil {
		p.moveFailed(id, err)
		return fmt.Errorf("cairn: taking over rank %d: %w", p.identity.Rank, err)
	}
	return nil
}

var errMoveCanceled = errors.New("the move was canceled")

func (p *Run) receiveState(ctx context.Context) error {
	m := p.identity.Move
	p.files.migrated = true
	conn := p.migration.source
	defer conn.Close()
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	var h handoff
	coming, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	go func() {
		if v, err := p.migration.decision(coming, m.ID); err != nil || !v.OK {
			enough(cmp.Or(err, errMoveCanceled))
		}
	}()
	received, err := migrate.Receive(coming, conn, moveOptions(m, p.identity), migrate.Receiver{
		Fit: func(img *graph.Image) ([]graph.Root, *graph.Env, []string, error) {
			roots, err := p.matchVariables(img)
			return roots, p.env(), p.opts.Drop, err
		},
		Files: func(files []ckpt.FileEntry, _ ckpt.Note, extra []byte) error {
			if err := json.Unmarshal(extra, &h); err != nil {
				return err
			}
			p.files.begin(files)
			return nil
		},
	})
	if err != nil {
		if why := context.Cause(coming); why != nil {
			err = why
		}
		return err
	}
	if err := p.checkShapes("the received state"); err != nil {
		return err
	}
	if err := p.files.finish(false); err != nil {
		return err
	}
	p.points = max(received.Note.Points, 1) - 1 // the program calls that point again
	p.lastCommitted = h.Safe
	if t := p.peers; t != nil {
		if err := t.engine.SetCounters(h.Ledger); err != nil {
			return err
		}
		if err := t.restoreInflight(); err != nil {
			return err
		}
	}
	if err := p.sameDirectory(h.Identity.Run, h.Safe); err != nil {
		return err
	}
	p.runID = h.Identity
	for _, n := range h.Aside {
		p.damaged[n] = false
	}
	for _, n := range append(h.Damaged, p.identity.Avoid...) {
		p.damaged[n] = true
	}
	step.At("migrate.received")
	p.identity.supervisor.send(&control.Received{Move: m.ID})
	verdict, err := p.migration.decision(ctx, m.ID)
	if err != nil {
		return err
	}
	if !verdict.OK {
		return errMoveCanceled
	}
	if p.identity.Stderr != "" {
		if err := control.TakeStderr(p.identity.Stderr); err != nil { // its helper copies it
			p.log.Warn("cairn: standard error is shown only after the program has ended", "error", err)
		}
	}
	if p.dir, err = store.CreateFor(p.opts.fs, p.opts.Dir, p.identity.Rank, vfs.AccessFromEnv().With(p.opts.GroupReadable, p.opts.AnyOwner)); err != nil {
		return err
	}
	if p.opts.PerHost {
		p.dir.PerHost()
		err := p.recordRunID()
		if err == nil && h.Safe > 0 {
			err = p.dir.SetLine(store.Line{Index: h.Safe, Ranks: p.identity.Size, Run: p.runID.Run}) // its attempt is not known here
		}
		if err != nil {
			return err
		}
	}
	if err := p.readySaver(nil); err != nil {
		return err
	}
	if h.Safe > 0 {
		p.saver.Line(h.Safe)
	}
	if err := p.saver.SetNext(max(h.Next, p.saver.Next())); err != nil {
		return err
	}
	p.phase, p.files.resuming, p.files.restored = phaseRunning, false, true
	p.identity.supervisor.setExchangeCount(h.Exchanges)
	if t := p.peers; t != nil && p.identity.Size > 1 {
		if err := t.engine.Relink(ctx, verdict.Ranks, verdict.Endpoints); err != nil {
			return err
		}
		if err := t.takeOver(&h, m.ID); err != nil {
			return err
		}
	}
	p.files.migrated = false
	p.schedule()
	if h.Left > 0 {
		p.pointsLeft = h.Left + 1 // the program calls that point again
	}
	p.deferredReason = h.Late
	if p.timer != nil && h.Due > 0 {
		p.dueAt = time.Now().Add(h.Due)
		p.timer.Set(h.Due)
	}
	p.signals = watchSignals(p)
	step.At("migrate.linked")
	p.identity.supervisor.send(&control.Linked{Move: m.ID})
	return nil
}

// sameDirectory returns an error if the checkpoint directory on this host is
// not that of the run: it must have the run's ID, and hold the last committed
// checkpoint.
//
// With a directory per host, the source's is on another host, and stays there
// until a restart needs it. The next checkpoint is full.
func (p *Run) sameDirectory(run string, safe uint64) error {
	if p.opts.PerHost {
		return nil
	}
	where := fmt.Sprintf("the checkpoint directory %s on this host is not that of the run; it must be on a file system that all hosts share", p.dir.Path())
	if _, err := p.opts.fs.Stat(p.dir.Path()); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if id, err := p.dir.ID(); err != nil || id != run {
		return errors.Join(errors.New(where), err)
	}
	if safe == 0 {
		return nil
	}
	if _, err := p.opts.fs.Stat(p.dir.File(safe)); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

// takeOver continues the coordination in the place of the source.
func (t *peers) takeOver(h *handoff, id uint64) error {
	t.engine.Lock()
	defer t.engine.Unlock()
	if err := t.coordinate(coord.Config{}, h.Node); err != nil {
		return err
	}
	err := t.node.Moved(id)
	t.act()
	return err
}

// listenForSource tells the supervisor where this process listens, and waits
// for the source.
func (p *Run) listenForSource(ctx context.Context) (net.Conn, error) {
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	m := &control.Listening{Move: p.identity.Move.ID, Addresses: control.ListenAddresses(ln.Addr())}
	if p.identity.Size > 1 {
		if m.Endpoint, err = p.peers.engine.Endpoint(); err != nil {
			return nil, err
		}
	}
	secret := p.identity.moveSecret(p.identity.Move.ID)
	came := make(chan net.Conn, 1)
	var taken atomic.Bool
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				if _, err := control.Server(conn, secret); err != nil {
					return // not the source
				}
				if !taken.CompareAndSwap(false, true) {
					conn.Close() // the source has connected already, by another address
					return
				}
				conn.Write([]byte{1}) // an error shows later
				came <- conn
			}()
		}
	}()
	p.identity.supervisor.send(m)
	var conn net.Conn
	err = p.migration.awaitOr(ctx, came, &conn)
	return conn, err
}

// awaitOr waits for a connection, or for the end of the move.
func (v *migration) awaitOr(ctx context.Context, came <-chan net.Conn, conn *net.Conn) error {
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		ended <- v.await(ctx, func() bool { return len(v.decisions) > 0 })
	}()
	select {
	case *conn = <-came:
		return nil
	case err := <-ended:
		if err == nil {
			err = errMoveCanceled
		}
		return err
	}
}
