package control

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// pair returns two ends that are connected by a Unix socket.
func pair(t testing.TB) (*Conn, *Conn) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("no socketpairs")
	}
	a, f, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	b, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	ca, cb := New(a), New(b)
	t.Cleanup(func() { ca.Close(); cb.Close() })
	return ca, cb
}

func TestMessages(t *testing.T) {
	a, b := pair(t)
	sent := []*Message{
		{Kind: Hello, Pid: 12, Dir: "/x"},
		{Kind: Endpoint, Epoch: 1 << 60, Data: []byte{0, 1, 255}},
		{Kind: Endpoints, Rank: AllRanks, Endpoints: [][]byte{{1}, {}, {2, 3}}},
		{Kind: Saved, Index: 1<<64 - 1, State: 1 << 50, PauseNS: 5, TookNS: 6},
		{Kind: Welcomed, Welcome: &Welcome{Rank: 3, Size: 4, Secret: []byte("s"), Every: time.Minute, Avoid: []uint64{7}, Output: true}},
		{Kind: Output, Data: bytes.Repeat([]byte("x"), 1<<20)},
		{Kind: Finished},
	}
	go func() {
		for _, m := range sent {
			if err := a.Send(m); err != nil {
				t.Error(err)
			}
		}
		a.Close()
	}()
	for _, want := range sent {
		got, err := b.Recv()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
	}
	if _, err := b.Recv(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if err := b.Send(&Message{Kind: Ping}); err == nil {
		t.Error("a message to nobody was sent")
	}
}

func TestConcurrentSends(t *testing.T) {
	a, b := pair(t)
	const senders, each = 8, 100
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for i := range each {
				a.Send(&Message{Kind: Progress, Rank: s, Points: uint64(i), Data: bytes.Repeat([]byte{byte(s)}, 5000)})
			}
		})
	}
	next := make([]uint64, senders)
	for range senders * each {
		m, err := b.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.Points != next[m.Rank] || len(m.Data) != 5000 || m.Data[4999] != byte(m.Rank) {
			t.Fatalf("rank %d: message %d, want %d", m.Rank, m.Points, next[m.Rank])
		}
		next[m.Rank]++
	}
	all.Wait()
}

func TestFiles(t *testing.T) {
	a, b := pair(t)
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("hello")
	go func() {
		a.Send(&Message{Kind: Ping})
		a.SendFiles(&Message{Kind: Hello, Data: make([]byte, 300000)}, f, f)
		a.Send(&Message{Kind: Pong})
		a.SendFiles(&Message{Kind: Ping}, f)
	}()
	for i, want := range []int{0, 2, 0} {
		m, files, err := b.RecvFiles()
		if err != nil || len(files) != want {
			t.Fatalf("message %d: %+v with %d files, %v", i, m.Kind, len(files), err)
		}
		for _, f := range files {
			text := make([]byte, 5)
			if _, err := f.ReadAt(text, 0); err != nil || string(text) != "hello" {
				t.Errorf("%q, %v", text, err)
			}
			f.Close()
		}
	}
	if m, err := b.Recv(); err != nil || m.Kind != Ping { // closes what it does not expect
		t.Fatal(err)
	}
	p, q := net.Pipe()
	defer p.Close()
	defer q.Close()
	if err := New(p).SendFiles(&Message{Kind: Ping}, f); err == nil {
		t.Error("a descriptor went through a pipe")
	}
}

func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

type stream struct{ io.Reader }

func (stream) Write(p []byte) (int, error) { return len(p), nil }
func (stream) Close() error                { return nil }

