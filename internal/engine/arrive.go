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

// What a process does that takes the place of another one, and how the MPI
// library of the others is made to start it.

// spawn has the MPI library start the helper of a newcomer. Messages of this
// rank wait meanwhile.
func (p *Run) spawn(m *control.Spawn) {
	say := func(err error) {
		said := &control.Spawned{Move: m.Move, Moving: m.Moving}
		if err != nil {
			said.Error = err.Error()
		}
		p.seat.ctl.say(said)
	}
	v := &p.mover
	v.spawning.Lock()
	defer v.spawning.Unlock()
	v.mu.Lock()
	err := v.gone
	v.mu.Unlock()
	d := p.seat.mpi
	if err == nil && (d == nil || p.seat.Size == 1) {
		err = errors.New("this rank has no MPI library")
	}
	if err != nil {
		say(err)
		return
	}
	e := p.team.engine
	e.Lock()
	defer e.Unlock() // nothing that this rank does comes between
	p.seat.ctl.say(&control.Spawned{Move: m.Move, Moving: m.Moving, Busy: true})
	say(d.Spawn(m.Host, m.Command, m.Env))
}

// newcomer reports whether this process is to take the place of a running one.
func (p *Run) newcomer() bool { return p.seat.Move != nil }

// meetSource is Open in a process that takes the place of another one.
func (p *Run) meetSource(ctx context.Context) error {
	conn, err := p.awaitState(ctx)
	if err == nil {
		var setup []p2p.SavedMessage
		if setup, err = readSetup(conn); err == nil && p.seat.Size > 1 {
			p.team.engine.Replay(setup)
		}
	}
	if err != nil {
		p.unmoved(p.seat.Move.ID, err)
		return fmt.Errorf("cairn: taking the place of rank %d: %w", p.seat.Rank, err)
	}
	p.mover.from = conn
	return nil
}

// readSetup reads what introduceTo sends: its length, and JSON.
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

// arrive is Restore in a process that takes the place of another one.
func (p *Run) arrive(ctx context.Context) error {
	id := p.seat.Move.ID
	settle, err := p.files.turnOutput(p.seat.Stdout)
	if err == nil {
		err = p.land(ctx)
		settle(err == nil) // what the program says of its failure is not the rank's output
	}
	if err != nil {
		p.unmoved(id, err)
		return fmt.Errorf("cairn: taking the place of rank %d: %w", p.seat.Rank, err)
	}
	return nil
}

var errCalledOff = errors.New("the move was called off")

