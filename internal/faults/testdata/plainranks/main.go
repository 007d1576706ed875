// Plainranks is a program of several ranks for the fault campaign. It does not
// use checkpoints; 'cairn build' makes it restartable.
//
//	plainranks MODE SEED STEPS PAUSE
//
// Modes: ring (messages are in flight at every point), turn (ranks append to
// one file in turn), cells (each rank changes its own bytes of one file), own
// (each rank has a file of its own).
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/faults/testdata/begins"
	"github.com/cairnrun/cairn/mpi"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: plainranks MODE SEED STEPS PAUSE")
		os.Exit(2)
	}
	if err := work(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "plainranks:", err)
		os.Exit(1)
	}
}

func work(ctx context.Context) error {
	seed, _ := strconv.ParseUint(os.Args[2], 10, 64)
	steps, _ := strconv.Atoi(os.Args[3])
	pause, _ := time.ParseDuration(os.Args[4])
	run, err := cairn.Open(ctx, cairn.Options{})
	if err != nil {
		return err
	}
	defer run.Close()
	w := run.World()
	if w.Rank() == 0 {
		begins.Note()
	}
	me, n := w.Rank(), w.Size()
	sum := mix(seed + uint64(me))
	mode := os.Args[1]
	var file *os.File
	switch mode {
	case "turn":
		file, err = os.OpenFile("turn.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	case "cells":
		file, err = os.OpenFile("cells", os.O_CREATE|os.O_RDWR, 0o644)
	case "own":
		file, err = os.Create(fmt.Sprintf("own-%d", me))
	}
	if err != nil {
		return err
	}
	got := []uint64{0}
	for i := 0; i < steps; i++ { //cairn:point
		if err := mpi.Send(w, []uint64{sum + uint64(i)}, (me+1)%n, 3); err != nil {
			return err
		}
		switch mode {
		case "turn":
			for r := range n {
				if r == me {
					if _, err := fmt.Fprintf(file, "step %d rank %d %x\n", i, me, sum); err != nil {
						return err
					}
				}
				if err := w.Barrier(); err != nil {
					return err
				}
			}
		case "cells":
			p := make([]byte, 8)
			file.ReadAt(p, int64(me)*8) // at first the file is empty
			binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)+1)
			if _, err := file.WriteAt(p, int64(me)*8); err != nil {
				return err
			}
		case "own":
			if _, err := fmt.Fprintf(file, "step %d %x\n", i, sum); err != nil {
				return err
			}
		}
		if _, err := mpi.Recv(w, got, (me+n-1)%n, 3); err != nil {
			return err
		}
		sum = mix(sum*31 + got[0])
		if i%5 == 0 {
			fmt.Printf("rank %d step %d sum %x\n", me, i, sum)
		}
		time.Sleep(pause)
	}
	total := []uint64{sum}
	if err := mpi.Allreduce(w, total, total, mpi.Sum[uint64]); err != nil {
		return err
	}
	fmt.Printf("rank %d ends with %x of %x\n", me, sum, total[0])
	return nil
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
