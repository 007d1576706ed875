package mpilib

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

const (
	sayHello  = 1
	sawHello  = 2
	helloSize = 8
)

// greet tells all peers the round that this rank is in, and learns theirs.
// A peer is connected when its hello was answered and it answered ours: an
// answer comes after the newest hello, so the round is the right one.
func (l *link) greet(ctx context.Context) error {
	var mail []flight
	say := func(p *peer, kind, round uint32) error {
		b := make([]byte, helloSize)
		binary.LittleEndian.PutUint32(b, kind)
		binary.LittleEndian.PutUint32(b[4:], round)
		request, err := l.lib.startIsend(unsafe.Pointer(&b[0]), helloSize, p.world, helloTag, l.d.comm)
		mail = append(mail, flight{request: request, buf: b})
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
		mail = slices.DeleteFunc(mail, func(f flight) bool {
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

// missing says which peers did not answer.
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
