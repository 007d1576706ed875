//go:build linux

package supervise

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
)

// moves is the part of the fake program that handles moves. Rank 0 lets all
// ranks pause at its next point when it was told to pause; sources send a few
// numbers.
//
//	pause:POINT:MOVE    rank 0 waits there until it was told to pause for that move,
//	                     in the first attempt or the one whose number follows
//	fault:WHO:WHEN:MOVE  WHO is destination, source or other, in the first attempt:
//	                     WHEN it reaches …, it exits; with "!" before it, says MoveFailed;
//	                     with "~", does nothing more; with "%", is killed; with "<",
//	                     waits until the test opens the FIFO that follows MOVE
type moves struct {
	mu     sync.Mutex
	some   sync.Cond
	pause  uint64                     // the last move for which this rank was told to pause
	over   map[uint64]*control.Switch // decisions, by move
	peer   net.Conn                   // for a source: connection to its destination
	source uint64                     // the move whose source this rank is
}

// fakeState is what a source sends.
type fakeState struct {
	Point  int
	Index  uint64
	Epoch  uint64
	Loaded uint64
}

// told handles the supervisor's messages about moves.
func (f *fake) told(m control.Message) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	switch m := m.(type) {
	case *control.Pause:
		f.m.pause = m.ID
	case *control.Switch:
		f.m.over[m.ID] = m
	case *control.Precopy:
		f.m.source = m.ID
		go f.precopy(m)
	}
	f.m.some.Broadcast()
}

