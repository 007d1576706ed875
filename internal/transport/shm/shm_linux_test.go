package shm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/transport"
)

// catcher is a handler that keeps frames.
type catcher struct {
	frames [][]byte
	lost   error
}

func (c *catcher) Arriving(peer int, h *transport.Header, n int) []byte {
	if n > 1<<20 {
		panic(tooLong{})
	}
	return make([]byte, n)
}
func (c *catcher) Arrived(peer int, h *transport.Header, buf []byte) {
	c.frames = append(c.frames, buf)
}
func (c *catcher) Sent(any)                 {}
func (c *catcher) Lost(peer int, err error) { c.lost = err }

// tooLong is the value that the catcher panics with instead of allocating too
// much.
type tooLong struct{}

// opened returns the drivers of n ranks in a directory.
func opened(t testing.TB, n int, o Options) ([]*Driver, [][]byte) {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	drivers, addresses := make([]*Driver, n), make([][]byte, n)
	for r := range n {
		o.Rank, o.Size, o.Host, o.Run = r, n, "here", "test-run"
		d, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		drivers[r], addresses[r] = d, d.Address()
	}
	return drivers, addresses
}

// pair returns two links.
func pair(t testing.TB, o Options) ([]*Link, []*catcher) {
	t.Helper()
	drivers, addresses := opened(t, 2, o)
	links, handlers := make([]*Link, 2), []*catcher{{}, {}}
	var wg sync.WaitGroup
	for r, d := range drivers {
		wg.Go(func() {
			l, err := d.Connect(t.Context(), addresses, handlers[r])
			if err != nil {
				t.Error(err)
				return
			}
			links[r] = l.(*Link)
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, l := range links {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			l.Close(ctx)
		}
	})
	return links, handlers
}

// TestClose_LeavesNothing shows that a link has no file, even while it is in
// use, or when Connect fails.
func TestClose_LeavesNothing(t *testing.T) {
	dir := t.TempDir()
	pair(t, Options{Dir: dir})
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("files are left while the link is in use: %v", names)
	}
	drivers, addresses := opened(t, 2, Options{Dir: dir})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := drivers[0].Connect(ctx, addresses, &catcher{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("Connect without its peer returned %v", err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("files are left after a failed Connect: %v", names)
	}
}

// TestOpen_RemovesStaleFiles removes files of processes that do not exist any
// more, and no others.
func TestOpen_RemovesStaleFiles(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(Options{Dir: dir, Run: "r*"})
	if err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Skip(err)
	}
	dead, me, ns, start := gone.Process.Pid, os.Getpid(), d.me.pidns, d.me.start
	files := map[string]bool{ // name → whether it stays
		fmt.Sprintf("cairn-r*-%s-%d-%d-00ff", ns, dead, start):         false,
		fmt.Sprintf("cairn-r*-%s-%d-%d-00ff.bell", ns, dead, start):    false,
		fmt.Sprintf("cairn-r*-%s-%d-%d-00ff.a0.bell", ns, dead, start): false,
		fmt.Sprintf("cairn-r*-%s-%d-%d-00ff.a0", ns, me, start):        true,
		fmt.Sprintf("cairn-r*-%s-%d-%d-00ff", ns, me, start-1):         false, // another process has the number now
		fmt.Sprintf("cairn-r*-%s-%d-%d-00ff", ns, me, start):           true,
		fmt.Sprintf("cairn-r*-%s1-%d-%d-00ff", ns, dead, start):        true,  // another namespace
		fmt.Sprintf("cairn-rx-%s-%d-%d-00ff", ns, dead, start):         false, // another run
		fmt.Sprintf("cairn-r*-x-%s-%d-%d-00ff", ns, dead, start):       false, // another run, too
		"cairn-r*-notes": true,
	}
	for name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(Options{Dir: dir, Run: "r*"}); err != nil {
		t.Fatal(err)
	}
	for name, stays := range files {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: stays %v, want %v", name, err == nil, stays)
		}
	}
}

