package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/transport"
)

var testSecret = []byte("a secret of 32 bytes for testing")

// recorder is a Handler that records its calls.
type recorder struct {
	frames []frame
	sent   []any
	lost   map[int]error
	on     func(f frame) // called for every frame, if set
	onSent func(token any)
}

type frame struct {
	peer    int
	header  transport.Header
	payload []byte
}

func (r *recorder) Arriving(peer int, h *transport.Header, n int) []byte {
	if r.lost[peer] != nil {
		panic("Arriving after Lost")
	}
	if n == 0 {
		return nil
	}
	return make([]byte, n)
}

func (r *recorder) Arrived(peer int, h *transport.Header, buf []byte) {
	f := frame{peer, *h, buf}
	if r.on != nil {
		r.on(f)
		return
	}
	r.frames = append(r.frames, f)
}

func (r *recorder) Sent(token any) {
	r.sent = append(r.sent, token)
	if r.onSent != nil {
		r.onSent(token)
	}
}

func (r *recorder) Lost(peer int, err error) {
	if r.lost == nil {
		r.lost = make(map[int]error)
	}
	if r.lost[peer] != nil {
		panic("Lost twice")
	}
	r.lost[peer] = err
}

// node is a rank of a test.
type node struct {
	*recorder
	d *Driver
	transport.Link
}

func openDrivers(t testing.TB, n int, change func(o *Options)) []*Driver {
	t.Helper()
	ds := make([]*Driver, n)
	for i := range ds {
		o := Options{Rank: i, Size: n, Secret: testSecret, Listen: "127.0.0.1"}
		if change != nil {
			change(&o)
		}
		d, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		ds[i] = d
	}
	return ds
}

func addressesOf(ds []*Driver) [][]byte {
	addresses := make([][]byte, len(ds))
	for i, d := range ds {
		addresses[i] = d.Address()
	}
	return addresses
}

// connect connects all drivers with each other.
func connect(t testing.TB, ds []*Driver) []*node {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	nodes := make([]*node, len(ds))
	errs := make([]error, len(ds))
	addresses := addressesOf(ds)
	var wg sync.WaitGroup
	for i, d := range ds {
		wg.Go(func() {
			mine := append([][]byte(nil), addresses...)
			mine[i] = nil
			n := &node{recorder: &recorder{}, d: d}
			n.Link, errs[i] = d.Connect(ctx, mine, n.recorder)
			nodes[i] = n
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		for _, n := range nodes {
			n.Close(now)
		}
	})
	return nodes
}

func world(t testing.TB, n int) []*node {
	return connect(t, openDrivers(t, n, nil))
}

// pollUntil polls the nodes in turn until cond holds.
func pollUntil(t testing.TB, what string, cond func() bool, nodes ...*node) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for !cond() {
		for _, n := range nodes {
			n.Poll()
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func head(i int) *transport.Header {
	var h transport.Header
	binary.LittleEndian.PutUint64(h[:], uint64(i))
	binary.LittleEndian.PutUint64(h[40:], ^uint64(i))
	return &h
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

func checkFrame(t testing.TB, f frame, peer, i int, payload []byte) {
	t.Helper()
	if f.peer != peer || f.header != *head(i) || !bytes.Equal(f.payload, payload) {
		t.Fatalf("frame %d: from %d, header %x, %d bytes; want from %d, %d bytes", i, f.peer, f.header[:8], len(f.payload), peer, len(payload))
	}
}

func ctxFor(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
