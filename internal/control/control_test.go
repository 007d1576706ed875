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

// TestConn_AllKinds shows that messages of all kinds arrive as they were sent.
func TestConn_AllKinds(t *testing.T) {
	a, b := pair(t)
	sent := []Message{
		&Hello{Pid: 12, Dir: "/x"},
		&Endpoint{Epoch: 1 << 60, Data: []byte{0, 1, 255}},
		&Endpoints{Endpoints: [][]byte{{1}, {}, {2, 3}}},
		&Saved{Index: 1<<64 - 1, State: 1 << 50, Pause: 5, Took: 6},
		&Welcome{Rank: 3, Size: 4, Secret: []byte("s"), Settings: map[string]string{"keep": "3"}, Avoid: []uint64{7}, Output: true, Move: &Move{ID: 2, Ranks: []int{3}}},
		&Switch{Move: Move{ID: 2, Ranks: []int{1}}, OK: true, Endpoints: [][]byte{nil, {1}}},
		&Launch{Start{Launch: "x", Ranks: []int{0}, Command: []string{"/bin/true"}, OutputOffsets: [][2]int64{{1, 2}}, Welcome: Welcome{Size: 1}}},
		&FromRank{Process{Rank: 3, ByMove: 1}, "x", Carried{&Output{Stream: Stdout, Data: bytes.Repeat([]byte("x"), 1<<20)}}},
		&ToRank{Process{Rank: AllRanks}, Carried{&Checkpoint{Reason: "due", Stop: true}}},
		&Migrate{Move: Move{Ranks: []int{1, 2}, Rounds: 3}, To: "b", Env: []string{"A=1"}},
		&Answer{Run: &RunState{State: "running"}},
		&PeerHello{Host: "a", To: "b"},
		&PeerMessage{Message: []byte(`{"kind":"want"}`), Transfer: 1 << 60, Offset: 5},
		&PeerBytes{Transfer: 3, Bytes: 1 << 20},
		&PeerBytes{Transfer: 3, Error: "x", Damaged: true},
	}
	valid := map[Kind]bool{"launch": true, "startDestination": true, "welcome": true, "fromRank": true, "toRank": true, "output": true, "outputTaken": true, "peerHello": true, "peerBytes": true}
	for kind, typ := range types {
		if !valid[kind] {
			sent = append(sent, reflect.New(typ).Interface().(Message))
		}
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
	if err := b.Send(&Ping{}); err == nil {
		t.Error("a message to nobody was sent")
	}
}

// TestKind_Unique: every type has a kind of its own.
func TestKind_Unique(t *testing.T) {
	if len(types) != len(kinds) {
		t.Errorf("%d kinds of %d types", len(types), len(kinds))
	}
}

// TestConn_ConcurrentSends shows that messages of concurrent senders arrive
// whole, and in the order of each sender.
func TestConn_ConcurrentSends(t *testing.T) {
	a, b := pair(t)
	const senders, each = 8, 100
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for i := range each {
				a.Send(&FromRank{Process{Rank: s, ByMove: uint64(i)}, "", Carried{&Endpoint{Data: bytes.Repeat([]byte{byte(s)}, 5000)}}})
			}
		})
	}
	next := make([]uint64, senders)
	for range senders * each {
		m, err := b.Recv()
		if err != nil {
			t.Fatal(err)
		}
		f := m.(*FromRank)
		data := f.Carried.Message.(*Endpoint).Data
		if f.ByMove != next[f.Rank] || len(data) != 5000 || data[4999] != byte(f.Rank) {
			t.Fatalf("rank %d: message %d, want %d", f.Rank, f.ByMove, next[f.Rank])
		}
		next[f.Rank]++
	}
	all.Wait()
}

func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

type stream struct{ io.Reader }

func (stream) Write(p []byte) (int, error) { return len(p), nil }
func (stream) Close() error                { return nil }

