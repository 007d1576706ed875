package transporttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/mem"
)

// broken is a driver over memory whose links do something wrong.
type broken struct {
	*mem.Driver
	wrong func(*brokenLink)
}

func (d broken) Connect(ctx context.Context, addresses [][]byte, h transport.Handler) (transport.Link, error) {
	b := &brokenLink{Handler: h}
	d.wrong(b)
	l, err := d.Driver.Connect(ctx, addresses, b)
	if err != nil {
		return nil, err
	}
	b.Link = l.(*mem.Link)
	return b, nil
}

// brokenLink stands between a link and its two users. A function that is not
// nil replaces the link's behaviour.
type brokenLink struct {
	*mem.Link
	transport.Handler
	n       int
	kept    any
	send    func(peer int, h *transport.Header, payload []byte, token any) bool
	arm     func() bool
	drop    func(peer int)
	sent    func(token any)
	lost    func(peer int, err error)
	arrived func(peer int, h *transport.Header, buf []byte)
	close   func(ctx context.Context) error
	pull    func(peer int, buf []byte, addr uint64) error
}

func (b *brokenLink) Send(peer int, h *transport.Header, payload []byte, token any) bool {
	if b.send != nil {
		return b.send(peer, h, payload, token)
	}
	return b.Link.Send(peer, h, payload, token)
}

func (b *brokenLink) Arm() bool {
	if b.arm != nil {
		return b.arm()
	}
	return b.Link.Arm()
}

func (b *brokenLink) Drop(peer int) {
	if b.drop != nil {
		b.drop(peer)
		return
	}
	b.Link.Drop(peer)
}

func (b *brokenLink) Close(ctx context.Context) error {
	if b.close != nil {
		return b.close(ctx)
	}
	return b.Link.Close(ctx)
}

func (b *brokenLink) Pull(peer int, buf []byte, addr uint64) error {
	if b.pull != nil {
		return b.pull(peer, buf, addr)
	}
	return b.Link.Pull(peer, buf, addr)
}

func (b *brokenLink) Sent(token any) {
	if b.sent != nil {
		b.sent(token)
		return
	}
	b.Handler.Sent(token)
}

func (b *brokenLink) Lost(peer int, err error) {
	if b.lost != nil {
		b.lost(peer, err)
		return
	}
	b.Handler.Lost(peer, err)
}

func (b *brokenLink) Arrived(peer int, h *transport.Header, buf []byte) {
	if b.arrived != nil {
		b.arrived(peer, h, buf)
		return
	}
	b.Handler.Arrived(peer, h, buf)
}

