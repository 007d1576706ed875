package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/cairnrun/cairn/mpi"
)

// The message is of 64-bit words:
//
//	0  the step that it belongs to
//	1  hops that it has done since the start of the run
//	2  a checksum over all that every rank received so far
//	3… words that depend on the step and the checksum at its beginning
const (
	atStep = iota
	atHops
	atSum
	header
)

const tag = 1

var errAltered = errors.New("a message was lost, doubled or altered")

// ring is the state of a rank.
type ring struct {
	Step  int
	Token []uint64 // the message, as this rank last had it
	// Of the steps since the last line of output; rank 0's only.
	Count            int
	Sum, Least, Most float64 // microseconds for a hop
}

func newRing(bytes int) *ring {
	return &ring{Token: make([]uint64, bytes/8), Least: math.Inf(1)}
}

// run sends the message around until steps are done, and calls point at the
// beginning of each. At the end rank 0 checks the message, and all ranks return
// its verdict.
func (r *ring) run(c *mpi.Comm, steps, report int, out io.Writer, point func() error) error {
	rank, size := c.Rank(), c.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size
	received := make([]uint64, len(r.Token)) // rank 0's, which has one message out and one coming in
	for r.Step < steps {
		if err := point(); err != nil {
			return err
		}
		if rank == 0 {
			fill(r.Token, r.Step)
			start := time.Now()
			// A ring of one rank sends to itself.
			send := mpi.Isend(c, r.Token, next, tag)
			if _, err := mpi.Recv(c, received, previous, tag); err != nil {
				return err
			}
			if _, err := send.Wait(); err != nil {
				return err
			}
			r.count(time.Since(start), size)
			r.Token, received = received, r.Token
			if err := r.accept(rank, size); err != nil {
				return err
			}
		} else {
			if _, err := mpi.Recv(c, r.Token, previous, tag); err != nil {
				return err
			}
			if err := r.accept(rank, size); err != nil {
				return err
			}
			if err := mpi.Send(c, r.Token, next, tag); err != nil {
				return err
			}
		}
		r.Step++
		if rank == 0 && report > 0 && r.Step%report == 0 {
			if err := r.line(out); err != nil {
				return err
			}
		}
	}
	return r.verdict(c, out)
}

// routes writes which transport connects each rank with the next.
func (r *ring) routes(c *mpi.Comm, out io.Writer) error {
	name, err := c.Transport((c.Rank() + 1) % c.Size())
	if err != nil {
		return err
	}
	var mine [16]byte
	copy(mine[:], name)
	all := make([][16]byte, c.Size())
	if err := mpi.Allgather(c, [][16]byte{mine}, all); err != nil || c.Rank() != 0 {
		return err
	}
	line := fmt.Sprintf("# from step %d by", r.Step)
	for _, name := range all {
		line += " " + string(bytes.TrimRight(name[:], "\x00"))
	}
	_, err = fmt.Fprintln(out, line)
	return err
}

// fill writes the words of a step into a message.
func fill(token []uint64, step int) {
	token[atStep] = uint64(step)
	x := token[atSum]
	for i := range token[header:] {
		x = mix(x + uint64(step) + 1)
		token[header+i] = x
	}
}

// mix is the finalizer of SplitMix64: every bit of x changes about half of the
// bits of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// content returns a checksum of a message's words behind the header, which
// every rank leaves as they are.
func content(token []uint64) uint64 {
	var sum uint64
	for _, w := range token[header:] {
		sum = (sum ^ w) * 0x9e3779b97f4a7c15
	}
	return sum
}

// accept adds the received message to the checksum, after it has checked that
// it is this step's message.
func (r *ring) accept(rank, size int) error {
	hops := uint64(r.Step*size + (rank+size-1)%size)
	if r.Token[atStep] != uint64(r.Step) || r.Token[atHops] != hops {
		return fmt.Errorf("rank %d awaits step %d after %d hops, and got step %d after %d: %w",
			rank, r.Step, hops, r.Token[atStep], r.Token[atHops], errAltered)
	}
	r.Token[atHops]++
	r.Token[atSum] = mix(r.Token[atSum] ^ content(r.Token) + uint64(rank))
	return nil
}

// expected returns the expected message after some steps.
func expected(size, words, steps int) []uint64 {
	token := make([]uint64, words)
	for step := range steps {
		fill(token, step)
		sum := content(token)
		for hop := range size {
			token[atSum] = mix(token[atSum] ^ sum + uint64((hop+1)%size))
		}
		token[atHops] += uint64(size)
	}
	return token
}

// verdict compares the message with the expected one.
func (r *ring) verdict(c *mpi.Comm, out io.Writer) error {
	good := []int64{1}
	if c.Rank() == 0 {
		want := expected(c.Size(), len(r.Token), r.Step)
		for i := range want {
			if r.Token[i] != want[i] {
				good[0] = 0
			}
		}
	}
	if err := mpi.Bcast(c, good, 0); err != nil {
		return err
	}
	if good[0] == 0 {
		return fmt.Errorf("the message is not what it must be after %d steps of %d ranks: %w", r.Step, c.Size(), errAltered)
	}
	if c.Rank() != 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "ring ok ranks=%d steps=%d bytes=%d sum=%016x\n", c.Size(), r.Step, 8*len(r.Token), r.Token[atSum])
	return err
}

// count adds the time of a step.
func (r *ring) count(took time.Duration, size int) {
	hop := float64(took.Nanoseconds()) / 1e3 / float64(size)
	r.Count++
	r.Sum += hop
	r.Least = min(r.Least, hop)
	r.Most = max(r.Most, hop)
}

// line writes the times since the last line.
func (r *ring) line(out io.Writer) error {
	_, err := fmt.Fprintf(out, "%d %.3f %.3f %.3f\n", r.Step, r.Sum/float64(r.Count), r.Least, r.Most)
	r.Count, r.Sum, r.Least, r.Most = 0, 0, math.Inf(1), 0
	return err
}
