package mpi_test

import (
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/mpi"
)

var commScenes = []scene{
	{"split", upTo(7), split},
	{"split by key", upTo(6), splitByKey},
	{"undefined", upTo(5), undefined},
	{"nested", []int{1, 4, 8, 9}, nested},
	{"dup is apart", []int{1, 2, 3}, dupApart},
	{"halves at work", []int{2, 5, 6}, halves},
	{"many", []int{3}, manyComms},
	{"collectives are apart", []int{1, 2, 5}, collectivesApart},
}

func split(c *mpi.Comm) error {
	d, err := c.Split(c.Rank()%3, 0)
	if err != nil {
		return err
	}
	var members []int // equal keys: the order of ranks
	for r := c.Rank() % 3; r < c.Size(); r += 3 {
		members = append(members, r)
	}
	return isGroup(c, d, members)
}

// isGroup checks that d consists of these ranks of c, in that order, as seen by
// this rank and all others of d.
func isGroup(c, d *mpi.Comm, members []int) error {
	if err := want("size", d.Size(), len(members)); err != nil {
		return err
	}
	if err := want("rank", d.Rank(), slices.Index(members, c.Rank())); err != nil {
		return err
	}
	// Each rank tells each other rank who it is, and statuses have ranks of d.
	var reqs []*mpi.Request
	for to := range d.Size() {
		reqs = append(reqs, mpi.Isend(d, []int{c.Rank(), to}, to, 3))
	}
	for range members {
		got := make([]int, 2)
		st, err := mpi.Recv(d, got, mpi.AnySource, 3)
		if err != nil {
			return err
		}
		if err := want(fmt.Sprintf("who rank %d is", st.Source), got, []int{members[st.Source], d.Rank()}); err != nil {
			return err
		}
	}
	if err := mpi.WaitAll(reqs...); err != nil {
		return err
	}
	all := make([]int, d.Size())
	if err := mpi.Allgather(d, []int{c.Rank()}, all); err != nil {
		return err
	}
	return want("members", all, members)
}

func splitByKey(c *mpi.Comm) error {
	n := c.Size()
	d, err := c.Split(5, n-c.Rank())
	if err != nil {
		return err
	}
	members := upTo(n)
	for i := range members {
		members[i] = n - 1 - i
	}
	if err := isGroup(c, d, members); err != nil {
		return err
	}
	// Negative keys, and ties in c's order.
	if d, err = d.Split(0, -(c.Rank() % 2)); err != nil {
		return err
	}
	slices.SortStableFunc(members, func(a, b int) int { return b%2 - a%2 })
	return isGroup(c, d, members)
}

func undefined(c *mpi.Comm) error {
	color := 0
	if c.Rank()%2 == 1 {
		color = mpi.Undefined
	}
	d, err := c.Split(color, 0)
	if err != nil {
		return err
	}
	if color == mpi.Undefined {
		if d != nil {
			return fmt.Errorf("a rank that is left out got a communicator of %d", d.Size())
		}
	} else if err := want("size", d.Size(), (c.Size()+1)/2); err != nil {
		return err
	}
	// No rank at all takes part.
	if d, err := c.Split(mpi.Undefined, 0); d != nil || err != nil {
		return fmt.Errorf("all left out: %v, %v", d, err)
	}
	// An invalid color.
	if _, err := c.Split(-7, 0); err == nil {
		return fmt.Errorf("color -7 gave no error")
	}
	return c.Barrier()
}

// nested uses the rows and columns of a square, and the rows' halves.
func nested(c *mpi.Comm) error {
	const side = 3
	row, err := c.Split(c.Rank()/side, c.Rank())
	if err != nil {
		return err
	}
	col, err := c.Split(c.Rank()%side, c.Rank())
	if err != nil {
		return err
	}
	half, err := row.Split(row.Rank()/2, -row.Rank())
	if err != nil {
		return err
	}
	// Use all three and c, with the same tag.
	for _, d := range []*mpi.Comm{row, c, half, col, row} {
		got := []int{0}
		if err := mpi.Allreduce(d, []int{1}, got, mpi.Sum); err != nil {
			return err
		}
		if err := want("size by sum", got[0], d.Size()); err != nil {
			return err
		}
		to, from := (d.Rank()+1)%d.Size(), (d.Rank()+d.Size()-1)%d.Size()
		if _, err := mpi.Sendrecv(d, []int{d.Rank()}, to, 1, got, from, 1); err != nil {
			return err
		}
		if err := want("left neighbour", got[0], from); err != nil {
			return err
		}
	}
	members := []int{c.Rank()}
	if r := row.Rank(); r == 0 && row.Size() > 1 {
		members = []int{c.Rank() + 1, c.Rank()}
	} else if r == 1 {
		members = []int{c.Rank(), c.Rank() - 1}
	}
	return isGroup(c, half, members)
}

