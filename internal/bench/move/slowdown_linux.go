package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/cairnrun/cairn/mpi"
)

// meter is where a rank says how much it has computed.
type meter struct{ f *os.File }

// progress is what a rank has computed by some time.
type progress struct {
	time  time.Time
	units float64
	cpu   time.Duration // processor time of the rank
}

// tell says that another unit is complete.
func (m *meter) tell(units int) error {
	cpu, err := processorTime(os.Getpid())
	if err != nil {
		return err
	}
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], uint64(time.Now().UnixNano()))
	binary.LittleEndian.PutUint64(b[8:], uint64(units))
	binary.LittleEndian.PutUint64(b[16:], uint64(cpu))
	_, err = m.f.WriteAt(b[:], 0)
	return err
}

// readMeter returns what a rank said last.
func readMeter(name string) (p progress, err error) {
	text, err := os.ReadFile(name)
	if err != nil || len(text) != 24 {
		return p, fmt.Errorf("%s: %d bytes: %w", name, len(text), err)
	}
	return progress{time.Unix(0, int64(binary.LittleEndian.Uint64(text))), float64(binary.LittleEndian.Uint64(text[8:])),
		time.Duration(binary.LittleEndian.Uint64(text[16:]))}, nil
}

// compute rewrites all of the state: rank 0 many times before it tells the
// other ranks, which wait for it.
func (m *meter) compute(c *content, w *mpi.Comm) error {
	for range 8 {
		c.change(len(c.versions), 0)
		if w.Rank() > 0 {
			break
		}
		if err := m.tell(c.step); err != nil {
			return err
		}
	}
	return mpi.Bcast(w, []int32{1}, 0)
}

// window is what a rank computed between two readings of its meter.
type window struct {
	rate float64       // units per second
	cpu  time.Duration // of a unit
}

// watch waits until so much time has passed since begin, and returns what the
// rank has computed from then until now.
func (j *job) watch(begin progress, d time.Duration) (w window, now progress, err error) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case err := <-j.ended:
		j.ended <- err
		return w, now, fmt.Errorf("the run ended: %v\n%s", err, j.said.String())
	case <-j.b.ctx.Done():
		return w, now, j.b.ctx.Err()
	case <-t.C:
	}
	now, err = readMeter(j.files + ".work")
	units := now.units - begin.units
	return window{units / now.time.Sub(begin.time).Seconds(), time.Duration(float64(now.cpu-begin.cpu) / units)}, now, err
}

// slowdown measures how much less a program computes while all tiers are busy.
// The first host has one processor, with its rank, its helper and the
// supervisor. The rank computes all the time: what anything else takes, it
// loses. Every other window of 30 s has a checkpoint, which all tiers get.
func (b *bench) slowdown() ([]figure, error) {
	b.pinned = true
	defer func() { b.pinned = false }()
	shell, end, err := b.beginTiers()
	if err != nil {
		return nil, err
	}
	defer end()
	policy := ""
	for _, p := range b.places() {
		policy += "," + p.policy
	}
	j, _, err := b.startOnTiers(shell, place{"", strings.TrimPrefix(policy, ","), 3, false, *tierSize}, "compute")
	if err != nil {
		return nil, err
	}
	defer j.kill()
	if _, err := j.store(4); err != nil { // makes directories and buffers
		return nil, err
	}
	now, err := readMeter(j.files + ".work")
	if err != nil {
		return nil, err
	}
	var rest, busy []window
	for range *rounds {
		var w window
		if w, now, err = j.watch(now, between); err != nil {
			return nil, err
		}
		rest = append(rest, w)
		began := time.Now()
		x, err := j.store(4)
		if err != nil {
			return nil, err
		}
		took := time.Since(began)
		if w, now, err = j.watch(now, between-took); err != nil {
			return nil, err
		}
		busy = append(busy, w)
		tell("%.2f units/s of %v, then with all tiers busy for %.1f s %.2f units/s of %v; pause %v, helper %v", rest[len(rest)-1].rate, rest[len(rest)-1].cpu, took.Seconds(), w.rate, w.cpu, x.pause, x.cpu)
	}
	w, _, err := j.watch(now, between)
	if err != nil {
		return nil, err
	}
	rest = append(rest, w)
	var lost, cpu []float64
	for i, x := range busy { // compared with the windows before and after
		lost = append(lost, 1-2*x.rate/(rest[i].rate+rest[i+1].rate))
		cpu = append(cpu, 2*x.cpu.Seconds()/(rest[i].cpu+rest[i+1].cpu).Seconds()-1)
	}
	fig := figure{Title: fmt.Sprintf("a program that uses all of a processor; a checkpoint in each %.0f s", between.Seconds()), Unit: "what it computes in that time without a checkpoint"}
	fig.Bars = []bar{
		{Name: "computes less, all tiers busy", Parts: []float64{median(lost)}, Bound: boundSlowdown, Least: least(lost)},
		{Name: "… more processor time for the same", Parts: []float64{max(0, median(cpu))}, Note: fmt.Sprintf("of its own, %.3f", median(cpu))},
	}
	return []figure{fig}, nil
}

// pin returns the words that keep processes of a host on one processor, if the
// measurement needs that: the first host has one for itself.
func (b *bench) pin(host string) string {
	if !b.pinned || runtime.NumCPU() == 1 {
		return ""
	}
	if host == b.net.Hosts[0] {
		return "taskset -c 0 "
	}
	return fmt.Sprintf("taskset -c 1-%d ", runtime.NumCPU()-1)
}

// meterOf returns the meter of a rank. That of rank 0 is read.
func meterOf(files string, rank int) (*meter, error) {
	name := files + ".work"
	if rank > 0 {
		name = os.DevNull
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o666)
	return &meter{f}, err
}
