package transporttest

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"
)

// tests is the suite.
var tests = []test{
	{name: "Order", n: 3, body: order},
	{name: "Sizes", n: 2, body: sizes},
	{name: "Huge", n: 2, body: huge},
	{name: "Pressure", n: 2, body: pressure},
	{name: "Reply", n: 2, body: reply},
	{name: "Sleep", n: 2, body: sleepers},
	{name: "SleepFull", n: 2, body: sleepFull},
	{name: "SleepLate", n: 2, body: sleepLate},
	{name: "AllToAll", n: 8, body: allToAll},
	{name: "Subset", n: 4, body: subset},
	{name: "NoPeers", n: 1, body: noPeers},
	{name: "ConnectAlone", n: 2, body: connectAlone},
	{name: "Reconnect", n: 3, body: reconnect},
	{name: "PeerCloses", n: 3, body: peerCloses},
	{name: "CloseWaits", n: 2, body: closeWaits},
	{name: "CloseGivesUp", n: 2, body: closeGivesUp},
	{name: "AllClose", n: 3, body: allClose},
	{name: "Killed", n: 3, body: killedPeer, dies: []int{1}},
	{name: "KilledAsleep", n: 2, body: killedAsleep, dies: []int{1}},
	{name: "KilledFull", n: 2, body: killedFull, dies: []int{1}},
	{name: "KilledAmid", n: 2, body: killedAmid, dies: []int{1}},
	{name: "Pull", n: 2, body: pull},
	{name: "PullKilled", n: 2, body: pullKilled, dies: []int{1}},
	{name: "Replaced", n: 6, body: replaced, leaves: []int{1, 3, 4}},
	{name: "Impostor", n: 4, body: impostor},
	{name: "Leaks", n: 3, body: leaks},
}

// random returns a generator that differs between ranks, but not between runs.
func (r *Rank) random() *rand.Rand { return rand.New(rand.NewPCG(uint64(r.ID), 42)) }

// peers returns the other ranks.
func (r *Rank) peers() (all []int) {
	for p := range r.N {
		if p != r.ID {
			all = append(all, p)
		}
	}
	return all
}

// collect drives the link until n frames have come from every peer and all
// payloads are returned. The box makes sure that no frame comes twice.
func (r *Rank) collect(what string, n uint64) {
	b := r.box
	r.drive(what, func() bool {
		for _, p := range r.peers() {
			if b.got[p] < n {
				if b.lost[p] != nil {
					r.Fatalf("%s: %d frames of rank %d arrived, want %d: %w", what, b.got[p], p, n, b.lost[p])
				}
				return false
			}
		}
		return b.kept == 0
	})
}

// order sends many small frames to all peers.
func order(r *Rank) {
	const frames = 3000
	r.connect(nil)
	rnd := r.random()
	for i := range frames {
		for _, p := range r.peers() {
			r.box.send(p, rnd.IntN(200))
		}
		if i%50 == 0 {
			r.poll()
		}
	}
	r.collect("order", frames)
}

// sizes sends payloads of every length of interest, one by one and all at once.
func sizes(r *Rank) {
	r.connect(nil)
	eager := r.link.EagerLimit()
	if eager <= 0 {
		r.Fatalf("the eager limit is %d; small frames must be possible", eager)
	}
	lengths := spread(append([]int{1, 8, 16, 48, 64, 4096, eager, 2 * eager, 64 << 10, 1 << 20}, r.tr.Sizes...)...)
	peer := 1 - r.ID
	for i, n := range lengths {
		r.box.send(peer, n)
		r.collect("one by one", uint64(i+1))
	}
	for range 3 {
		for _, n := range lengths {
			r.box.send(peer, n)
		}
	}
	r.collect("all at once", uint64(4*len(lengths)))
}

// huge sends one large frame between small ones.
func huge(r *Rank) {
	r.connect(nil)
	long := 64 << 20
	if r.ID == 1 {
		long = 1 << 20
	}
	for _, n := range []int{0, long, 1} {
		r.box.send(1-r.ID, n)
	}
	r.collect("64 MiB", 3)
}

// pressure sends more than any buffer holds before any rank polls.
func pressure(r *Rank) {
	const frames = 1500
	r.connect(nil)
	rnd := r.random()
	peer := 1 - r.ID
	for range frames {
		n := rnd.IntN(64)
		if rnd.IntN(2) == 0 {
			n = rnd.IntN(40 << 10)
		}
		r.box.send(peer, n)
	}
	r.barrier() // no rank has polled yet
	r.collect("back-pressure", frames)
}

// reply answers every frame from inside the handler.
func reply(r *Rank) {
	const frames = 300
	r.connect(nil)
	rnd := r.random()
	peer := 1 - r.ID
	length := func() int {
		if rnd.IntN(8) == 0 {
			return rnd.IntN(300 << 10)
		}
		return rnd.IntN(300)
	}
	r.box.arrived = func(from int, number uint64, buf []byte) {
		if r.ID == 1 || r.box.sent[peer] < frames {
			r.box.send(from, length())
		}
	}
	if r.ID == 0 {
		for range 16 {
			r.box.send(peer, length())
		}
	}
	r.collect("answering from the handler", frames)
}