// spawn starts what the supervisor wants an MPI library to start. With the
// argument spawn:…, it refuses, hangs, starts only one (and does not answer for
// others), starts none (and says that it did), or does nothing at all.
func (f *fake) spawn(m *control.Spawn) {
	how := ""
	for _, fault := range f.faults {
		if v, ok := strings.CutPrefix(fault, "spawn:"); ok && f.Attempt == 1 {
			how = v
		}
	}
	if how == "nothing" || how == "one" && f.spawns.Add(1) > 1 {
		return
	}
	f.Send(&control.Spawned{Move: m.Move, Moving: m.Moving, Busy: true})
	switch how {
	case "hangs":
		return
	case "none":
		f.Send(&control.Spawned{Move: m.Move, Moving: m.Moving})
		return
	case "refuses":
		f.Send(&control.Spawned{Move: m.Move, Moving: m.Moving, Error: "it is not possible"})
		return
	}
	cmd := exec.Command(m.Command[0], m.Command[1:]...)
	cmd.Env = append(os.Environ(), m.Env...)
	cmd.Env = append(cmd.Env, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", helper.EnvParent+"=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it outlives this rank
	said := &control.Spawned{Move: m.Move, Moving: m.Moving}
	if err := cmd.Start(); err != nil {
		said.Error = err.Error()
	}
	f.Send(said)
}

func (f *fake) precopy(m *control.Precopy) {
	f.suffer("source", "precopy", m.ID)
	c, err := net.Dial("tcp", m.Addresses[0])
	if err != nil {
		f.Send(&control.MoveFailed{Move: m.ID, Error: err.Error()})
		return
	}
	f.m.mu.Lock()
	f.m.peer = c
	f.m.mu.Unlock()
	f.Send(&control.Precopied{Move: m.ID})
}

// suffer executes a fault.
func (f *fake) suffer(who, when string, move uint64) {
	if f.Attempt > 1 {
		return
	}
	for _, fault := range f.faults {
		parts := strings.Split(fault, ":")
		if parts[0] != "fault" || parts[1] != who || strings.TrimLeft(parts[2], "!~%<") != when || parts[3] != fmt.Sprint(move) {
			continue
		}
		switch parts[2][0] {
		case '!':
			f.Send(&control.MoveFailed{Move: move, Error: "it cannot, " + who + " at " + when})
			select {}
		case '~':
			select {}
		case '<':
			if p, err := os.OpenFile(parts[4], os.O_RDONLY, 0); err == nil {
				io.Copy(io.Discard, p)
				p.Close()
			}
			return
		case '%':
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		fmt.Fprintln(os.Stderr, who, "ends at", when)
		os.Exit(5)
	}
}

// awaitPause waits until this rank was told to pause for a move.
func (f *fake) awaitPause(move, attempt string) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	for fmt.Sprint(f.m.pause) != move && fmt.Sprint(f.Attempt) == attempt {
		f.m.some.Wait()
	}
}

// wanted returns the move for which rank 0 lets all ranks pause, or 0.
func (f *fake) wanted() uint64 {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.pause == 0 || f.m.over[f.m.pause] != nil {
		return 0
	}
	for _, fault := range f.faults { // not before the point that the test expects
		parts := strings.Split(fault, ":")
		if point, _ := strconv.Atoi(parts[1]); parts[0] == "pause" && parts[2] == fmt.Sprint(f.m.pause) && f.point < point {
			return 0
		}
	}
	return f.m.pause
}

// pause executes a pause at a point at which ranks move.
func (f *fake) pause(id uint64) {
	f.m.mu.Lock()
	moves, peer := f.m.source == id, f.m.peer
	f.m.mu.Unlock()
	who := "other"
	if moves {
		who = "source"
		f.suffer(who, "pause", id)
		f.Send(&control.Paused{Move: id})
		f.suffer(who, "paused", id)
		json.NewEncoder(peer).Encode(fakeState{f.point, f.index, f.epoch, f.loaded})
		if _, err := peer.Read(make([]byte, 1)); err == nil {
			f.Send(&control.Sent{Move: id, Stats: &control.MoveStats{State: 3 << 20, Precopied: 2 << 20, Rounds: 1, Sent: 1 << 20, AllNS: 5e6}})
		}
	} else {
		f.suffer(who, "pause", id)
	}
	if !f.switched(id).OK {
		return
	}
	f.suffer(who, "switch", id)
	if moves {
		fmt.Printf("rank %d leaves\n", f.Rank)
		f.Send(&control.HandedOver{Move: id})
		select {}
	}
	f.Send(&control.Linked{Move: id})
}

// switched waits for the supervisor's decision.
func (f *fake) switched(id uint64) *control.Switch {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	for f.m.over[id] == nil {
		f.m.some.Wait()
	}
	return f.m.over[id]
}

// takeOver is executed by a destination instead of restoring a checkpoint.
func (f *fake) takeOver() error {
	move := f.Move.ID
	f.suffer("destination", "start", move)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	f.Send(&control.Listening{Move: move, Endpoint: fmt.Appendf(nil, "endpoint %d of move %d", f.Rank, move), Addresses: []string{l.Addr().String()}})
	f.suffer("destination", "listening", move)
	c, err := l.Accept()
	if err != nil {
		return err
	}
	var st fakeState
	if err := json.NewDecoder(c).Decode(&st); err != nil {
		io.Copy(io.Discard, os.Stdin)
		select {} // it will be killed
	}
	f.suffer("destination", "state", move)
	if f.Stdout != "" {
		if _, err := control.TakeStdout(f.Stdout); err != nil {
			return err
		}
	}
	c.Write([]byte{1})
	f.Send(&control.Received{Move: move})
	f.suffer("destination", "received", move)
	m := f.switched(move)
	if !m.OK || len(m.Endpoints) != f.Size || slices.ContainsFunc(m.Endpoints, func(c []byte) bool { return f.Size > 1 && c == nil }) || f.Size > 1 && m.Epoch != st.Epoch {
		return fmt.Errorf("a destination was told %+v", m)
	}
	if got := string(m.Endpoints[f.Rank]); got != fmt.Sprintf("endpoint %d of move %d", f.Rank, move) {
		return fmt.Errorf("its own endpoint is %q", got)
	}
	if f.Stderr != "" {
		if err := control.TakeStderr(f.Stderr); err != nil {
			return err
		}
	}
	f.suffer("destination", "switch", move)
	f.member.Store(true)
	f.Send(&control.Progress{}) // before its first point
	f.point, f.index, f.epoch, f.loaded = st.Point, st.Index, st.Epoch, st.Loaded
	return f.Send(&control.Linked{Move: move})
}