// TestConnect_ForeignFiles puts other files in the place of the peer's inbox.
func TestConnect_ForeignFiles(t *testing.T) {
	good := func(t *testing.T, c, to *address) *inbox {
		b, err := makeInbox(c, []*address{to}, minRing)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.close)
		return b
	}
	for _, c := range []struct {
		name, want string
		make       func(t *testing.T, c, to *address)
	}{
		{"another nonce", "of another run", func(t *testing.T, c, to *address) { good(t, c, to).m[offNonce]++ }},
		{"another rank", "not given the address of rank 0", func(t *testing.T, c, to *address) { *rankAt(good(t, c, to).m, 0) = 7 }},
		{"ring size", "no peer writes", func(t *testing.T, c, to *address) { *word(good(t, c, to).m, offRingSize) = 5000 }},
		{"number of rings", "no peer writes", func(t *testing.T, c, to *address) { *word(good(t, c, to).m, offRings) = 1 << 60 }},
		{"readable for others", "not a private file", func(t *testing.T, c, to *address) {
			good(t, c, to)
			os.Chmod(c.name(to), 0o644)
		}},
		{"a link", "cannot open", func(t *testing.T, c, to *address) {
			b := good(t, c, to)
			os.Remove(c.name(to))
			os.Symlink(b.path, c.name(to))
		}},
		{"a directory", "cannot open", func(t *testing.T, c, to *address) { os.Mkdir(c.name(to), 0o700) }},
		{"no bell", ".bell", func(t *testing.T, c, to *address) {
			os.Remove(good(t, c, to).path + ".bell")
		}},
		{"a file for a bell", "not a FIFO", func(t *testing.T, c, to *address) {
			bell := good(t, c, to).path + ".bell"
			os.Remove(bell)
			os.WriteFile(bell, nil, 0o600)
		}},
		{"not complete", "not there yet", func(t *testing.T, c, to *address) { *word(good(t, c, to).m, offReady) = 0 }},
		{"empty", "not there yet", func(t *testing.T, c, to *address) { os.WriteFile(c.name(to), nil, 0o600) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			drivers, addresses := opened(t, 2, Options{})
			peer, err := decodeAddress(addresses[1])
			if err != nil {
				t.Fatal(err)
			}
			c.make(t, &peer, &drivers[0].me)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if _, err := drivers[0].Connect(ctx, addresses, &catcher{}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Connect returned %v, want %q", err, c.want)
			}
		})
	}
}

// TestConnect_DeadPeer shows that Connect reports a peer that has died, also if
// its process number is in use again.
func TestConnect_DeadPeer(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Skip(err)
	}
	for name, change := range map[string]func(*address){
		"no process":      func(c *address) { c.pid = uint32(gone.Process.Pid) },
		"another process": func(c *address) { c.start-- },
	} {
		t.Run(name, func(t *testing.T) {
			drivers, addresses := opened(t, 2, Options{})
			peer, _ := decodeAddress(addresses[1])
			change(&peer)
			addresses[1] = peer.encode()
			if _, err := drivers[0].Connect(t.Context(), addresses, &catcher{}); !errors.Is(err, ErrDied) {
				t.Errorf("Connect returned %v", err)
			}
		})
	}
}

// TestReaches checks which ranks can share memory.
func TestReaches(t *testing.T) {
	drivers, addresses := opened(t, 2, Options{})
	if !drivers[0].Reaches(addresses[1]) || !drivers[1].Reaches(addresses[0]) {
		t.Error("ranks on one host do not reach each other")
	}
	for name, change := range map[string]func(*address){
		"host":      func(c *address) { c.host = "there" },
		"namespace": func(c *address) { c.pidns += "1" },
		"user":      func(c *address) { c.uid++ },
		"directory": func(c *address) { c.ino++ },
		"order":     func(c *address) { c.order = 3 - c.order },
		"page size": func(c *address) { c.page *= 2 },
	} {
		c, _ := decodeAddress(addresses[1])
		change(&c)
		if drivers[0].Reaches(c.encode()) {
			t.Errorf("a rank with another %s is reached", name)
		}
		addresses := [][]byte{nil, c.encode()}
		if _, err := drivers[0].Connect(t.Context(), addresses, &catcher{}); err == nil {
			t.Errorf("a rank with another %s was connected", name)
		}
	}
}

