package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/p2p"
	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/shm"
	"github.com/cairnrun/cairn/internal/transport/tcp"
	"github.com/cairnrun/cairn/mpi"
)

// This file is the program of a rank that the benchmark starts under "cairn
// run": bench -as ROLE -to FILE. Rank 0 writes lines "NAME VALUE" into FILE.

// messageSize says how a message size is measured: by batches of round trips,
// of which the fastest counts, as in NetPIPE. Slower batches were disturbed by
// other programs; short batches have a chance to run undisturbed.
type messageSize struct{ size, batch, batches int }

var messageSizes = []messageSize{
	{1, 50, 500},
	{1 << 10, 30, 300}, {4 << 10, 20, 300}, {16 << 10, 10, 200}, {64 << 10, 4, 200}, {256 << 10, 1, 200},
	{1 << 20, 1, 100}, {4 << 20, 1, 50}, {16 << 20, 1, 20},
}

// rank is a rank of a measurement.
type rank struct {
	ctx   context.Context
	p     *cairn.Run
	world *mpi.Comm
	state state
	out   *bufio.Writer // nil: not rank 0
}

func (r *rank) say(name string, v float64) {
	if r.out != nil {
		fmt.Fprintf(r.out, "%s %g\n", name, v)
	}
}

// runRank runs a role as a rank.
func runRank(ctx context.Context, role, to string) (err error) {
	r := &rank{ctx: ctx}
	body := map[string]func() error{"pingpong": r.pingpong, "count": r.count, "quiesce": r.quiesce, "arrays": r.arrays}[role]
	if body == nil {
		return fmt.Errorf("no role %q", role)
	}
	r.p, err = cairn.Open(ctx, cairn.Options{Every: 24 * time.Hour, OnSaved: func(s cairn.CheckpointInfo) { r.state.safe++ }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.p.Close()) }()
	r.world = r.p.World()
	if r.world.Rank() == 0 {
		f, err := os.Create(to)
		if err != nil {
			return err
		}
		defer f.Close()
		r.out = bufio.NewWriter(f)
		defer r.out.Flush()
	}
	cairn.Protect(r.p, "state", &r.state)
	if _, err := r.p.Restore(ctx); err != nil {
		return err
	}
	if err := body(); err != nil {
		return err
	}
	r.p.Finish()
	return nil
}

