package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/transport"
)

func dialAddress(t *testing.T, d *Driver) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", netip.AddrPortFrom(d.me.ips[0].ip, d.me.port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// refused waits until the other side closes the connection. It may send at most
// max bytes before that.
func refused(t *testing.T, what string, c net.Conn, max int) {
	t.Helper()
	b, err := io.ReadAll(c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || len(b) > max {
		t.Errorf("%s: not refused: %d bytes, %v", what, len(b), err)
	}
}

// joining starts Connect of one rank and returns a function that waits for the
// result.
func joining(t *testing.T, ds []*Driver, rank int) func() (*node, error) {
	n := &node{recorder: &recorder{}, d: ds[rank]}
	done := make(chan error, 1)
	go func() {
		l, err := ds[rank].Connect(ctxFor(t, 30*time.Second), addressesOf(ds), n.recorder)
		n.Link = l
		done <- err
	}()
	return func() (*node, error) { err := <-done; return n, err }
}

// TestConnect_Strangers shows that a process which is not a rank of the run is
// refused, and does not disturb the ranks.
func TestConnect_Strangers(t *testing.T) {
	ds := openDrivers(t, 3, nil)
	zero := joining(t, ds, 0)
	p := pair{dialer: 1, acceptor: 0, size: 3, from: ds[1].me.id, to: ds[0].me.id}
	nop := func() {}

	c := dialAddress(t, ds[0])
	if err := greet(c, []byte("another secret of that length"), p, nop); !errors.Is(err, errStranger) {
		t.Errorf("wrong secret: %v", err)
	}
	c.Close()

	// This client does not check the acceptor's proof, and does not know the
	// secret.
	c = dialAddress(t, ds[0])
	c.Write(p.hello(make([]byte, nonceSize)))
	answer := make([]byte, nonceSize+proofSize)
	if _, err := io.ReadFull(c, answer); err != nil {
		t.Fatal(err)
	}
	c.Write(answer[nonceSize:]) // the acceptor's own proof, reflected
	refused(t, "reflection", c, 0)

	for what, bad := range map[string][]byte{
		"garbage":      bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 8),
		"own rank":     pair{dialer: 0, acceptor: 0, size: 3}.hello(make([]byte, nonceSize)),
		"other rank":   pair{dialer: 2, acceptor: 1, size: 3}.hello(make([]byte, nonceSize)),
		"other run":    pair{dialer: 1, acceptor: 0, size: 4}.hello(make([]byte, nonceSize)),
		"no such rank": pair{dialer: 3, acceptor: 0, size: 3}.hello(make([]byte, nonceSize)),
		"huge rank":    pair{dialer: 1<<32 - 1, acceptor: 0, size: 3}.hello(make([]byte, nonceSize)),
	} {
		c := dialAddress(t, ds[0])
		c.Write(bad)
		refused(t, what, c, 0)
	}

	for range 20 {
		dialAddress(t, ds[0]).Close() // a port scan
	}
	half := dialAddress(t, ds[0]) // sends a little, and then nothing
	half.Write([]byte(helloMagic)[:5])

	// Record a correct handshake, cut off before its end, and replay it.
	var said bytes.Buffer
	c = dialAddress(t, ds[0])
	rec := &recording{Conn: c, said: &said, stop: helloSize + proofSize - 1}
	if err := greet(rec, testSecret, p, nop); err == nil {
		t.Error("cut handshake: no error")
	}
	c.Close()
	full := said.Bytes()
	c = dialAddress(t, ds[0])
	c.Write(full[:helloSize])
	if _, err := io.ReadFull(c, answer); err != nil {
		t.Fatal(err)
	}
	c.Write(full[helloSize:])
	refused(t, "replay", c, 0)

	one, two := joining(t, ds, 1), joining(t, ds, 2)
	var nodes []*node
	for _, f := range []func() (*node, error){zero, one, two} {
		n, err := f()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close(ctxFor(t, 5*time.Second))
		nodes = append(nodes, n)
	}
	refused(t, "half a hello", half, 0)
	late := dialAddress(t, ds[0]) // the kernel accepts the connection, but no rank handles it
	late.Write(full)
	nodes[1].Send(0, head(1), []byte("one"), nil)
	nodes[2].Send(0, head(2), []byte("two"), nil)
	pollUntil(t, "both frames", func() bool { return len(nodes[0].frames) == 2 }, nodes...)
	if len(nodes[0].lost) != 0 {
		t.Error(nodes[0].lost)
	}
}

// recording records all that is written, and passes on only the first stop
// bytes.
type recording struct {
	net.Conn
	said *bytes.Buffer
	stop int
}

func (r *recording) Write(b []byte) (int, error) {
	room := max(0, r.stop-r.said.Len())
	r.said.Write(b)
	if len(b) > room {
		r.Conn.Write(b[:room])
		return room, io.ErrShortWrite
	}
	return r.Conn.Write(b)
}

