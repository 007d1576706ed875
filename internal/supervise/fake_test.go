//go:build linux

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/vfs"
)

// The test binary is also the helper, the ranks and, in tests that kill it, the
// supervisor.
const envRole = "CAIRN_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(envRole)
	os.Unsetenv(envRole)
	var err error
	switch role {
	case "":
		os.Exit(m.Run())
	case "helper":
		if len(os.Args) > 1 && os.Args[1] == "--launched" {
			err = helper.RunLaunched(context.Background())
		} else {
			err = helper.Run(context.Background())
		}
	case "rank":
		err = fakeRank(os.Args[1:])
	case "supervisor":
		err = fakeSupervisor()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func as(role string, args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{"env", envRole + "=" + role, self}, args...)
}

// fakeSupervisor runs the options on stdin and prints events.
func fakeSupervisor() error {
	var o Options
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return err
	}
	o.Event = func(e Event) {
		if e.Text != "" {
			fmt.Println(e.Text)
		}
		for _, r := range e.Run.Ranks {
			fmt.Printf("rank %d at point %d\n", r.Rank, r.Points)
		}
	}
	s, err := New(o)
	if err != nil {
		return err
	}
	_, err = s.Run(context.Background())
	return err
}

// fake is a program that acts as a rank and communicates with its helper like
// the run time. It prints a line at each point, saves checkpoints together with
// the others, and harms itself as its arguments say:
//
// nofinish: it does not say that it has finished. late: ranks other than rank 0
// report a checkpoint at the next point. refuse: it ends before its first
// point, with status 2. status=N: it finishes with that status. full=N: the
// first N checkpoints cannot be saved. took=DURATION: it says that checkpoints
// take that long. differs: lines that it prints differ from those of other
// attempts.
//
//	points=20 every=5 kill:RANK:POINT:ATTEMPT exit:… hang:… poison:SET gate:RANK:POINT:FIFO
type fake struct {
	*control.Conn
	*control.Welcome
	point     int
	epoch     uint64
	index     uint64
	full      uint64
	took      time.Duration
	ask       chan *control.Checkpoint
	endpoints chan *control.Endpoints
	faults    []string
	spawns    atomic.Int64
	save      bool
	stop      bool
	loaded    uint64
	late      bool
	untold    *control.Saved
	m         moves
	member    atomic.Bool // false for a destination that waits
}

func fakeRank(args []string) error {
	fmt.Println("a line before anything is restored")
	conn, _, err := control.Inherit()
	if err != nil {
		return err
	}
	w, err := control.Join(conn, "", false, "")
	if err != nil {
		return err
	}
	if w.Move != nil {
		fmt.Fprintln(os.Stderr, "a destination begins")
	}
	f := &fake{Conn: conn, Welcome: w, took: 2 * time.Millisecond, ask: make(chan *control.Checkpoint, 16), endpoints: make(chan *control.Endpoints, 16)}
	f.member.Store(w.Move == nil)
	f.m.some.L, f.m.over = &f.m.mu, make(map[uint64]*control.Switch)
	points, every, status, finish, suffix := 20, 5, 0, true, ""
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "points="); ok {
			points, _ = strconv.Atoi(v)
		} else if v, ok := strings.CutPrefix(a, "every="); ok {
			every, _ = strconv.Atoi(v)
		} else if v, ok := strings.CutPrefix(a, "full="); ok {
			f.full, _ = strconv.ParseUint(v, 10, 64)
		} else if v, ok := strings.CutPrefix(a, "took="); ok {
			f.took, _ = time.ParseDuration(v)
		} else if v, ok := strings.CutPrefix(a, "status="); ok {
			status, _ = strconv.Atoi(v)
		} else if a == "refuse" {
			os.Exit(2)
		} else if a == "differs" {
			suffix = fmt.Sprintf(" of attempt %d", f.Attempt)
		} else if a == "nofinish" {
			finish = false
		} else if a == "late" {
			f.late = f.Rank > 0
		} else {
			f.faults = append(f.faults, a)
		}
	}
	go func() {
		for {
			m, err := conn.Recv()
			if err != nil {
				os.Exit(9)
			}
			switch m := m.(type) {
			case *control.Endpoints:
				if f.member.Load() {
					f.endpoints <- m
				}
			case *control.Checkpoint:
				f.ask <- m
			case *control.Precopy, *control.Pause, *control.Switch:
				f.told(m)
			case *control.Spawn:
				go f.spawn(m)
			case *control.Lost: // act like a rank whose messages fail
				os.Exit(1)
			}
		}
	}()
	if w.Move != nil {
		err = f.takeOver()
	} else {
		err = f.restore()
	}
	if err != nil {
		return err
	}
	for f.point < points {
		f.point++
		f.Send(&control.Progress{Points: uint64(f.point)})
		if err := f.harm(); err != nil {
			return err
		}
		fmt.Printf("rank %d point %d%s\n", f.Rank, f.point, suffix)
		if err := f.coordinate(f.point%every == 0); err != nil {
			return err
		}
		if f.stop {
			m := &control.Stopped{Index: f.index}
			if f.index <= f.full {
				m.Error = "checkpoint not saved: no space left on device"
			}
			f.Send(m)
			return fmt.Errorf("stopped")
		}
	}
	if finish {
		f.Send(&control.Finished{})
	}
	if status != 0 {
		os.Exit(status)
	}
	return nil
}

