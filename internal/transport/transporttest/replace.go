package transporttest

import (
	"context"
	"os"
	"runtime"
	"strings"
	"time"
)

// replaced replaces rank 1 by other processes, one after the other, while ranks
// 0 and 2 continue to exchange frames. Processes 3, 4 and 5 are the
// destinations.
func replaced(r *Rank) {
	const ranks, mover = 3, 1
	procs := []int{1, 3, 4, 5} // the processes of rank 1, in order
	if r.process >= ranks {
		r.ID = mover
	}
	r.openDriver()
	addresses := r.swap(r.driver.Address()) // addresses of all processes, for the whole test
	var gone []int                          // processes that were replaced
	for i, present := range procs {
		to := make([][]byte, r.N)
		switch {
		case i == 0 && r.process < ranks:
			copy(to, addresses[:ranks])
		case r.process == present:
			to[0], to[2] = addresses[0], addresses[2]
		case r.process == 0 || r.process == 2:
			to[mover] = addresses[present]
		default: // it is not this process's turn yet
			r.barrier(gone...)
			gone = append(gone, present)
			continue
		}
		to[r.ID] = nil
		if []int{0, mover, 2}[i%3] == r.ID { // one process is late, each time another one
			r.barrierless(30 * time.Millisecond)
		}
		b := r.connectTo(to)
		if r.link == nil {
			r.box, r.link = b, b.link
		} else {
			r.more = append(r.more, b)
		}
		r.replacedTalk(b, i)
		r.barrier(gone...)
		gone = append(gone, present)
		switch {
		case i == len(procs)-1:
			r.box.noneLost()
			b.noneLost()
		case r.process == present && r.single:
			r.die()
		case r.process == present:
			ctx, cancel := context.WithCancel(r.ctx)
			cancel()
			r.link.Close(ctx)
			r.link = nil
			return
		default:
			r.replacedLeave(b, i)
		}
	}
}

// replacedTalk exchanges frames between all three ranks, with rank 1 by the
// newest link.
func (r *Rank) replacedTalk(b *box, i int) {
	const frames = 60
	for n := range frames {
		for _, p := range []int{0, 1, 2} {
			switch {
			case p == r.ID:
			case p == 1 || r.ID == 1:
				b.send(p, n*n*7)
			default:
				r.box.send(p, n*n*5) // the first link stays in use
			}
		}
	}
	r.drive("talking to a rank that was replaced", func() bool {
		for _, p := range []int{0, 1, 2} {
			on, want := r.box, uint64((i+1)*frames)
			if p == 1 || r.ID == 1 {
				on, want = b, frames
			}
			if p != r.ID && (on.got[p] < want || on.kept > 0) {
				if on.lost[p] != nil {
					r.Fatalf("rank %d is lost: %w", p, on.lost[p])
				}
				return false
			}
		}
		return true
	})
}

// replacedLeave drops the current process of rank 1, which ends.
func (r *Rank) replacedLeave(b *box, i int) {
	if i%2 == 0 { // otherwise it is dropped first
		r.drive("the loss of a rank that is replaced", func() bool { return b.lost[1] != nil })
	}
	b.drop(1)
	b.lost[1] = nil
	r.barrierless(20 * time.Millisecond) // it ends by now, or soon, without a message
	for range 20 {
		r.poll()
	}
	if b != r.box { // this link has no peers any more
		r.more = nil
		r.must(b.link.Close(r.ctx))
	}
}

// impostor makes a process that was replaced, but is alive, try to connect in
// place of the destination, process 3.
func impostor(r *Rank) {
	const mover = 1
	if r.process == 3 {
		r.ID = mover
	}
	r.openDriver()
	addresses := r.swap(r.driver.Address())
	to := make([][]byte, r.N)
	switch r.process {
	case 0, 2:
		to[mover] = addresses[3]
		r.barrier() // the old process has begun by now, or soon
		r.barrierless(100 * time.Millisecond)
	case 1:
		r.barrier()
		to[0], to[2] = addresses[0], addresses[2]
		ctx, cancel := context.WithTimeout(r.ctx, 500*time.Millisecond)
		defer cancel()
		l, err := r.driver.Connect(ctx, to, newBox(r))
		if err == nil {
			l.Close(ctx)
			r.Fatalf("a process that was replaced is connected")
		}
		r.barrier()
		return
	case 3:
		to[0], to[2] = addresses[0], addresses[2]
		r.barrier()
		r.barrierless(300 * time.Millisecond)
	}
	r.box = r.connectTo(to)
	r.link = r.box.link
	if r.ID == mover {
		for _, p := range []int{0, 2} {
			r.chat(p, "the destination")
		}
	} else {
		r.chat(mover, "with the destination")
	}
	r.barrier()
	r.box.noneLost()
}

// leaks replaces rank 1 many times. The resources of a process must not grow.
func leaks(r *Rank) {
	const rounds, begun = 40, 5
	r.openDriver()
	var before int
	for i := range rounds {
		if r.ID == 1 && i > 0 {
			r.must(r.driver.Close())
			r.openDriver()
		}
		addresses := r.swap(r.driver.Address())
		if i > 0 && r.ID != 1 { // these two are connected already
			addresses[0], addresses[2] = nil, nil
		}
		addresses[r.ID] = nil
		b := r.connectTo(addresses)
		if r.link == nil {
			r.box, r.link = b, b.link
		} else {
			r.more = append(r.more, b)
		}
		for _, p := range r.peers() {
			on := r.box
			if p == 1 || r.ID == 1 {
				on = b
			}
			on.send(p, 100*i)
		}
		r.drive("talking", func() bool {
			for _, p := range r.peers() {
				on, want := r.box, uint64(i+1)
				if p == 1 || r.ID == 1 {
					on, want = b, 1
				}
				if on.got[p] < want || on.kept > 0 {
					return false
				}
			}
			return true
		})
		r.barrier()
		switch {
		case r.ID == 1:
			r.close()
		case b == r.box:
			b.drop(1)
		default:
			b.drop(1)
			r.more = nil
			r.must(b.link.Close(r.ctx))
		}
		r.barrier()
		if i == begun {
			before = r.holds()
		}
	}
	if after := r.holds(); after > before {
		r.Fatalf("%d descriptors, mappings and goroutines after %d rounds, %d after %d", after, rounds, before, begun)
	}
}

// holds counts the resources of this process: descriptors, mappings of the
// transports' files, and goroutines. It returns 0 if they cannot be counted.
func (r *Rank) holds() int {
	fds, err := os.ReadDir("/proc/self/fd")
	maps, merr := os.ReadFile("/proc/self/maps")
	if !r.single || err != nil || merr != nil {
		return 0
	}
	n := runtime.NumGoroutine()
	for range 100 { // wait for goroutines that are just ending
		time.Sleep(time.Millisecond)
		n = min(n, runtime.NumGoroutine())
	}
	return len(fds) + strings.Count(string(maps), "/cairn-") + n
}