func (p *Run) land(ctx context.Context) error {
	m := p.seat.Move
	p.files.moved = true
	conn := p.mover.from
	defer conn.Close()
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	var bag luggage
	coming, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	go func() {
		if v, err := p.mover.verdict(coming, m.ID); err != nil || !v.OK {
			enough(cmp.Or(err, errCalledOff))
		}
	}()
	landed, err := migrate.Receive(coming, conn, moveOptions(m, p.seat), migrate.Receiver{
		Fit: func(img *graph.Image) ([]graph.Root, *graph.Env, []string, error) {
			roots, err := p.match(img)
			return roots, p.env(), p.opts.Drop, err
		},
		Files: func(files []ckpt.FileEntry, _ ckpt.Note, extra []byte) error {
			if err := json.Unmarshal(extra, &bag); err != nil {
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
	if err := p.unchangedShapes("the state that came"); err != nil {
		return err
	}
	if err := p.files.finish(false); err != nil {
		return err
	}
	p.points = max(landed.Note.Points, 1) - 1 // the point that it was saved in comes again
	p.safe = bag.Safe
	if t := p.team; t != nil {
		if err := t.engine.SetCounters(bag.Ledger); err != nil {
			return err
		}
		if err := t.resume(); err != nil {
			return err
		}
	}
	if err := p.sameFolder(bag.Identity.Run, bag.Safe); err != nil {
		return err
	}
	p.id = bag.Identity
	for _, n := range bag.Aside {
		p.damaged[n] = false
	}
	for _, n := range append(bag.Damaged, p.seat.Avoid...) {
		p.damaged[n] = true
	}
	step.At("migrate.received")
	p.seat.ctl.say(&control.Received{Move: m.ID})
	verdict, err := p.mover.verdict(ctx, m.ID)
	if err != nil {
		return err
	}
	if !verdict.OK {
		return errCalledOff
	}
	if p.seat.Stderr != "" {
		if err := control.TakeStderr(p.seat.Stderr); err != nil { // its helper copies it
			p.log.Warn("cairn: standard error is shown when the program has ended", "error", err)
		}
	}
	if p.dir, err = store.CreateFor(p.opts.fs, p.opts.Dir, p.seat.Rank, vfs.AccessFromEnv().With(p.opts.GroupReadable, p.opts.AnyOwner)); err != nil {
		return err
	}
	if err := p.readySaver(nil); err != nil {
		return err
	}
	if bag.Safe > 0 {
		p.saver.Line(bag.Safe)
	}
	if err := p.saver.SetNext(max(bag.Next, p.saver.Next())); err != nil {
		return err
	}
	p.restored, p.files.resuming = true, false
	p.seat.ctl.met(bag.Meetings)
	if t := p.team; t != nil && p.seat.Size > 1 {
		if err := t.engine.Relink(ctx, verdict.Ranks, verdict.Endpoints); err != nil {
			return err
		}
		if err := t.takeOver(&bag, m.ID); err != nil {
			return err
		}
	}
	p.files.moved = false
	p.schedule()
	if bag.Left > 0 {
		p.left = bag.Left + 1 // the point comes again
	}
	p.late = bag.Late
	if p.timer != nil && bag.Due > 0 {
		p.timer.Reset(bag.Due)
	}
	p.signals = watchSignals(p)
	step.At("migrate.linked")
	p.seat.ctl.say(&control.Linked{Move: m.ID})
	return nil
}

// sameFolder looks whether the checkpoint folder is that of the run on this host,
// too: it has to have its identity, and hold what the rank would go back to.
func (p *Run) sameFolder(run string, safe uint64) error {
	where := fmt.Sprintf("the checkpoint folder %s on this host is not that of the run; it has to be on a file system that all hosts share", p.dir.Path())
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

// takeOver goes on with the coordination where the source was.
func (t *team) takeOver(bag *luggage, id uint64) error {
	t.engine.Lock()
	defer t.engine.Unlock()
	if err := t.coordinate(coord.Config{}, bag.Node); err != nil {
		return err
	}
	err := t.node.Moved(id)
	t.act()
	return err
}

// awaitState listens for the source, and says where.
func (p *Run) awaitState(ctx context.Context) (net.Conn, error) {
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	m := &control.Listening{Move: p.seat.Move.ID, Addresses: reachedAt(ln.Addr())}
	if p.seat.Size > 1 {
		if m.Endpoint, err = p.team.engine.Endpoint(); err != nil {
			return nil, err
		}
	}
	secret := p.seat.moveSecret(p.seat.Move.ID)
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
					return // a stranger
				}
				if !taken.CompareAndSwap(false, true) {
					conn.Close() // it has reached this process in several ways
					return
				}
				conn.Write([]byte{1}) // that it failed shows later
				came <- conn
			}()
		}
	}()
	p.seat.ctl.say(m)
	var conn net.Conn
	err = p.mover.awaitOr(ctx, came, &conn)
	return conn, err
}

// awaitOr waits for a connection, or for the end of the move.
func (v *mover) awaitOr(ctx context.Context, came <-chan net.Conn, conn *net.Conn) error {
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		ended <- v.await(ctx, func() bool { return len(v.verdicts) > 0 })
	}()
	select {
	case *conn = <-came:
		return nil
	case err := <-ended:
		if err == nil {
			err = errCalledOff
		}
		return err
	}
}

// reachedAt lists where a listener of this host is reached, loopback last.
func reachedAt(a net.Addr) []string {
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return nil
	}
	var out, last []string
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, x := range list {
		n, ok := x.(*net.IPNet)
		switch {
		case !ok || n.IP.IsLinkLocalUnicast():
		case n.IP.IsLoopback():
			last = append(last, net.JoinHostPort(n.IP.String(), port))
		default:
			out = append(out, net.JoinHostPort(n.IP.String(), port))
		}
	}
	return append(out, last...)
}
