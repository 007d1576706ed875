// Traveller is a program whose ranks are moved. In each step a rank sends a
// number before the point and takes its neighbour's after it, so that messages
// are under way whenever it is moved, changes a part of its memory, and writes a
// line to standard output and to a file of its own. At one step it waits until a
// file is there, with points and messages all the time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

type state struct {
	Step  int
	Sum   uint64
	Spins uint64 // points while it waits
	Data  []uint64
	Log   *os.File
}

func main() {
	steps := flag.Int("steps", 60, "steps")
	at := flag.Int("at", 30, "step at which it waits")
	gate := flag.String("gate", "", "file that it waits for")
	words := flag.Int("words", 1<<15, "words of memory")
	files := flag.String("files", "", "folder for a file of each rank")
	flag.Parse()
	if err := run(context.Background(), *steps, *at, *words, *gate, *files); err != nil {
		fmt.Fprintln(os.Stderr, "traveller:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(75)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, steps, at, words int, gate, files string) (err error) {
	p, err := cairn.Open(ctx, cairn.Options{Every: 1 << 60})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	c := p.World()
	rank, size := c.Rank(), c.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size
	s := &state{Data: make([]uint64, words)}
	if files != "" {
		if s.Log, err = p.OpenFile(fmt.Sprintf("%s/rank-%d", files, rank), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o666); err != nil {
			return err
		}
	}
	for i := range s.Data {
		s.Data[i] = mix(uint64(rank)<<32 + uint64(i))
	}
	if err := cairn.Protect(p, "state", &s); err != nil {
		return err
	}
	resumed, err := p.Restore(ctx)
	if err != nil {
		return err
	}
	for s.Step < steps {
		if !resumed && size > 1 { // what was sent before the point that saved is under way
			if err := mpi.Send(c, []uint64{s.Sum + uint64(s.Step)}, next, 7); err != nil {
				return err
			}
		}
		resumed = false
		if err := p.Point(ctx); err != nil {
			return err
		}
		got := []uint64{s.Sum + uint64(s.Step)}
		if size > 1 {
			if _, err := mpi.Recv(c, got, previous, 7); err != nil {
				return err
			}
		}
		if s.Step == at && gate != "" {
			ready := []uint64{0}
			if _, err := os.Stat(gate); err == nil {
				ready[0] = 1
			}
			if err := mpi.Allreduce(c, ready, ready, mpi.Min[uint64]); err != nil {
				return err
			}
			if ready[0] == 0 {
				s.Spins++
				s.Data[s.Spins%uint64(words)] ^= got[0] // and again, with the next
				s.Data[s.Spins%uint64(words)] ^= got[0]
				time.Sleep(time.Millisecond)
				continue
			}
		}
		s.Sum = mix(got[0] + s.Data[int(got[0]%uint64(words))])
		for i := s.Step % 16; i < words; i += 16 {
			s.Data[i] = mix(s.Data[i] + s.Sum)
		}
		fmt.Printf("rank %d step %d sum %016x\n", rank, s.Step, s.Sum)
		if s.Log != nil {
			if _, err := fmt.Fprintf(s.Log, "step %d sum %016x\n", s.Step, s.Sum); err != nil {
				return err
			}
		}
		s.Step++
	}
	all := uint64(0)
	for _, w := range s.Data {
		all = mix(all + w)
	}
	fmt.Printf("rank %d ends with %016x\n", rank, all)
	p.Finish()
	return nil
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
