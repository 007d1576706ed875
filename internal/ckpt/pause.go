package ckpt

import (
	"math"
	"time"

	"github.com/cairnrun/cairn/internal/mem"
)

// pause measures for how long a save pauses the program: until its next kernel
// can run, which is when Save has returned and the device has made its copy.
// For kernels that were launched before, the next kernel would have waited
// without a checkpoint, too: they do not count. The longest pause of all
// devices counts, and at least the time for which the host copied.
type pause struct {
	earlier  []*earlierKernels
	host     time.Duration // for which the host copied
	returned time.Time     // when Save returned
}

// earlierKernels are the kernels of a device that were launched before the
// save.
type earlierKernels struct {
	dev   mem.Device // nil: it works in host memory
	ended chan struct{}
	at    time.Time // when they ended; valid when ended is closed
}

// startPause notes which kernels still run.
func startPause() *pause {
	p := new(pause)
	for _, k := range mem.Running() {
		e := &earlierKernels{dev: k.Device, ended: make(chan struct{})}
		p.earlier = append(p.earlier, e)
		go func() {
			k.Wait() // the device reports errors to the program
			e.at = time.Now()
			close(e.ended)
		}()
	}
	return p
}

// length returns the pause of a save that began at a time. free says when the
// devices had made their copies.
func (p *pause) length(began time.Time, free map[mem.Device]time.Time) time.Duration {
	longest := p.host
	lasted := func(from time.Time, dev mem.Device) {
		to := p.returned
		if t := free[dev]; t.After(to) {
			to = t
		}
		longest = max(longest, to.Sub(from))
	}
	busy := make(map[mem.Device]bool)
	for _, e := range p.earlier {
		if _, ok := free[e.dev]; ok {
			busy[e.dev] = true
			<-e.ended // they were in the queue before the copy
		}
		select {
		case <-e.ended:
			if e.at.After(began) {
				lasted(e.at, e.dev)
			} else {
				lasted(began, e.dev)
			}
		default: // the next kernel must still wait for them
		}
	}
	for dev := range free {
		if !busy[dev] {
			lasted(began, dev)
		}
	}
	if len(p.earlier) == 0 {
		lasted(began, nil)
	}
	return longest
}

// notePause returns the note with the pause, and keeps the pause for Paused.
func (s *Saver) notePause(n Note, p *pause, free map[mem.Device]time.Time) Note {
	paused := p.length(n.Began, free) + n.Before
	if n.Pause != nil {
		paused = n.Pause()
	}
	n.PauseMS = float64(paused.Microseconds()) / 1000
	s.paused.Store(int64(math.Round(n.PauseMS*1000)) * int64(time.Microsecond))
	return n
}

// Paused returns for how long the last save paused the program, as the
// checkpoint's file says it: until the program's next kernel could run. Before
// Done has delivered the result, copies that devices still make do not count.
func (s *Saver) Paused() time.Duration { return time.Duration(s.paused.Load()) }