// TestRun_FindsBrokenPromises breaks every promise of a link once. The suite
// must report it.
func TestRun_FindsBrokenPromises(t *testing.T) {
	for _, c := range []struct {
		test, want string
		wrong      func(b *brokenLink)
	}{
		{"Order", "", func(b *brokenLink) {}},
		{"Pull", "", func(b *brokenLink) {}},
		{"Killed", "", func(b *brokenLink) {}},
		{"Replaced", "", func(b *brokenLink) {}},
		{"Replaced", "after Drop", func(b *brokenLink) { b.drop = func(int) {} }},
		{"Order", "is wrong", func(b *brokenLink) { // drops a frame
			b.send = func(peer int, h *transport.Header, p []byte, token any) bool {
				if b.n++; b.n == 100 {
					return true
				}
				return b.Link.Send(peer, h, p, token)
			}
		}},
		{"Order", "is wrong", func(b *brokenLink) { // sends one twice
			b.send = func(peer int, h *transport.Header, p []byte, token any) bool {
				if b.n++; b.n == 5 {
					b.Link.Send(peer, h, p, token)
				}
				return b.Link.Send(peer, h, p, token)
			}
		}},
		{"Sizes", "is wrong", func(b *brokenLink) { // spoils a byte
			b.arrived = func(peer int, h *transport.Header, buf []byte) {
				if len(buf) > 4096 {
					buf[4096]++
				}
				b.Handler.Arrived(peer, h, buf)
			}
		}},
		{"Sizes", "header was", func(b *brokenLink) { // spoils the header
			b.arrived = func(peer int, h *transport.Header, buf []byte) {
				h[47]++
				b.Handler.Arrived(peer, h, buf)
			}
		}},
		{"Pressure", "is wrong", func(b *brokenLink) { // returns true too early
			b.send = func(peer int, h *transport.Header, p []byte, token any) bool {
				b.Link.Send(peer, h, p, token)
				return true
			}
			b.sent = func(any) {}
		}},
		{"Pressure", "given back twice", func(b *brokenLink) {
			b.sent = func(token any) {
				b.Handler.Sent(token)
				b.Handler.Sent(token)
			}
		}},
		{"Pressure", "takes more than", func(b *brokenLink) { // forgets to return a payload
			b.sent = func(token any) {
				if b.n++; b.n != 3 {
					b.Handler.Sent(token)
				}
			}
		}},
		{"Sleep", "asleep", func(b *brokenLink) { // a wake-up is lost
			b.arm = func() bool {
				if b.n++; b.n > 20 {
					b.Link.Disarm()
					return true
				}
				return b.Link.Arm()
			}
		}},
		{"PeerCloses", "after Lost", func(b *brokenLink) {
			b.lost = func(peer int, err error) {
				b.Handler.Lost(peer, err)
				b.Handler.Lost(peer, err)
			}
		}},
		{"KilledAsleep", "takes more than", func(b *brokenLink) { b.lost = func(int, error) {} }},
		{"KilledFull", "before", func(b *brokenLink) { // Lost comes first
			b.sent = func(token any) {
				if b.kept != nil {
					b.Handler.Sent(b.kept)
				}
				b.kept = token
			}
		}},
		{"CloseWaits", "frames arrived", func(b *brokenLink) { // forgets what was not sent
			b.send = func(peer int, h *transport.Header, p []byte, token any) bool {
				if b.n++; b.n > 5 && b.n < 500 {
					return true
				}
				return b.Link.Send(peer, h, p, token)
			}
		}},
		{"Reply", "outside of Poll", func(b *brokenLink) { // another goroutine calls the handler
			b.arrived = func(peer int, h *transport.Header, buf []byte) {
				if bx := b.Handler.(*box); bx.inside {
					bx.inside = false
					defer func() { bx.inside = true }()
				}
				b.Handler.Arrived(peer, h, buf)
			}
		}},
		{"Pull", "something else", func(b *brokenLink) {
			b.pull = func(peer int, buf []byte, addr uint64) error {
				err := b.Link.Pull(peer, buf, addr)
				if len(buf) > 5000 {
					buf[4999]++
				}
				return err
			}
		}},
		{"PullKilled", "memory of a dead rank", func(b *brokenLink) {
			b.pull = func(int, []byte, uint64) error { return nil }
		}},
		{"Reconnect", "lost", func(b *brokenLink) { b.close = func(context.Context) error { return errors.New("lost the socket") } }},
	} {
		name := c.test + " " + c.want
		t.Run(strings.TrimSpace(name), func(t *testing.T) {
			var f *mem.Fabric
			tr := Transport{
				New: func(n int, dir string) func(int) (transport.Driver, error) {
					f = mem.New(n)
					return func(rank int) (transport.Driver, error) {
						return broken{f.Driver(rank, mem.Options{Window: 5000, Pull: true}), c.wrong}, nil
					}
				},
				Kill:  func(rank int) { f.Kill(rank) },
				limit: time.Second,
			}
			if c.want == "" || !strings.Contains(c.want, "takes") && c.want != "asleep" {
				tr.limit = 0
			}
			if c.want == "after Drop" { // the others are waiting for a destination then
				tr.limit = 3 * time.Second
			}
			for _, body := range tests {
				if body.name != c.test {
					continue
				}
				err := errors.Join(together(tr, body, t.TempDir())...)
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("the suite says %v, want %q", err, c.want)
				}
				return
			}
			t.Fatal("no such test")
		})
	}
}
