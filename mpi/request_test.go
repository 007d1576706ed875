package mpi_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/cairnrun/cairn/mpi"
)

var requestScenes = []scene{
	{"storm", []int{1, 2, 3, 6}, storm},
	{"wait any", []int{1, 4}, waitAny},
	{"test", []int{2}, testCalls},
	{"done requests", []int{2}, doneRequests},
	{"goroutines", []int{1, 2, 3}, goroutines},
}

// storm makes all ranks send messages of all lengths to all ranks, including
// themselves. Receives are posted in one order and completed in another, in all
// possible ways.
func storm(c *mpi.Comm) error {
	const each = 40
	type one struct {
		peer, i int
		buf     []byte
		recv    bool
	}
	r := dice(10, c.Rank())
	length := func(from, to, i int) int { return anyLength(dice(11, from, to, i)) }
	var what []one
	for peer := range c.Size() {
		for i := range each {
			what = append(what,
				one{peer, i, pattern(length(c.Rank(), peer, i), c.Rank(), peer, i), false},
				one{peer, i, make([]byte, length(peer, c.Rank(), i)), true})
		}
	}
	r.Shuffle(len(what), func(i, j int) { what[i], what[j] = what[j], what[i] })
	reqs := make([]*mpi.Request, len(what))
	for i, w := range what {
		if w.recv {
			reqs[i] = mpi.Irecv(c, w.buf, w.peer, w.i)
		} else {
			reqs[i] = mpi.Isend(c, w.buf, w.peer, w.i)
		}
	}
	check := func(i int, st mpi.Status, err error) error {
		if reqs[i] == nil {
			return fmt.Errorf("request %d was completed twice", i)
		}
		reqs[i] = nil
		w := what[i]
		if err != nil || !w.recv {
			return err
		}
		if err := want("status", st, mpi.Status{Source: w.peer, Tag: w.i, Bytes: len(w.buf)}); err != nil {
			return err
		}
		if !bytes.Equal(w.buf, pattern(len(w.buf), w.peer, c.Rank(), w.i)) {
			return fmt.Errorf("message %d from rank %d is wrong", w.i, w.peer)
		}
		return nil
	}
	for left := len(reqs); left > 0; {
		i := r.IntN(len(reqs))
		var st mpi.Status
		var err error
		switch r.IntN(4) {
		case 0:
			if reqs[i] == nil {
				continue
			}
			ok := false
			if ok, st, err = reqs[i].Test(); !ok {
				continue
			}
		case 1:
			// Waiting for one send would do, but not for one of
			// this rank's receives only: both kinds move while
			// waiting.
			if reqs[i] == nil {
				continue
			}
			st, err = reqs[i].Wait()
		case 2:
			i, st, err = mpi.WaitAny(reqs...)
		case 3:
			if i, st, err = mpi.TestAny(reqs...); i < 0 {
				continue
			}
		}
		if err := check(i, st, err); err != nil {
			return err
		}
		left--
	}
	i, _, err := mpi.WaitAny(reqs...)
	if i != -1 || err != nil {
		return fmt.Errorf("wait for any of none: %d, %v", i, err)
	}
	ok, err := mpi.TestAll(reqs...)
	if !ok || err != nil {
		return fmt.Errorf("test of none: %v, %v", ok, err)
	}
	return nil
}

// waitAny shows that WaitAny returns requests as they complete, each once.
func waitAny(c *mpi.Comm) error {
	if c.Rank() != 0 {
		r := dice(12, c.Rank())
		for i := range 10 {
			lag(r)
			if err := mpi.Send(c, []int{c.Rank(), i}, 0, i); err != nil {
				return err
			}
		}
		return nil
	}
	type from struct{ rank, i int }
	var reqs []*mpi.Request
	var who []from
	var bufs [][]int
	for rank := 1; rank < c.Size(); rank++ {
		for i := range 10 {
			who, bufs = append(who, from{rank, i}), append(bufs, make([]int, 2))
			reqs = append(reqs, mpi.Irecv(c, bufs[len(bufs)-1], rank, i))
		}
	}
	for range who {
		i, st, err := mpi.WaitAny(reqs...)
		if err != nil {
			return err
		}
		if i < 0 || reqs[i] == nil {
			return fmt.Errorf("wait returned %d", i)
		}
		reqs[i] = nil
		if err := want("status", st, mpi.Status{Source: who[i].rank, Tag: who[i].i, Bytes: 16}); err != nil {
			return err
		}
		if err := want("message", bufs[i], []int{who[i].rank, who[i].i}); err != nil {
			return err
		}
	}
	i, _, err := mpi.WaitAny(reqs...)
	if i != -1 || err != nil {
		return fmt.Errorf("wait for any of none: %d, %v", i, err)
	}
	return nil
}