// roundTrips sends a buffer back and forth between ranks 0 and 1, n times, and
// returns the seconds for one way.
func roundTrips(c *mpi.Comm, buf []byte, n int) (float64, error) {
	begin := time.Now()
	first, other := c.Rank() == 0, 1-c.Rank()
	for range n {
		if first {
			if err := mpi.Send(c, buf, other, 0); err != nil {
				return 0, err
			}
		}
		if _, err := mpi.Recv(c, buf, other, 0); err != nil {
			return 0, err
		}
		if !first {
			if err := mpi.Send(c, buf, other, 0); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(begin).Seconds() / float64(2*n), nil
}

// pingpong measures all sizes.
func (r *rank) pingpong() error {
	for _, t := range messageSizes {
		buf := make([]byte, t.size)
		best := math.Inf(1)
		for range t.batches {
			s, err := roundTrips(r.world, buf, t.batch)
			if err != nil {
				return err
			}
			best = min(best, s)
		}
		r.say(strconv.Itoa(t.size), best)
	}
	return nil
}

// count compares the run's communicator, whose messages are counted for
// checkpoints, with two uncounted ones: one to compare with, and one to show
// the noise. They take turns, so that all meet the same disturbances.
func (r *rank) count() error {
	way, err := r.world.Transport(1 - r.world.Rank())
	if err != nil {
		return err
	}
	comms := [3]*mpi.Comm{r.world}
	for i := range comms[1:] {
		c, done, err := r.uncounted(way)
		if err != nil {
			return err
		}
		defer done()
		comms[i+1] = c
	}
	batch, turns := 100, 3000
	if way != "shm" {
		batch, turns = 20, 1500
	}
	var got [3][]float64
	buf := make([]byte, 1)
	for turn := range turns {
		for i := range comms {
			if turn%2 == 1 {
				i = len(comms) - 1 - i
			}
			s, err := roundTrips(comms[i], buf, batch)
			if err != nil {
				return err
			}
			got[i] = append(got[i], s)
		}
	}
	for i, name := range []string{"counted", "uncounted", "uncounted2"} {
		slices.Sort(got[i])
		r.say(name, got[i][len(got[i])/10]) // on a loaded machine, some batches still run undisturbed
		r.say(name+"-median", got[i][len(got[i])/2])
	}
	return nil
}

// uncounted connects the ranks a second time, without counting.
func (r *rank) uncounted(way string) (*mpi.Comm, func(), error) {
	me, size := r.world.Rank(), r.world.Size()
	var d transport.Driver
	var err error
	switch way {
	case "shm":
		d, err = shm.Open(shm.Options{Rank: me, Size: size, Host: "bench", Run: "bench"})
	case "tcp":
		d, err = tcp.Open(tcp.Options{Rank: me, Size: size, Host: "bench", Secret: make([]byte, 32), Listen: "127.0.0.1"})
	default:
		err = fmt.Errorf("no transport %q to compare with", way)
	}
	if err != nil {
		return nil, nil, err
	}
	e, err := p2p.New(p2p.Config{
		Rank: me, Size: size, Machine: "bench", Drivers: []transport.Driver{d}, Uncounted: true,
		Exchange: r.exchange,
	})
	if err == nil {
		err = e.Connect(r.ctx)
	}
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return (*mpi.Comm)(e.World()), func() {
		e.Close(r.ctx, true)
		d.Close()
	}, nil
}

// exchange gives the endpoints of all ranks to all ranks, over the run's
// communicator.
func (r *rank) exchange(_ context.Context, endpoint []byte) ([][]byte, error) {
	const most = 64 << 10
	if len(endpoint) > most-4 {
		return nil, fmt.Errorf("an endpoint of %d bytes", len(endpoint))
	}
	mine, all := make([]byte, most), make([]byte, most*r.world.Size())
	mine[0], mine[1], mine[2] = byte(len(endpoint)), byte(len(endpoint)>>8), byte(len(endpoint)>>16)
	copy(mine[4:], endpoint)
	if err := mpi.Allgather(r.world, mine, all); err != nil {
		return nil, err
	}
	endpoints := make([][]byte, r.world.Size())
	for i := range endpoints {
		b := all[i*most:]
		endpoints[i] = b[4 : 4+int(b[0])+int(b[1])<<8+int(b[2])<<16]
	}
	return endpoints, nil
}

// state is the saved state, as little as possible. It records when it is saved.
type state struct {
	step  int
	saved bool
	safe  int // number of checkpoints
}

func (s *state) CairnState(c *cairn.Coder) error {
	cairn.Field(c, "step", &s.step)
	s.saved = !c.Restoring()
	return nil
}

// quiesceSets is the number of checkpoints that quiesce requests. The first one
// is not counted.
const quiesceSets = 11

// quiesce measures the time from a request on rank 0 until the last rank has
// copied its state and continues. The program passes a message around a ring,
// with a point at every step.
func (r *rank) quiesce() error {
	c := r.world
	n := c.Size()
	right, left := (c.Rank()+1)%n, (c.Rank()+n-1)%n
	var asked, gone []int64 // wall-clock times; all ranks are on one machine
	// The message carries the step at which all ranks end, once rank 0 knows
	// it.
	last, in := []int64{math.MaxInt64}, []int64{0}
	r.state.saved = false // it was handled before
	for pause := 0; int64(r.state.step) < last[0]; r.state.step++ {
		if _, err := mpi.Sendrecv(c, last, right, 0, in, left, 0); err != nil {
			return err
		}
		last[0] = min(last[0], in[0])
		if pause--; c.Rank() == 0 && pause < 0 && len(asked) == r.state.safe && last[0] == math.MaxInt64 {
			if len(asked) == quiesceSets {
				last[0] = int64(r.state.step + 2*n)
			} else {
				asked = append(asked, time.Now().UnixNano())
				r.p.Request()
				pause = 20
			}
		}
		if err := r.p.Point(r.ctx); err != nil {
			return err
		}
		if r.state.saved {
			r.state.saved = false
			gone = append(gone, time.Now().UnixNano())
		}
	}
	if len(gone) != quiesceSets {
		return fmt.Errorf("rank %d saw %d sets, not %d", c.Rank(), len(gone), quiesceSets)
	}
	latest := make([]int64, len(gone))
	if err := mpi.Reduce(c, gone, latest, mpi.Max, 0); err != nil {
		return err
	}
	for i := 1; i < len(asked); i++ {
		r.say("quiesce", float64(latest[i]-asked[i])/1e9)
	}
	return nil
}