// TestRecv_Malformed checks the errors for malformed messages.
func TestRecv_Malformed(t *testing.T) {
	for text, want := range map[string]string{
		"\x00":                                      "within its length",
		"\xff\xff\xff\xff":                          "are allowed",
		"\x00\x00\x00\x05ab":                        "it ends after 2 of 5 bytes",
		string(frame(`{}`)):                         "it has no kind",
		string(frame(`null`)):                       "it has no kind",
		string(frame(`[1]`)):                        "array",
		string(frame(`{"kind":1}`)):                 "number",
		string(frame(`{"kind":"x"`)):                "unexpected end",
		string(frame(`{"kind":"gift"}`)):            `unknown kind "gift"`,
		string(frame(`{"kind":"hello","body":[]}`)): "hello: ",
		string(frame(`{"kind":"saved","body":{"index":-1}}`)):                                         "saved: ",
		string(frame(`{"kind":"welcome"}`)):                                                           "welcome: rank 0 of 0",
		string(frame(`{"kind":"welcome","body":{"rank":2,"size":2}}`)):                                "welcome: rank 2 of 2",
		string(frame(`{"kind":"launch","body":{"ranks":[1],"command":["/x"]}}`)):                      "launch: 1 ranks and 0 output offsets",
		string(frame(`{"kind":"launch","body":{}}`)):                                                  "launch: no command",
		string(frame(`{"kind":"startDestination","body":{"ranks":[1]}}`)):                             "startDestination: ",
		string(frame(`{"kind":"output","body":{"stream":3}}`)):                                        "output: stream 3",
		string(frame(`{"kind":"output","body":{"stream":1,"offset":-1}}`)):                            "output: offset -1",
		string(frame(`{"kind":"outputTaken"}`)):                                                       "outputTaken: stream 0",
		string(frame(`{"kind":"exited","body":{"offsets":[1]}}`)):                                     "exited: 1 output offsets",
		string(frame(`{"kind":"fromRank"}`)):                                                          "fromRank: it carries no message",
		string(frame(`{"kind":"toRank","body":{"message":null}}`)):                                    "toRank: it has no kind",
		string(frame(`{"kind":"toRank","body":{"message":{"kind":"gift"}}}`)):                         `unknown kind "gift"`,
		string(frame(`{"kind":"toRank","body":{"message":{"kind":"toRank"}}}`)):                       "a toRank in another message",
		string(frame(`{"kind":"fromRank","body":{"message":{"kind":"output","body":{"stream":9}}}}`)): "stream 9",
	} {
		if m, err := New(stream{strings.NewReader(text)}).Recv(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %s", text, m, err, want)
		}
	}
	c := New(stream{bytes.NewReader(frame(`{"kind":"ping","body":{"why":"a long story"}}`))})
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

// FuzzRecv: what is received is a message that can be sent again, or an error.
func FuzzRecv(f *testing.F) {
	f.Add(frame(`{"kind":"hello","body":{"pid":3}}`))
	f.Add(append(frame(`{"kind":"endpoints","body":{"endpoints":["AA=="]}}`), frame(`{"kind":"welcome","body":{"rank":1,"size":2,"move":{"id":1}}}`)...))
	f.Add(frame(`{"kind":"fromRank","body":{"rank":1,"launch":"x","message":{"kind":"output","body":{"stream":1,"data":"AA=="}}}}`))
	f.Add(frame(`{"kind":"toRank","body":{"rank":-1,"message":{"kind":"toRank","body":{"message":{}}}}}`))
	for _, m := range kinds {
		f.Add(frame(fmt.Sprintf(`{"kind":%q,"body":{"rank":0,"size":1,"move":1,"ranks":[0],"offsets":[1,2],"command":["/x"],"outputOffsets":[[0,0]],"stream":2}}`, m.Kind())))
	}
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
			text, err := encode(m)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := decode(text); err != nil || again.Kind() != m.Kind() {
				t.Fatalf("%s: %v", text, err)
			}
		}
	})
}

// TestJoin accepts only an answer that makes sense.
func TestJoin(t *testing.T) {
	a, b := pair(t)
	for _, c := range []struct {
		answer Message
		ok     bool
	}{
		{&Welcome{Rank: 1, Size: 2}, true},
		{&Welcome{}, false},
		{&Welcome{Rank: 2, Size: 2}, false},
		{&Ping{}, false},
	} {
		go func() {
			m, err := b.Recv()
			if h, ok := m.(*Hello); err != nil || !ok || h.Pid != os.Getpid() || !strings.HasSuffix(h.Dir, "/ckpt") || h.Dir == "ckpt" {
				t.Errorf("%+v, %v", m, err)
			}
			b.Send(c.answer)
		}()
		if w, err := Join(a, "ckpt", false, ""); (err == nil) != c.ok {
			t.Errorf("%+v: %+v, %v", c.answer, w, err)
		}
	}
}

// TestInherit_NoSocket tells a process without a supervisor from one whose
// descriptor is wrong.
func TestInherit_NoSocket(t *testing.T) {
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

// TestHandshake shows that both ends can talk after a handshake with one
// secret.
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
	client.Send(&Ping{})
	if m, err := server.Recv(); err != nil || m.Kind() != "ping" {
		t.Fatal(err)
	}
}

// TestHandshake_Refuses refuses ends that do not know the secret, whatever they
// send.
func TestHandshake_Refuses(t *testing.T) {
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

// TestDerive shows that derived secrets differ by secret and by purpose.
func TestDerive(t *testing.T) {
	a := Derive([]byte("secret"), "x")
	if len(a) != 32 || bytes.Equal(a, Derive([]byte("secret"), "y")) || bytes.Equal(a, Derive([]byte("other"), "x")) || !bytes.Equal(a, Derive([]byte("secret"), "x")) {
		t.Error("derived secrets")
	}
}