// testCalls shows that Test and similar functions return false until a message
// has come, and true in the end, without any blocking call.
func testCalls(c *mpi.Comm) error {
	peer := 1 - c.Rank()
	for _, n := range []int{1, 100000} {
		bufs := [][]int64{make([]int64, n), make([]int64, n), make([]int64, n)}
		var reqs []*mpi.Request
		for i, b := range bufs {
			reqs = append(reqs, mpi.Irecv(c, b, peer, i))
		}
		for _, q := range reqs {
			if ok, _, err := q.Test(); ok || err != nil {
				return fmt.Errorf("test before anything was sent: %v, %v", ok, err)
			}
		}
		if ok, err := mpi.TestAll(reqs...); ok || err != nil {
			return fmt.Errorf("test of all before anything was sent: %v, %v", ok, err)
		}
		if i, _, err := mpi.TestAny(reqs...); i != -1 || err != nil {
			return fmt.Errorf("test of any before anything was sent: %v, %v", i, err)
		}
		if err := c.Barrier(); err != nil {
			return err
		}
		for i := range bufs {
			reqs = append(reqs, mpi.Isend(c, slices.Repeat([]int64{int64(i)}, n), peer, i))
		}
		for {
			ok, err := mpi.TestAll(reqs...)
			if err != nil {
				return err
			}
			if ok {
				break
			}
			runtime.Gosched()
		}
		for i, b := range bufs {
			if err := wantSlice("message", b, slices.Repeat([]int64{int64(i)}, n)); err != nil {
				return err
			}
		}
		if err := c.Barrier(); err != nil {
			return err
		}
	}
	return nil
}

// doneRequests shows that completed requests give the same result when they are
// asked again.
func doneRequests(c *mpi.Comm) error {
	peer := 1 - c.Rank()
	r, s := mpi.Irecv(c, make([]int32, 5), peer, 3), mpi.Isend(c, make([]int32, 4), peer, 3)
	if err := mpi.WaitAll(s, nil, r); err != nil {
		return err
	}
	is := mpi.Status{Source: peer, Tag: 3, Bytes: 16}
	for range 2 {
		st, err := r.Wait()
		if err != nil {
			return err
		}
		if err := want("status", st, is); err != nil {
			return err
		}
		ok, st, err := r.Test()
		if err != nil || !ok {
			return fmt.Errorf("test of a done request: %v, %v", ok, err)
		}
		if err := want("status", st, is); err != nil {
			return err
		}
		if i, _, err := mpi.WaitAny(nil, r, s); i != 1 || err != nil {
			return fmt.Errorf("wait for any of done requests: %d, %v", i, err)
		}
	}
	// All errors are returned, not only the first.
	r1, r2 := mpi.Irecv(c, []byte{0}, peer, 1), mpi.Irecv(c, []byte{0, 0}, peer, 2)
	s1, s2 := mpi.Isend(c, []byte{1, 2}, peer, 1), mpi.Isend(c, []byte{1, 2}, peer, 2)
	if err := wantErr("wait for all", mpi.WaitAll(r1, r2, s1, s2), mpi.ErrTruncated); err != nil {
		return err
	}
	_, err := r2.Wait()
	return err
}

// goroutines makes several goroutines of a rank wait for messages at the same
// time, each in a separate conversation.
func goroutines(c *mpi.Comm) error {
	const talks = 6
	to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	errs := make([]error, talks)
	var wg sync.WaitGroup
	for g := range talks {
		wg.Go(func() {
			errs[g] = func() error {
				for i := range 60 {
					n := anyLength(dice(13, g, i))
					buf := make([]byte, n)
					if _, err := mpi.Sendrecv(c, pattern(n, c.Rank(), g, i), to, g, buf, from, g); err != nil {
						return err
					}
					if !bytes.Equal(buf, pattern(n, from, g, i)) {
						return fmt.Errorf("message %d of goroutine %d is wrong", i, g)
					}
				}
				return nil
			}()
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