// TestConnect_Duplicate shows that a second connection for a connected rank is
// refused, even with the secret. If the first connection is dead, the second
// one replaces it.
func TestConnect_Duplicate(t *testing.T) {
	ds := openDrivers(t, 3, nil)
	zero := joining(t, ds, 0)
	p := pair{dialer: 1, acceptor: 0, size: 3, from: ds[1].me.id, to: ds[0].me.id}
	first := dialAddress(t, ds[0])
	if err := greet(first, testSecret, p, func() {}); err != nil {
		t.Fatal(err)
	}
	second := dialAddress(t, ds[0])
	if err := greet(second, testSecret, p, func() {}); !errors.Is(err, errDuplicate) {
		t.Fatalf("second claim: %v", err)
	}
	first.Close()
	b := &node{recorder: &recorder{}}
	l, err := ds[1].Connect(ctxFor(t, 20*time.Second), [][]byte{ds[0].Address()}, b.recorder)
	if err != nil {
		t.Fatal(err)
	}
	b.Link = l
	c, err := ds[2].Connect(ctxFor(t, 20*time.Second), [][]byte{ds[0].Address()}, &recorder{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctxFor(t, 5*time.Second))
	a, err := zero()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close(ctxFor(t, 5*time.Second))
	defer b.Close(ctxFor(t, 5*time.Second))
	b.Send(0, head(1), []byte("one"), nil)
	pollUntil(t, "a frame", func() bool { return len(a.frames) == 1 }, a, b)
}

// TestConnect_Flood shows that many silent connections do not keep ranks out.
func TestConnect_Flood(t *testing.T) {
	ds := openDrivers(t, 2, nil)
	zero := joining(t, ds, 0)
	var conns []net.Conn
	for range maxUnproven + 50 {
		conns = append(conns, dialAddress(t, ds[0]))
	}
	refused(t, "the oldest of too many", conns[0], 0)
	one := joining(t, ds, 1)
	for _, f := range []func() (*node, error){zero, one} {
		n, err := f()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close(ctxFor(t, 5*time.Second))
	}
	refused(t, "the newest", conns[len(conns)-1], 0)
}

// TestConnect_Impostor shows that a dialer refuses a stranger who listens in a
// rank's place.
func TestConnect_Impostor(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var got sync.WaitGroup
	got.Add(3)
	go func() {
		for i := 0; ; i++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			var hello [helloSize]byte
			io.ReadFull(c, hello[:])
			switch i % 3 {
			case 0:
				c.Write(make([]byte, nonceSize+proofSize+1))
			case 1:
				c.Write(append(hello[:], hello[:]...)) // reflection
			}
			c.Close()
			if i < 3 {
				got.Done()
			}
		}
	}()
	ds := openDrivers(t, 2, nil)
	addresses := addressesOf(ds)
	fake := ds[0].me
	fake.port = uint16(ln.Addr().(*net.TCPAddr).Port)
	addresses[0] = fake.encode()
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("enough")
	go func() { got.Wait(); cancel(reason) }()
	_, err = ds[1].Connect(ctx, addresses, &recorder{})
	if !errors.Is(err, ErrNotConnected) || !errors.Is(err, reason) || !strings.Contains(err.Error(), "rank 0") {
		t.Error(err)
	}
}

// TestConnect_MissingPeer shows that Connect ends with its context, and names
// the ranks that are missing.
func TestConnect_MissingPeer(t *testing.T) {
	ds := openDrivers(t, 4, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	addresses := addressesOf(ds)
	addresses[3] = nil
	ds[0].Close()
	_, err := ds[1].Connect(ctx, addresses, &recorder{})
	if !errors.Is(err, ErrNotConnected) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	for _, want := range []string{"rank 0", "refused", "rank 2", "did not call"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "rank 3") {
		t.Errorf("%q names a rank that was not asked for", err)
	}
	// Connect can be called again.
	two := make(chan error, 1)
	only := [][]byte{nil, addresses[1], nil, nil}
	go func() {
		l, err := ds[2].Connect(ctxFor(t, 20*time.Second), only, &recorder{})
		if err == nil {
			defer l.Close(ctxFor(t, time.Second))
		}
		two <- err
	}()
	l, err := ds[1].Connect(ctxFor(t, 20*time.Second), [][]byte{nil, nil, addresses[2], nil}, &recorder{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(ctxFor(t, time.Second))
	if err := <-two; err != nil {
		t.Fatal(err)
	}
}

// TestOpen_Invalid checks the message for each wrong option.
func TestOpen_Invalid(t *testing.T) {
	for what, o := range map[string]Options{
		"ranks count":  {Rank: 2, Size: 2, Secret: testSecret},
		"secret":       {Size: 2, Secret: []byte("short")},
		"nosuchiface0": {Listen: "nosuchiface0"},
		"host name":    {Host: strings.Repeat("x", 300)},
	} {
		if d, err := Open(o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				d.Close()
			}
		}
	}
}

// TestOpen_Listen checks the addresses that a rank with each kind of Listen
// has.
func TestOpen_Listen(t *testing.T) {
	for _, at := range []string{"", "lo", "127.0.0.1", "127.0.0.1:0", ":0"} {
		d, err := Open(Options{Size: 2, Secret: testSecret, Listen: at})
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseAddress(d.Address())
		if err != nil {
			t.Fatal(err)
		}
		if only := at != "" && at[0] != ':'; only && (len(c.ips) != 1 || !c.ips[0].loopback) {
			t.Errorf("%q: %v", at, c.ips)
		}
		if !d.Reaches(d.Address()) {
			t.Error("does not reach its own kind")
		}
		other := d.me
		other.size++
		if d.Reaches(other.encode()) {
			t.Error("reaches a rank of a run of another size")
		}
		d.Close()
	}
}

var _ transport.Driver = (*Driver)(nil)
