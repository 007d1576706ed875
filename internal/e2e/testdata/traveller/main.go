// Traveller is a program whose ranks are moved. In each step a rank sends a
// number before the point and receives its neighbour's after it, so that
// messages are in flight whenever it is moved. It changes a part of its memory,
// and writes a line to standard output and to a file of its own. At one step it
// waits until a file exists, with points and messages all the time. In its
// directory are:
//
//	gate      the file that it waits for
//	hold      while it exists, a process that starts does not continue
//	busy      while it exists, a rank that waits for the gate reaches no point
//	pid-R-N   rank R is, or was, process N
//	files/R   the file of rank R
//	routes-R  which transports its messages used in the end, by rank
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

type state struct {
	Step  int
	Sum   uint64
	Data  []uint64
	Spins []uint64 // changed at each point while it waits
	Log   *os.File
}

func main() {
	steps := flag.Int("steps", 60, "steps")
	at := flag.Int("at", 30, "step at which it waits")
	words := flag.Int("words", 1<<15, "words of memory")
	ballast := flag.Int("ballast", 0, "MiB of memory that are not part of the state")
	fill := flag.Int("fill", 0, "bytes in the file before the first line")
	dir := flag.String("dir", ".", "its dir")
	flag.Parse()
	weight := make([]byte, *ballast<<20)
	for i := 0; i < len(weight); i += 4096 {
		weight[i] = 1
	}
	if err := run(context.Background(), *steps, *at, *words, *fill, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "traveller:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(75)
		}
		os.Exit(1)
	}
	runtime.KeepAlive(weight)
}

func run(ctx context.Context, steps, at, words, fill int, dir string) (err error) {
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	for there("hold") {
		time.Sleep(time.Millisecond)
	}
	p, err := cairn.Open(ctx, cairn.Options{Every: 1 << 60})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	c := p.World()
	rank, size := c.Rank(), c.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("pid-%d-%d", rank, os.Getpid())), nil, 0o666); err != nil {
		return err
	}
	s := &state{Data: make([]uint64, words), Spins: make([]uint64, 1<<12)}
	if s.Log, err = p.OpenFile(filepath.Join(dir, "files", fmt.Sprint(rank)), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o666); err != nil {
		return err
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
	if !resumed {
		if _, err := s.Log.WriteString(strings.Repeat("x", fill)); err != nil {
			return err
		}
	}
	for s.Step < steps {
		if !resumed && size > 1 { // messages that were sent before the restored point are in flight
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
		if s.Step == at {
			ready := []uint64{0}
			if there("gate") {
				ready[0] = 1
			}
			if err := mpi.Allreduce(c, ready, ready, mpi.Min[uint64]); err != nil {
				return err
			}
			if ready[0] == 0 {
				s.Spins[0]++
				s.Spins[s.Spins[0]%uint64(len(s.Spins))] += got[0]
				for first := true; first || there("busy"); first = false {
					time.Sleep(time.Millisecond)
				}
				continue
			}
		}
		s.Sum = mix(got[0] + s.Data[int(got[0]%uint64(words))])
		for i := s.Step % 16; i < words; i += 16 {
			s.Data[i] = mix(s.Data[i] + s.Sum)
		}
		fmt.Printf("rank %d step %d sum %016x\n", rank, s.Step, s.Sum)
		if _, err := fmt.Fprintf(s.Log, "rank %d step %d sum %016x\n", rank, s.Step, s.Sum); err != nil {
			return err
		}
		s.Step++
	}
	all := uint64(0)
	for _, w := range s.Data {
		all = mix(all + w)
	}
	fmt.Printf("rank %d ends with %016x\n", rank, all)
	routes := make([]string, size)
	for r := range routes {
		if r != rank {
			routes[r], _ = c.Transport(r)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("routes-%d", rank)), []byte(strings.Join(routes, " ")), 0o666); err != nil {
		return err
	}
	p.Finish()
	return nil
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