// coordinate executes a point: rank 0 tells all ranks what to do.
func (f *fake) coordinate(due bool) error {
	for more := f.Rank == 0; more; {
		select {
		case m := <-f.ask:
			f.save, f.stop = true, f.stop || m.Stop
		default:
			more = false
		}
	}
	endpoint := []byte{0, 0, byte(f.wanted())}
	if f.save {
		endpoint[0] = 1
	}
	if f.stop {
		endpoint[1] = 1
	}
	all := f.exchange(endpoint)
	if f.untold != nil { // rank 0 has reported the commit
		f.Send(f.untold)
		f.untold = nil
	}
	if move := all[0][2]; move != 0 { // after everything else at this point
		defer f.pause(uint64(move))
	}
	f.stop = all[0][1] == 1
	f.save = false
	if !due && all[0][0] == 0 {
		return nil
	}
	f.index++
	if f.index <= f.full {
		f.Send(&control.SaveFailed{Index: f.index, Error: fmt.Sprintf("%s: no space left on device", f.file(f.index, f.Rank))})
		f.exchange([]byte{})
		return nil
	}
	st, err := os.Stdout.Stat()
	if err != nil {
		return err
	}
	file := f.file(f.index, f.Rank)
	os.MkdirAll(filepath.Dir(file), 0o777)
	if err := os.WriteFile(file+".tmp", fmt.Appendf(nil, "%d %d", f.point, st.Size()), 0o666); err != nil {
		return err
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return err
	}
	saved := &control.Saved{Index: f.index, Reason: "due", State: 1000, Written: 10, Pause: 1e6, Took: f.took, Stdout: st.Size()}
	if f.late {
		f.untold = saved
	} else {
		f.Send(saved)
	}
	f.exchange([]byte{}) // all have saved
	if f.Rank == 0 {
		f.Send(&control.Committed{Index: f.index})
	}
	return nil
}

func (f *fake) file(index uint64, rank int) string {
	return filepath.Join(f.Dir, fmt.Sprintf("ckpt-%08d", index), fmt.Sprintf("rank-%04d.h5", rank))
}

// exchange is the fake's barrier. It goes through the supervisor, so a rank
// that must outlive its supervisor must be the only one.
func (f *fake) exchange(endpoint []byte) [][]byte {
	if f.Size == 1 {
		return [][]byte{endpoint}
	}
	f.epoch++
	f.Send(&control.Endpoint{Epoch: f.epoch, Data: endpoint})
	m := <-f.endpoints
	if m.Epoch != f.epoch || len(m.Endpoints) != f.Size {
		panic(fmt.Sprintf("endpoints of epoch %d, want %d", m.Epoch, f.epoch))
	}
	return m.Endpoints
}

// restore resumes from the newest complete checkpoint that need not be avoided.
func (f *fake) restore() error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.Dir, "lock"), nil, 0o600); err != nil {
		return err
	}
	if d := store.Open(vfs.OS(), f.Dir, 0); f.Rank == 0 {
		if id, err := d.ID(); err != nil || id == "" {
			if err := errors.Join(err, d.SetID(store.NewID())); err != nil {
				return err
			}
		}
	}
	names, _ := filepath.Glob(filepath.Join(f.Dir, "ckpt-*"))
	for i := len(names) - 1; i >= 0; i-- {
		index, _ := strconv.ParseUint(strings.TrimPrefix(filepath.Base(names[i]), "ckpt-"), 10, 64)
		f.index = max(f.index, index)
		whole := true
		for r := range f.Size {
			_, err := os.Stat(f.file(index, r))
			whole = whole && err == nil
		}
		for _, a := range f.Avoid {
			whole = whole && a != index
		}
		if !whole {
			continue
		}
		text, err := os.ReadFile(f.file(index, f.Rank))
		if err != nil {
			return err
		}
		var size int64
		if _, err := fmt.Sscan(string(text), &f.point, &size); err != nil {
			return err
		}
		st, err := os.Stdout.Stat()
		if err != nil || st.Size() < size {
			return fmt.Errorf("stdout has %d bytes, checkpoint %d needs %d", st.Size(), index, size)
		}
		if err := os.Stdout.Truncate(size); err != nil {
			return err
		}
		f.loaded = index
		f.exchange([]byte{}) // so that all resume from the same checkpoint
		return f.Send(&control.Restored{Index: index, Stdout: size})
	}
	f.exchange([]byte{})
	return f.Send(&control.Restored{Fresh: true})
}

// harm does what the arguments say for this point.
func (f *fake) harm() error {
	for _, fault := range f.faults {
		parts := strings.SplitN(fault, ":", 4)
		if parts[0] == "poison" {
			if parts[1] == fmt.Sprint(f.loaded) && f.Rank == 0 {
				return fmt.Errorf("poisoned by checkpoint %d", f.loaded)
			}
			continue
		}
		if parts[0] == "pause" {
			if f.Rank == 0 && parts[1] == fmt.Sprint(f.point) {
				f.awaitPause(parts[2], append(parts, "1")[3])
			}
			continue
		}
		if parts[0] == "fault" || len(parts) < 4 || parts[1] != fmt.Sprint(f.Rank) || parts[2] != fmt.Sprint(f.point) {
			continue
		}
		if parts[0] == "gate" {
			if p, err := os.OpenFile(parts[3], os.O_RDONLY, 0); err == nil { // blocks until the test opens it, too
				io.Copy(io.Discard, p)
				p.Close()
			}
			continue
		}
		if parts[3] != "0" && parts[3] != fmt.Sprint(f.Attempt) {
			continue
		}
		switch parts[0] {
		case "kill":
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "exit":
			os.Exit(3)
		case "hang":
			signal.Ignore(syscall.SIGTERM)
			time.Sleep(time.Hour)
		}
	}
	return nil
}

// expected returns what a rank prints without failures.
func expected(rank, points int) string {
	var b strings.Builder
	b.WriteString("a line before anything is restored\n")
	for p := 1; p <= points; p++ {
		fmt.Fprintf(&b, "rank %d point %d\n", rank, p)
	}
	return b.String()
}
