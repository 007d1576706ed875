package transporttest

import (
	"context"
	"encoding/binary"
	"runtime"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/transport"
)

// chat exchanges frames between two ranks, to show that they are connected.
// Both call it, and nothing else may be in flight between them.
func (r *Rank) chat(peer int, what string) {
	for i := range 20 {
		r.box.send(peer, i*100)
	}
	r.drive(what, func() bool {
		if r.box.lost[peer] != nil {
			r.Fatalf("%s: rank %d is lost: %w", what, peer, r.box.lost[peer])
		}
		return r.box.got[peer] == r.box.sent[peer] && r.box.kept == 0
	})
}

// dropped checks that frames to a lost peer are dropped.
func (r *Rank) dropped(peer int) {
	for _, n := range []int{0, 1, 1 << 20} {
		if !r.box.send(peer, n) {
			r.Fatalf("a frame to a lost peer is kept")
		}
	}
	for range 3 {
		r.poll()
	}
}

// peerCloses makes rank 1 send and close while the others continue.
func peerCloses(r *Rank) {
	const frames = 100
	r.connect(nil)
	if r.ID == 1 {
		for i := range frames {
			for _, p := range r.peers() {
				r.box.send(p, i*300)
			}
		}
		r.close()
		r.barrier()
		return
	}
	b, other := r.box, 2-r.ID
	b.lostPeer = func(p int) {
		if p == 1 && b.got[1] != frames {
			b.failf("rank 1 is lost after %d of %d frames", b.got[1], frames)
		}
	}
	r.drive("waiting for the loss", func() bool { return b.lost[1] != nil })
	r.dropped(1)
	r.chat(other, "after a loss")
	r.barrier()
	if b.lost[other] != nil {
		r.Fatalf("rank %d is lost as well: %w", other, b.lost[other])
	}
}

// closeWaits sends a lot and closes at once.
func closeWaits(r *Rank) {
	const frames = 200
	r.connect(nil)
	if r.ID == 0 {
		for i := range frames {
			r.box.send(1, 100+i*200)
		}
		r.box.send(1, 3<<20)
		r.close()
		return
	}
	r.barrierless(100 * time.Millisecond)
	b := r.box
	r.drive("what was sent before Close", func() bool { return b.lost[0] != nil })
	if b.got[0] != frames+1 {
		r.Fatalf("%d frames arrived before rank 0 was lost, want %d: %w", b.got[0], frames+1, b.lost[0])
	}
}

// barrierless gives the other rank some time. Nothing depends on how long.
func (r *Rank) barrierless(d time.Duration) {
	select {
	case <-r.ctx.Done():
	case <-time.After(d):
	}
}

// closeGivesUp closes with a context that has ended, while the peer does not
// read. Close must return.
func closeGivesUp(r *Rank) {
	r.connect(nil)
	if r.ID == 0 {
		r.box.send(1, 48<<20)
		ctx, cancel := context.WithCancel(r.ctx)
		cancel()
		l := r.link
		r.link = nil
		l.Close(ctx) // an error, because 48 MiB fit into no buffer
		r.barrier()
		return
	}
	r.barrier()
	r.drive("the loss of a rank that gave up", func() bool { return r.box.lost[0] != nil })
}

// allClose makes all ranks send much data and close at once, without reading.
func allClose(r *Rank) {
	r.connect(nil)
	for range 20 {
		for _, p := range r.peers() {
			r.box.send(p, 200<<10)
		}
	}
	r.barrier()
	// Whether everything is sent depends on which rank is first. No rank may
	// hang.
	ctx, cancel := context.WithTimeout(r.ctx, 3*time.Second)
	defer cancel()
	l := r.link
	r.link = nil
	l.Close(ctx)
	r.barrier()
	// All of them can connect again.
	r.connect(nil)
	for _, p := range r.peers() {
		r.box.send(p, 1)
	}
	r.collect("after all closed", 1)
}

// killedPeer kills rank 1 after it has sent. The others receive all of it, then
// see the loss, and continue.
func killedPeer(r *Rank) {
	const frames = 60
	r.connect(nil)
	b := r.box
	if r.ID == 1 {
		for i := range frames {
			for _, p := range r.peers() {
				b.send(p, i*20)
			}
		}
		// Frames that were acknowledged must be delivered.
		r.drive("acknowledgement", func() bool { return b.got[0] == 1 && b.got[2] == 1 && b.kept == 0 })
		r.die()
	}
	r.drive("frames", func() bool { return b.got[1] == frames })
	b.send(1, 0)
	r.drive("the loss of a killed rank", func() bool { return b.lost[1] != nil })
	r.dropped(1)
	r.chat(2-r.ID, "after a kill")
	r.barrier(1)
	if other := 2 - r.ID; b.lost[other] != nil {
		r.Fatalf("rank %d is lost as well: %w", other, b.lost[other])
	}
}