func TestMalformed(t *testing.T) {
	for _, text := range []string{"\x00", "\xff\xff\xff\xff", "\x00\x00\x00\x05ab", string(frame("{}")), string(frame("[1]")), string(frame("{\"kind\":1}")), string(frame(`{"kind":"x"`))} {
		if m, err := New(stream{strings.NewReader(text)}).Recv(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	}
	c := New(stream{bytes.NewReader(frame(`{"kind":"ping","why":"a long story"}`))})
	c.SetLimit(20)
	if _, err := c.Recv(); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	// A length alone takes no memory.
	claims := New(stream{strings.NewReader("\x03\xff\xff\xff{")})
	if n := testing.AllocsPerRun(1, func() { claims.Recv() }); n > 100 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzRecv(f *testing.F) {
	f.Add(frame(`{"kind":"hello","pid":3}`))
	f.Add(append(frame(`{"kind":"cards","cards":["AA=="]}`), frame(`{"kind":"welcome","welcome":{"rank":1,"size":2}}`)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := New(stream{bytes.NewReader(data)})
		c.SetLimit(1 << 16)
		for {
			m, err := c.Recv()
			if err != nil {
				if err != io.EOF && !errors.Is(err, ErrMalformed) {
					t.Fatal(err)
				}
				return
			}
			if m.Kind == "" {
				t.Fatal("a message without a kind")
			}
		}
	})
}

func TestJoin(t *testing.T) {
	a, b := pair(t)
	for _, c := range []struct {
		answer *Message
		ok     bool
	}{
		{&Message{Kind: Welcomed, Welcome: &Welcome{Rank: 1, Size: 2}}, true},
		{&Message{Kind: Welcomed}, false},
		{&Message{Kind: Welcomed, Welcome: &Welcome{Rank: 2, Size: 2}}, false},
		{&Message{Kind: Ping}, false},
	} {
		go func() {
			if m, err := b.Recv(); err != nil || m.Kind != Hello || m.Pid != os.Getpid() || !strings.HasSuffix(m.Dir, "/ckpt") || m.Dir == "ckpt" {
				t.Errorf("%+v, %v", m, err)
			}
			b.Send(c.answer)
		}()
		if w, err := Join(a, "ckpt"); (err == nil) != c.ok {
			t.Errorf("%+v: %+v, %v", c.answer, w, err)
		}
	}
}

func TestInherit(t *testing.T) {
	if _, _, err := Inherit(); !errors.Is(err, ErrAlone) {
		t.Error(err)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, v := range []string{"x", "0", "-1", "9999", fmt.Sprint(f.Fd())} {
		t.Setenv(EnvControl, v)
		if _, _, err := Inherit(); err == nil || errors.Is(err, ErrAlone) {
			t.Errorf("%s: %v", v, err)
		}
	}
	if _, err := f.Stat(); err != nil {
		t.Errorf("a file that is none of ours was closed: %v", err)
	}
}

// tcp returns two ends of a TCP connection.
func tcp(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestHandshake(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	a, b := tcp(t)
	done := make(chan *Conn)
	go func() {
		c, err := Server(b, secret)
		if err != nil {
			t.Error(err)
		}
		done <- c
	}()
	client, err := Client(a, secret)
	if err != nil {
		t.Fatal(err)
	}
	server := <-done
	client.Send(&Message{Kind: Ping})
	if m, err := server.Recv(); err != nil || m.Kind != Ping {
		t.Fatal(err)
	}
}

func TestHandshakeRefuses(t *testing.T) {
	secret, other := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	for name, attack := range map[string]func(net.Conn){
		"nothing":     func(c net.Conn) { c.Close() },
		"garbage":     func(c net.Conn) { c.Write(bytes.Repeat([]byte("x"), 200)) },
		"wrong proof": func(c net.Conn) { c.Write(append([]byte(magic), make([]byte, 64)...)) },
		"reflection": func(c net.Conn) { // what the server says, sent back
			c.Write(append([]byte(magic), make([]byte, nonceSize)...))
			buf := make([]byte, len(magic)+nonceSize+32)
			io.ReadFull(c, buf)
			c.Write(buf[len(magic)+nonceSize:])
		},
		"wrong secret": func(c net.Conn) {
			if _, err := Client(c, other); !errors.Is(err, ErrRefused) {
				t.Errorf("a server with another secret was accepted: %v", err)
			}
		},
		"client without check": func(c net.Conn) {
			mine := make([]byte, nonceSize)
			c.Write(append([]byte(magic), mine...))
			buf := make([]byte, len(magic)+nonceSize+32)
			io.ReadFull(c, buf)
			c.Write(proof(other, "client", mine, buf[len(magic):len(magic)+nonceSize]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tcp(t)
			go attack(a)
			if c, err := Server(b, secret); err == nil {
				t.Error("accepted")
				c.Close()
			}
			if _, err := b.Write([]byte("x")); err == nil {
				t.Error("the connection is open")
			}
		})
	}
	a, _ := tcp(t)
	if _, err := Client(a, []byte("short")); err == nil {
		t.Error("a short secret")
	}
}

func TestDerive(t *testing.T) {
	a := Derive([]byte("secret"), "x")
	if len(a) != 32 || bytes.Equal(a, Derive([]byte("secret"), "y")) || bytes.Equal(a, Derive([]byte("other"), "x")) || !bytes.Equal(a, Derive([]byte("secret"), "x")) {
		t.Error("derived secrets")
	}
}