// TestLost_InvalidFrames makes a peer write invalid records. The peer is lost,
// with a reason, after the frames before them are delivered; and the peer is
// told.
func TestLost_InvalidFrames(t *testing.T) {
	for name, spoil := range map[string]func(w *writer){
		"kind":              func(w *writer) { w.publish(77, 0, line) },
		"short and long":    func(w *writer) { w.publish(kindShort, inline+1, line) },
		"more of nothing":   func(w *writer) { w.publish(kindMore, 10, line) },
		"longer than frame": func(w *writer) { *word(w.data, (w.pos&w.mask)+line-8) = 5; w.publish(kindFirst, 6, line) },
		"endless frame":     func(w *writer) { *word(w.data, (w.pos&w.mask)+line-8) = 1 << 63; w.publish(kindFirst, 9, line) },
		"longer than ring":  func(w *writer) { *word(w.data, (w.pos&w.mask)+line-8) = 1 << 20; w.publish(kindFirst, 1<<19, line) },
		"bye with bytes":    func(w *writer) { w.publish(kindBye, 1, line) },
	} {
		t.Run(name, func(t *testing.T) {
			links, handlers := pair(t, Options{Ring: minRing})
			links[0].Send(1, &transport.Header{}, []byte("fine"), nil)
			spoil(&links[0].peers[1].w)
			for range 3 {
				links[1].Poll()
			}
			if len(handlers[1].frames) != 1 || !errors.Is(handlers[1].lost, ErrCorrupt) {
				t.Errorf("%d frames arrived, and then: %v", len(handlers[1].frames), handlers[1].lost)
			}
			if links[0].Arm() {
				t.Error("the other side is not told")
			}
			links[0].Poll()
			if !errors.Is(handlers[0].lost, ErrClosed) {
				t.Errorf("the other side sees: %v", handlers[0].lost)
			}
		})
	}
}

// TestReader_InvalidPosition sets the reader's position to an impossible value.
func TestReader_InvalidPosition(t *testing.T) {
	links, handlers := pair(t, Options{Ring: minRing})
	*links[0].peers[1].w.read = 1 << 40
	for range 100 {
		links[0].Send(1, &transport.Header{}, make([]byte, 1000), nil)
		links[0].Poll()
	}
	if !errors.Is(handlers[0].lost, ErrCorrupt) {
		t.Errorf("lost: %v", handlers[0].lost)
	}
}

// TestLost_DeliversFrames makes a peer die that has sent more frames than one
// Poll takes. All of them are delivered before the loss.
func TestLost_DeliversFrames(t *testing.T) {
	links, handlers := pair(t, Options{})
	for range 5 * burst {
		if !links[0].Send(1, &transport.Header{}, []byte("x"), nil) {
			t.Fatal("it does not fit")
		}
	}
	links[1].end(links[1].peers[0], ErrDied)
	if links[1].Arm() {
		t.Error("it sleeps with frames to deliver")
	}
	for handlers[1].lost == nil {
		if !links[1].Poll() {
			t.Fatal("nothing moves, and nothing is lost")
		}
	}
	if n := len(handlers[1].frames); n != 5*burst || !errors.Is(handlers[1].lost, ErrDied) {
		t.Errorf("%d of %d frames arrived, then %v", n, 5*burst, handlers[1].lost)
	}
}