// killedAsleep kills a rank while the other one sleeps.
func killedAsleep(r *Rank) {
	r.connect(nil)
	r.sleeper = true
	if r.ID == 1 {
		r.box.send(0, 10)
		r.drive("leaving", func() bool { return r.box.kept == 0 && r.box.got[0] == 1 })
		r.barrierless(50 * time.Millisecond) // rank 0 sleeps by now, or soon
		r.die()
	}
	r.box.send(1, 1)
	r.drive("the loss, asleep", func() bool { return r.box.lost[1] != nil })
	if r.box.got[1] != 1 {
		r.Fatalf("%d frames arrived, want 1", r.box.got[1])
	}
}

// killedFull kills a rank that does not read. The payloads for it must be
// returned.
func killedFull(r *Rank) {
	r.connect(nil)
	r.barrier()
	if r.ID == 1 {
		r.swap(nil)
		r.die()
	}
	for i := range 300 {
		r.box.send(1, i*1000)
	}
	r.poll()
	r.swap(nil)
	r.drive("payloads for a killed rank", func() bool { return r.box.lost[1] != nil && r.box.kept == 0 })
}

// killedAmid kills a rank in the middle of a long frame. Complete frames must
// be right, and nothing may come after the loss.
func killedAmid(r *Rank) {
	r.connect(nil)
	if r.ID == 1 {
		r.box.send(0, 100)
		r.box.send(0, 48<<20)
		for range 5 {
			r.poll()
		}
		r.swap(nil)
		r.die()
	}
	r.swap(nil)
	r.drive("the loss amid a frame", func() bool { return r.box.lost[1] != nil })
	if r.box.got[1] > 1 {
		r.Fatalf("%d frames arrived; the second one cannot have left", r.box.got[1])
	}
	for range 100 {
		r.poll()
	}
}

// puller returns the link if it can read the peer's memory.
func (r *Rank) puller(peer int) transport.Puller {
	l, ok := r.link.(transport.Puller)
	can := ok && l.CanPull(peer)
	answer := byte(0)
	if can {
		answer = 1
	}
	for _, a := range r.swap([]byte{answer}) {
		if a[0] == 0 {
			r.skipf("this link cannot read the memory of a peer")
		}
	}
	return l
}

// address returns a frame that says where memory is.
func address(buf []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))))
	return binary.LittleEndian.AppendUint64(b, uint64(len(buf)))
}

// pull reads memory of the peer, with many sizes, in both directions.
func pull(r *Rank) {
	r.connect(nil)
	peer := 1 - r.ID
	l := r.puller(peer)
	lengths := append(spread(1, 4096, 64<<10, 1<<20), 32<<20)
	mine := make([][]byte, len(lengths))
	pulled := 0
	r.box.arrived = func(from int, number uint64, buf []byte) {
		addr, n := binary.LittleEndian.Uint64(buf), binary.LittleEndian.Uint64(buf[8:])
		got, want := make([]byte, n), make([]byte, n)
		if err := l.Pull(from, got, addr); err != nil {
			r.box.failf("Pull of %d bytes: %w", n, err)
			return
		}
		fill(want, uint64(from)<<32+number)
		if string(got) != string(want) {
			r.box.failf("Pull of %d bytes brought something else", n)
		}
		pulled++
	}
	for i, n := range lengths {
		mine[i] = make([]byte, n)
		fill(mine[i], uint64(r.ID)<<32+uint64(i))
		r.box.sendPayload(peer, address(mine[i]))
	}
	r.drive("pulling", func() bool { return pulled == len(lengths) && r.box.kept == 0 })
	r.barrier()
	runtime.KeepAlive(mine)
	r.box.noneLost()
}

// pullKilled reads memory of a rank that was killed.
func pullKilled(r *Rank) {
	r.connect(nil)
	l := r.puller(1 - r.ID)
	b := r.box
	if r.ID == 1 {
		mine := make([]byte, 100)
		b.sendPayload(0, address(mine))
		r.drive("leaving", func() bool { return b.kept == 0 && b.got[0] == 1 })
		r.die()
	}
	var addr uint64
	b.arrived = func(from int, number uint64, buf []byte) { addr = binary.LittleEndian.Uint64(buf) }
	r.drive("the address", func() bool { return b.got[1] == 1 })
	b.send(1, 0)
	r.drive("the loss", func() bool { return b.lost[1] != nil })
	if err := l.Pull(1, make([]byte, 100), addr); err == nil {
		r.Fatalf("memory of a dead rank was read")
	}
}
