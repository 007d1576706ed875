package mpilib

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"
)

const (
	sayHello  = 1
	sawHello  = 2
	helloSize = 8
)

// greet tells all peers the current round of this rank, and learns theirs. A
// peer is connected when this rank has answered its hello and it has answered
// ours. An answer comes after the newest hello, so the round is the right one.
func (l *link) greet(ctx context.Context) error {
	var mail []pendingSend
	say := func(p *peer, kind, round uint32) error {
		b := make([]byte, helloSize)
		binary.LittleEndian.PutUint32(b, kind)
		binary.LittleEndian.PutUint32(b[4:], round)
		request, err := l.lib.startIsend(unsafe.Pointer(&b[0]), helloSize, p.world, helloTag, l.d.comm)
		mail = append(mail, pendingSend{request: request, buf: b})
		return err
	}
	missing := 0
	for _, p := range l.peers {
		if p != nil {
			missing++
			if err := say(p, sayHello, l.d.round); err != nil {
				return fmt.Errorf("%w to rank %d: %w", ErrNotConnected, p.rank, err)
			}
		}
	}
	buf := make([]byte, helloSize)
	for idle := 0; missing > 0 || len(mail) > 0; idle++ {
		from, ok, err := l.lib.probe(helloTag, l.d.comm)
		if err == nil && ok {
			idle = 0
			err = l.lib.call("MPI_Recv", l.lib.recv, uintptr(unsafe.Pointer(&buf[0])), helloSize, l.lib.bytes,
				uintptr(from), helloTag, l.d.comm, l.lib.ignore)
		}
		if err == nil && ok && l.world[from] != nil {
			p := l.world[from]
			round := binary.LittleEndian.Uint32(buf[4:])
			before := p.met && p.answered
			switch binary.LittleEndian.Uint32(buf) {
			case sayHello:
				p.met, p.tag = true, tagOf(round)
				err = say(p, sawHello, round)
			case sawHello:
				p.answered = p.answered || round == l.d.round
			}
			if !before && p.met && p.answered {
				missing--
			}
		}
		mail = slices.DeleteFunc(mail, func(f pendingSend) bool {
			done, derr := l.lib.done(f.request)
			if derr != nil && err == nil {
				err = derr
			}
			return done
		})
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			for _, f := range mail {
				l.d.kept = append(l.d.kept, f.buf)
			}
			return l.missing(err)
		}
		if !ok {
			pause(idle)
		}
	}
	return nil
}

// farewellTime bounds how long a rank waits for others before it ends.
const farewellTime = 10 * time.Second

// farewell exchanges a last message with the ranks that the last link said
// farewell to. A message for a process that has ended would end this one, too:
// MPI libraries do that whatever the error handler is.
func (d *Driver) farewell() {
	var mail []pendingSend
	for _, to := range d.last {
		out, in := make([]byte, 1), make([]byte, 1)
		for _, start := range []func() (uint64, error){
			func() (uint64, error) {
				return d.lib.startIrecv(unsafe.Pointer(&in[0]), 1, to, farewellTag, d.comm)
			},
			func() (uint64, error) {
				return d.lib.startIsend(unsafe.Pointer(&out[0]), 1, to, farewellTag, d.comm)
			},
		} {
			request, err := start()
			if err != nil {
				return // no process can be relied on
			}
			mail = append(mail, pendingSend{request: request})
		}
		d.kept = append(d.kept, in, out)
	}
	end := time.Now().Add(farewellTime)
	for idle := 0; len(mail) > 0 && time.Now().Before(end); idle++ {
		before := len(mail)
		mail = slices.DeleteFunc(mail, func(f pendingSend) bool {
			done, err := d.lib.done(f.request)
			return done || err != nil
		})
		if len(mail) < before {
			idle = 0
		}
		pause(idle)
	}
}

// missing returns an error that names the peers that did not answer.
func (l *link) missing(err error) error {
	var names []string
	for _, p := range l.peers {
		if p != nil && !(p.met && p.answered) {
			names = append(names, fmt.Sprintf("rank %d on %s", p.rank, l.d.hosts[p.world]))
		}
	}
	if len(names) > 8 {
		names = append(names[:8], "…")
	}
	return fmt.Errorf("%w: no answer from %s: %w", ErrNotConnected, strings.Join(names, ", "), err)
}
