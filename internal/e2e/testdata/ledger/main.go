// Ledger changes files that all its ranks share, in every way that is possible
// without a race: in turn, each its own part, by appending. It does not use
// checkpoints: 'cairn build' finds its points.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

var (
	rounds = flag.Int("rounds", 40, "rounds")
	die    = flag.String("die", "", "where ranks kill themselves: RANK.ROUND.PLACE,…")
	mode   = flag.String("mode", "", "streams or solo, for one rank")
	marks  = flag.String("marks", "", "directory that tells which of these have happened")
)

func main() {
	flag.Parse()
	if dir, err := filepath.Abs(*marks); err == nil {
		*marks = dir // the program changes its working directory
	}
	do := work
	switch *mode {
	case "streams":
		do = streams
	case "solo":
		do = solo
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

type ledger struct {
	world    *mpi.Comm
	rank, n  int
	round    int
	turns    *os.File
	counters *os.File
	log      *os.File
}

// dies kills the process, once. Cairn does not see what is changed by a system
// call.
func (l *ledger) dies(place string) {
	me := fmt.Sprintf("%d.%d.%s", l.rank, l.round, place)
	if strings.Contains(","+*die+",", ","+me+",") && syscall.Mkdir(filepath.Join(*marks, me), 0o700) == nil {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

func work() error {
	run, err := cairn.Open(context.Background(), cairn.Options{EveryPoints: 1000})
	if err != nil {
		return err
	}
	defer run.Close()
	l := &ledger{world: run.World(), rank: run.Rank(), n: run.Ranks()}
	if l.turns, err = os.OpenFile("turns", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
		return err
	}
	if l.counters, err = os.OpenFile("counters", os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return err
	}
	if l.log, err = os.OpenFile("log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
		return err
	}
	for l.round = 0; l.round < *rounds; l.round++ {
		if err := l.step(); err != nil {
			return err
		}
	}
	if err := l.world.Barrier(); err != nil {
		return err
	}
	if l.rank == 0 {
		fmt.Println("rounds", l.round)
	}
	return nil
}

func (l *ledger) step() error {
	if err := l.own(); err != nil {
		return err
	}
	l.dies("own")
	for r := range l.n {
		if err := l.world.Barrier(); err != nil {
			return err
		}
		if r == l.rank {
			if err := l.turn(); err != nil {
				return err
			}
		}
	}
	return l.world.Barrier()
}

// own changes this rank's part of files, while the others do the same.
func (l *ledger) own() error {
	buf := make([]byte, 8)
	if _, err := l.counters.ReadAt(buf, int64(8*l.rank)); err != nil && l.round > 0 {
		return err
	}
	n := binary.LittleEndian.Uint64(buf)
	if n != uint64(l.round) {
		return fmt.Errorf("rank %d: the counter is %d in round %d", l.rank, n, l.round)
	}
	binary.LittleEndian.PutUint64(buf, n+1)
	if _, err := l.counters.WriteAt(buf, int64(8*l.rank)); err != nil {
		return err
	}
	l.dies("counted")
	_, err := fmt.Fprintf(l.log, "rank %d, round %d %s\n", l.rank, l.round, strings.Repeat("x", l.rank+l.round%7))
	return err
}

// turn changes files that all ranks change.
func (l *ledger) turn() error {
	if _, err := fmt.Fprintf(l.turns, "%d %d\n", l.round, l.rank); err != nil {
		return err
	}
	l.dies("turn")
	// One that is opened by name, and sometimes cut.
	f, err := os.OpenFile("scratch", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if l.round%5 == l.rank {
		if err := f.Truncate(int64(l.round)); err != nil {
			return err
		}
	}
	at, err := f.Seek(0, 2)
	if err == nil {
		_, err = f.Write(bytes.Repeat([]byte{byte('a' + l.rank)}, 10+l.round))
	}
	if err == nil && at > 5 {
		_, err = f.WriteAt([]byte(fmt.Sprint(l.round%10, l.rank)), at-5)
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	l.dies("scratch")
	// One that is replaced by each.
	text, err := os.ReadFile("state")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.WriteFile("state.tmp", fmt.Appendf(text, "%d.%d ", l.round, l.rank), 0o644); err != nil {
		return err
	}
	if err := os.Rename("state.tmp", "state"); err != nil {
		return err
	}
	l.dies("state")
	// A directory that one makes, and another removes.
	dir := fmt.Sprintf("dir%d", l.round)
	switch l.rank {
	case 0:
		err = os.MkdirAll(filepath.Join(dir, "sub"), 0o755)
	case 1:
		err = os.WriteFile(filepath.Join(dir, "sub", "file"), []byte(dir), 0o600)
	case 2:
		if l.round%3 > 0 {
			err = os.RemoveAll(dir)
		}
	}
	l.dies("dir")
	return err
}