// sleepers play ping-pong, and both sleep whenever nothing moves. If a wake-up
// is lost, the test hangs.
func sleepers(r *Rank) {
	rounds := uint64(4000)
	r.connect(nil)
	if r.link.FD() < 0 {
		rounds = 100 // without a descriptor, there is no wake-up to lose
	}
	r.sleeper = true
	peer := 1 - r.ID
	r.box.arrived = func(from int, number uint64, buf []byte) {
		if r.box.sent[peer] < rounds {
			r.box.send(from, int(number%100))
		}
	}
	if r.ID == 0 {
		r.box.send(peer, 0)
	}
	r.collect("ping-pong asleep", rounds)
}

// sleepFull makes both sides sleep while one waits for room.
func sleepFull(r *Rank) {
	const frames = 150
	r.connect(nil)
	r.sleeper = true
	b := r.box
	if r.ID == 0 {
		for range frames {
			b.send(1, 50<<10)
		}
		r.drive("waiting for space", func() bool { return b.kept == 0 })
		r.drive("waiting for the answer", func() bool { return b.got[1] == 1 })
		return
	}
	r.drive("waiting for frames", func() bool { return b.got[0] == frames })
	b.send(0, 1)
	r.drive("sending the answer", func() bool { return b.kept == 0 })
}

// sleepLate goes to sleep when there is something to do already: frames that
// have come, and room that was made, since the last Poll.
func sleepLate(r *Rank) {
	r.connect(nil)
	b := r.box
	awake := func(what string) {
		if r.link.Arm() {
			if fd := r.link.FD(); fd >= 0 && !waitFD(10*time.Second, fd) {
				r.Fatalf("it sleeps in spite of %s", what)
			}
			r.link.Disarm()
		}
	}
	for range 20 {
		if r.ID == 0 {
			b.send(1, 10)
			r.drive("sending", func() bool { return b.kept == 0 })
		}
		r.barrier()
		if r.ID == 1 {
			awake("a frame")
			was := b.got[0]
			r.drive("the frame", func() bool { return b.got[0] == was+1 })
		}
		r.barrier()
	}
	// Send more than fits: rank 1 receives what is there, and rank 0 continues.
	const frames = 40
	if r.ID == 0 {
		for range frames {
			b.send(1, 1<<20)
		}
	}
	r.barrier()
	if r.ID == 1 {
		for range 50 {
			r.poll()
		}
	}
	r.barrier()
	if r.ID == 0 {
		if b.kept > 0 {
			awake("space")
		}
		r.drive("sending the rest", func() bool { return b.kept == 0 })
	} else {
		r.drive("the rest", func() bool { return b.got[0] == 20+frames })
	}
}

// allToAll makes random traffic between many ranks.
func allToAll(r *Rank) {
	const frames = 80
	r.connect(nil)
	rnd := r.random()
	var todo []int
	for _, p := range r.peers() {
		for range frames {
			todo = append(todo, p)
		}
	}
	rnd.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	for _, p := range todo {
		n := rnd.IntN(256)
		switch rnd.IntN(10) {
		case 0:
			n = rnd.IntN(150 << 10)
		case 1, 2:
			n = rnd.IntN(8 << 10)
		}
		r.box.send(p, n)
		for range rnd.IntN(3) {
			r.poll()
		}
	}
	r.collect("all to all", frames)
}

// subset connects even ranks with even ones, and odd with odd.
func subset(r *Rank) {
	r.connect(func(p int) bool { return p%2 == r.ID%2 })
	peer := (r.ID + 2) % 4
	for i := range 100 {
		r.box.send(peer, i*10)
	}
	r.drive("subset", func() bool { return r.box.got[peer] == 100 && r.box.kept == 0 })
}

// noPeers connects a link without peers.
func noPeers(r *Rank) {
	r.connect(nil)
	if r.poll() {
		r.Fatalf("something moved on a link without peers")
	}
	if r.link.Arm() {
		if fd := r.link.FD(); fd >= 0 && waitFD(0, fd) {
			r.Fatalf("something is to be done on a link without peers")
		}
		r.link.Disarm()
	}
}

// connectAlone waits for a peer that does not come.
func connectAlone(r *Rank) {
	d, err := r.open(r.ID)
	r.must(err)
	r.driver = d
	addresses := r.swap(d.Address())
	if r.ID == 0 {
		ctx, cancel := context.WithTimeout(r.ctx, 50*time.Millisecond)
		defer cancel()
		addresses[0] = nil
		l, err := d.Connect(ctx, addresses, newBox(r))
		if err == nil {
			r.link = l
			r.Fatalf("Connect returned without its peer")
		}
		if !strings.Contains(err.Error(), "1") {
			r.Fatalf("the error does not say which rank is missing: %v", err)
		}
	}
	r.barrier()
	// The driver can still be used.
	r.connect(nil)
	r.box.send(1-r.ID, 1000)
	r.collect("after a failed connection", 1)
}

// reconnect closes the link and connects the same drivers again.
func reconnect(r *Rank) {
	for round := range 4 {
		r.connect(nil)
		r.box.round = round
		for _, p := range r.peers() {
			for i := range 50 {
				r.box.send(p, i*i*i)
			}
		}
		r.collect("reconnecting", 50)
		r.barrier()
		r.box.noneLost()
		r.close()
	}
}