// dupApart shows that messages of one communicator cannot be received in
// another of the same ranks, not even with wildcards.
func dupApart(c *mpi.Comm) error {
	d, err := c.Dup()
	if err != nil {
		return err
	}
	e, err := d.Dup()
	if err != nil {
		return err
	}
	to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	for _, n := range []int{1, 50000} {
		in := make([]int, n)
		early := mpi.Irecv(e, in, mpi.AnySource, mpi.AnyTag)
		s1 := mpi.Isend(d, slices.Repeat([]int{1}, n), to, 1)
		s2 := mpi.Isend(c, slices.Repeat([]int{2}, n), to, 1)
		if _, err := d.Probe(from, 1); err != nil {
			return err
		}
		if _, err := c.Probe(from, 1); err != nil {
			return err
		}
		// Both messages have arrived; the receive in e gets none, and e sees
		// none.
		if ok, _, err := early.Test(); ok || err != nil {
			return fmt.Errorf("a message of another communicator was received: %v, %v", ok, err)
		}
		if ok, _, err := e.Iprobe(mpi.AnySource, mpi.AnyTag); ok || err != nil {
			return fmt.Errorf("a message of another communicator was seen: %v, %v", ok, err)
		}
		if err := c.Barrier(); err != nil { // all have looked
			return err
		}
		s3 := mpi.Isend(e, slices.Repeat([]int{3}, n), to, 1)
		if _, err := early.Wait(); err != nil {
			return err
		}
		if err := wantSlice("message in e", in, slices.Repeat([]int{3}, n)); err != nil {
			return err
		}
		for i, x := range []*mpi.Comm{c, d} {
			if _, err := mpi.Recv(x, in, mpi.AnySource, mpi.AnyTag); err != nil {
				return err
			}
			if err := wantSlice("message", in, slices.Repeat([]int{2 - i}, n)); err != nil {
				return err
			}
		}
		if err := mpi.WaitAll(s1, s2, s3); err != nil {
			return err
		}
	}
	return nil
}

// halves shows that the groups of one split work at the same time, at their own
// speed.
func halves(c *mpi.Comm) error {
	d, err := c.Split(c.Rank()%2, c.Rank())
	if err != nil {
		return err
	}
	r := dice(20, c.Rank())
	for i := range 20 * (1 + c.Rank()%2) {
		got := []int{0}
		if err := mpi.Allreduce(d, []int{i}, got, mpi.Sum); err != nil {
			return err
		}
		if err := want("sum", got[0], i*d.Size()); err != nil {
			return err
		}
		lag(r)
	}
	return c.Barrier()
}

// manyComms shows that communicators are not used up quickly, and differ.
func manyComms(c *mpi.Comm) error {
	var all []*mpi.Comm
	for i := range 50 {
		d, err := c.Split(i%2*c.Rank(), 0)
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	var reqs []*mpi.Request
	got := make([]int, len(all))
	for i, d := range all {
		reqs = append(reqs, mpi.Irecv(d, got[i:i+1], mpi.AnySource, 0))
	}
	for i := len(all) - 1; i >= 0; i-- {
		d := all[i]
		reqs = append(reqs, mpi.Isend(d, []int{i}, (d.Rank()+1)%d.Size(), 0))
	}
	if err := mpi.WaitAll(reqs...); err != nil {
		return err
	}
	for i := range got {
		if got[i] != i {
			return fmt.Errorf("communicator %d brought a message of %d", i, got[i])
		}
	}
	return nil
}

// collectivesApart shows that pending wildcard receives get no messages of
// collectives.
func collectivesApart(c *mpi.Comm) error {
	var reqs []*mpi.Request
	got := make([]int, 4)
	for i := range got {
		reqs = append(reqs, mpi.Irecv(c, got[i:i+1], mpi.AnySource, mpi.AnyTag))
	}
	x, y := make([]int, 10000), make([]int, 10000)
	for range 3 {
		if err := steps("collectives",
			c.Barrier,
			func() error { return mpi.Bcast(c, x, c.Size()-1) },
			func() error { return mpi.Allreduce(c, x, y, mpi.Max) },
			func() error { return mpi.Allgather(c, x[:1], y[:c.Size()]) },
			func() error { return mpi.Alltoall(c, x[:c.Size()], y[:c.Size()]) },
			func() error { _, err := c.Dup(); return err },
		); err != nil {
			return err
		}
	}
	if i, _, err := mpi.TestAny(reqs...); i >= 0 || err != nil {
		return fmt.Errorf("a receive got something of a collective: %d, %v", i, err)
	}
	if err := c.Barrier(); err != nil { // all have looked
		return err
	}
	to := (c.Rank() + 1) % c.Size()
	for i := range got {
		reqs = append(reqs, mpi.Isend(c, []int{10 + i}, to, i))
	}
	if err := mpi.WaitAll(reqs...); err != nil {
		return err
	}
	return want("messages", got, []int{10, 11, 12, 13})
}
