// Flight is a program whose every point lies between sends and receives: at
// each checkpoint, messages of all kinds are in flight. Between the sends and
// the point it waits for nothing, and it receives only after the point, so
// that is certain and not a matter of luck.
//
// In each step every rank, before the point,
//   - sends small messages to all others, which nobody has asked for yet,
//   - begins to send a large one to the next rank, which is not received yet
//     (announced, its payload still here),
//   - posts a receive from any rank for a message that is sent after the point,
//   - posts a receive for a large message and begins to send one that meets
//     such a receive;
//
// and after it takes them all, from any rank where it can, and looks whether
// each one is the next of its sender, and as it should be.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

const (
	small  = 3 // messages of each tag to each rank, in a step
	tagA   = 10
	tagB   = 11
	tagBig = 20
	tagAny = 30
	tagMet = 40
)

// state is what a rank carries from point to point.
type state struct {
	Step int
	Sum  uint64
	Seen map[int][2]int // small messages received so far, by sender, of tag A and B

	BigOut, MetOut   []uint64 // what is being sent
	Big, Met         *mpi.Request
	AnyIn, MetIn     []uint64
	AnyRecv, MetRecv *mpi.Request
}

func main() {
	steps := flag.Int("steps", 100, "steps")
	big := flag.Int("big", 300<<10, "bytes of the large messages")
	flag.Parse()
	if err := run(context.Background(), *steps, *big/8); err != nil {
		fmt.Fprintln(os.Stderr, "flight:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(75)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, steps, words int) (err error) {
	p, err := cairn.Open(ctx, cairn.Options{Every: 1 << 60})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	s := &state{Seen: make(map[int][2]int)}
	if err := cairn.Protect(p, "state", &s); err != nil {
		return err
	}
	resumed, err := p.Restore(ctx)
	if err != nil {
		return err
	}
	c := p.World()
	if c.Rank() == 0 {
		name, _ := c.Transport(1)
		fmt.Fprintf(os.Stderr, "flight: step %d by %s\n", s.Step, name)
	}
	for ; s.Step < steps; s.Step++ {
		if !resumed {
			if err := s.send(c, words); err != nil {
				return err
			}
		}
		resumed = false // the point that saved comes again, and what was sent before it was
		if err := p.Point(ctx); err != nil {
			return err
		}
		if err := s.receive(c, words); err != nil {
			return err
		}
	}
	total := []uint64{s.Sum}
	if err := mpi.Allreduce(c, total, total, mpi.Sum); err != nil {
		return err
	}
	if c.Rank() == 0 {
		fmt.Printf("flight ok ranks=%d steps=%d sum=%016x\n", c.Size(), s.Step, total[0])
	}
	p.Finish()
	return nil
}

// word is word i of the message with a number that a rank sends with a tag.
func word(from, to, tag, number, i int) uint64 {
	x := uint64(from)<<56 ^ uint64(to)<<48 ^ uint64(tag)<<40 ^ uint64(number)<<16 ^ uint64(i)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// message is a message; its first word is its number.
func message(from, to, tag, number, words int) []uint64 {
	m := make([]uint64, words)
	m[0] = uint64(number)
	for i := range m[1:] {
		m[i+1] = word(from, to, tag, number, i+1)
	}
	return m
}

// look checks a message and adds it to the sum, in which the order of
// different senders does not matter.
func (s *state) look(c *mpi.Comm, got []uint64, from, tag, number int) error {
	want := message(from, c.Rank(), tag, number, len(got))
	sum := uint64(tag)
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("rank %d, step %d: message %d of rank %d with tag %d: word %d of %d is %x instead of %x (it says that it is message %d)",
				c.Rank(), s.Step, number, from, tag, i, len(got), got[i], want[i], got[0])
		}
		sum = sum*0x9e3779b97f4a7c15 + want[i]
	}
	s.Sum += sum
	return nil
}

// send does what is done before the point.
func (s *state) send(c *mpi.Comm, words int) error {
	rank, size := c.Rank(), c.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size
	s.AnyIn, s.MetIn = make([]uint64, 64), make([]uint64, words)
	s.AnyRecv = mpi.Irecv(c, s.AnyIn, mpi.AnySource, tagAny)
	s.MetRecv = mpi.Irecv(c, s.MetIn, next, tagMet)
	for to := range size {
		if to == rank {
			continue
		}
		for i := range small {
			for _, tag := range []int{tagA, tagB} {
				if err := mpi.Send(c, message(rank, to, tag, s.Step*small+i, 8+i), to, tag); err != nil {
					return err
				}
			}
		}
	}
	s.BigOut = message(rank, next, tagBig, s.Step, words)
	s.Big = mpi.Isend(c, s.BigOut, next, tagBig)
	s.MetOut = message(rank, previous, tagMet, s.Step, words/2)
	s.Met = mpi.Isend(c, s.MetOut, previous, tagMet)
	return nil
}

// receive does what is done after the point.
func (s *state) receive(c *mpi.Comm, words int) error {
	rank, size := c.Rank(), c.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size
	if err := mpi.Send(c, message(rank, next, tagAny, s.Step, 64), next, tagAny); err != nil {
		return err
	}
	buf := make([]uint64, 8+small)
	for k, tag := range []int{tagA, tagB} {
		for range small * (size - 1) {
			st, err := mpi.Recv(c, buf, mpi.AnySource, tag)
			if err != nil {
				return err
			}
			seen := s.Seen[st.Source]
			if n := mpi.Count[uint64](st); n != 8+seen[k]%small {
				return fmt.Errorf("rank %d, step %d: a message of rank %d with tag %d has %d words", rank, s.Step, st.Source, tag, n)
			}
			if err := s.look(c, buf[:mpi.Count[uint64](st)], st.Source, tag, seen[k]); err != nil {
				return err
			}
			seen[k]++
			s.Seen[st.Source] = seen
		}
	}
	big := make([]uint64, words)
	if _, err := mpi.Recv(c, big, previous, tagBig); err != nil {
		return err
	}
	if err := s.look(c, big, previous, tagBig, s.Step); err != nil {
		return err
	}
	st, err := s.AnyRecv.Wait()
	if err != nil {
		return err
	}
	if st.Source != previous || st.Bytes != 8*64 {
		return fmt.Errorf("rank %d, step %d: %d bytes of rank %d for the receive from any rank", rank, s.Step, st.Bytes, st.Source)
	}
	if err := s.look(c, s.AnyIn, previous, tagAny, s.Step); err != nil {
		return err
	}
	if st, err = s.MetRecv.Wait(); err != nil {
		return err
	}
	if err := s.look(c, s.MetIn[:mpi.Count[uint64](st)], next, tagMet, s.Step); err != nil {
		return err
	}
	return mpi.WaitAll(s.Big, s.Met)
}