// TestClose_Both closes both sides while more data is queued than the rings
// hold.
func TestClose_Both(t *testing.T) {
	links, _ := pair(t, Options{})
	for r, l := range links {
		if l.Send(1-r, &transport.Header{}, make([]byte, 4<<20), nil) {
			t.Fatal("4 MiB fit the ring")
		}
	}
	var wg sync.WaitGroup
	for r, l := range links {
		wg.Go(func() {
			if err := l.Close(t.Context()); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
}

// TestSend_NoAllocations shows that a small frame is sent and received without
// allocations.
func TestSend_NoAllocations(t *testing.T) {
	links, _ := pair(t, Options{})
	links[1].h = &echo{l: links[1], buf: make([]byte, 1<<16)}
	e := &echo{l: links[0], buf: make([]byte, 1<<16), end: true}
	links[0].h = e
	h := &transport.Header{}
	for _, n := range []int{0, 1, 100, 10000} {
		payload := make([]byte, n)
		if allocs := testing.AllocsPerRun(1000, func() {
			links[0].Send(1, h, payload, nil)
			links[1].Poll()
			links[0].Poll()
		}); allocs != 0 {
			t.Errorf("%v allocations for %d bytes there and back", allocs, n)
		}
	}
	if e.got != 4*1001 {
		t.Errorf("%d frames came back", e.got)
	}
}

// echo is a handler that sends frames back.
type echo struct {
	l   *Link
	buf []byte
	end bool
	got int
}

func (e *echo) Arriving(peer int, h *transport.Header, n int) []byte { return e.buf[:n] }
func (e *echo) Arrived(peer int, h *transport.Header, buf []byte) {
	if e.got++; !e.end {
		e.l.Send(peer, h, buf, nil)
	}
}
func (e *echo) Sent(any)        {}
func (e *echo) Lost(int, error) {}

// FuzzAddress shows that bytes are refused, or are the encoding of the address
// that they are read as.
func FuzzAddress(f *testing.F) {
	c := address{rank: 1, host: "a", pidns: "b", path: "/c"}
	f.Add(c.encode())
	f.Add([]byte(addressMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeAddress(b)
		if err == nil && !bytes.Equal(c.encode(), b) {
			t.Errorf("%x is read as %+v, which is %x", b, c, c.encode())
		}
	})
}

// FuzzReader reads rings with arbitrary contents.
func FuzzReader(f *testing.F) {
	record := func(words ...uint64) (b []byte) {
		for _, w := range words {
			b = binary.NativeEndian.AppendUint64(b, w)
		}
		return b
	}
	f.Add(record(3<<8 | kindShort))
	f.Add(record(100<<8|kindFirst, 0, 0, 0, 0, 0, 0, 300))
	f.Add(append(record(64<<8|kindFirst, 0, 0, 0, 0, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0), record(16<<8|kindMore)...))
	f.Add(record(kindBye))
	f.Fuzz(func(t *testing.T, b []byte) {
		memory := make([]uint64, (line+minRing)/8)
		control, data := unsafeBytes(memory)[:line], unsafeBytes(memory)[line:]
		copy(data, b)
		r := newReader(control, data)
		for _, h := range []transport.Handler{&catcher{}, nil} {
			for range 200 {
				if !r.ready() || !nextUnlessHuge(&r, h) {
					break
				}
			}
			r.buf = nil
		}
	})
}

// nextUnlessHuge reads a record. It reports false if the frame claims to be
// huge.
func nextUnlessHuge(r *reader, h transport.Handler) (ok bool) {
	defer func() {
		if v := recover(); v != nil {
			if _, huge := v.(tooLong); !huge {
				panic(v)
			}
		}
	}()
	_, err := r.next(1, h)
	return err == nil
}

// FuzzRing writes and reads in arbitrary order, and compares.
func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 200, 255, 0, 9, 128, 255, 255})
	f.Fuzz(func(t *testing.T, ops []byte) {
		memory := make([]uint64, (line+minRing)/8)
		control, data := unsafeBytes(memory)[:line], unsafeBytes(memory)[line:]
		var awake uint64
		w, r := newWriter(control, data, bell{sleeping: &awake}), newReader(control, data)
		got := &catcher{}
		var want [][]byte
		var rest []byte // rest of the frame that is being written
		off := 0
		next := func() bool {
			if r.ready() {
				if _, err := r.next(1, got); err != nil {
					t.Fatal(err)
				}
				return true
			}
			return false
		}
		push := func() bool {
			var done bool
			off, done = w.push(&transport.Header{byte(len(want))}, rest, off)
			return done
		}
		for i, op := range ops {
			if op >= 200 {
				for range op - 199 {
					next()
				}
				continue
			}
			rest, off = bytes.Repeat([]byte{byte(i), 0xff, byte(i >> 3)}, int(op)*int(op)/10), 0
			want = append(want, rest)
			for !push() {
				if !next() {
					t.Fatal("neither is there room nor anything to read")
				}
			}
		}
		for next() {
		}
		if len(got.frames) != len(want) {
			t.Fatalf("%d frames, want %d", len(got.frames), len(want))
		}
		for i := range want {
			if !bytes.Equal(got.frames[i], want[i]) {
				t.Fatalf("frame %d is %x, want %x", i, got.frames[i], want[i])
			}
		}
	})
}

func unsafeBytes(m []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&m[0])), 8*len(m))
}
