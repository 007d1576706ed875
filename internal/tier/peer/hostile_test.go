package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/kept"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// TestConnect_Strangers lets peers connect that do not know the secret, or send
// what they must not. They get an error, and others do not notice.
func TestConnect_Strangers(t *testing.T) {
	c := newCluster(t, 2, 1, [2]int{})
	c.startAll()
	c.save(c.nodes[0], 5, 300_000)
	c.stored(c.nodes[0])
	b := c.nodes[1]
	object := c.nodes[0].part.Objects[0].Name
	if _, _, err := control.Dial(t.Context(), b.Addresses(), bytes.Repeat([]byte("x"), 32), nil); err == nil {
		t.Error("a stranger is connected")
	}
	if _, _, err := control.Dial(t.Context(), b.Addresses(), secret, nil); err == nil {
		t.Error("the supervisor's secret itself is accepted")
	}
	dial := func(to string) (net.Conn, *control.Conn) {
		conn, cc, err := control.Dial(t.Context(), b.Addresses(), control.Derive(secret, "copies"), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(3 * time.Minute))
		if to != "" {
			if err := cc.Send(&control.PeerHello{Host: "q", To: to}); err != nil {
				t.Fatal(err)
			}
			m, err := cc.Recv()
			if hello, ok := m.(*control.PeerHello); err != nil || !ok || hello.Host != "b" {
				t.Fatal(m, err)
			}
		}
		return conn, cc
	}
	ended := func(what string, cc *control.Conn) {
		t.Helper()
		for {
			if _, err := cc.Recv(); err != nil {
				if !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
					t.Errorf("%s: %v", what, err)
				}
				return
			}
		}
	}
	_, cc := dial("someone else")
	ended("another host", cc)
	text := func(s string) []byte { return []byte(s) }
	for what, m := range map[string]control.Message{
		"no message":      &control.PeerMessage{Message: text(`{}`)},
		"not JSON of one": &control.PeerMessage{Message: text(`[1]`)},
		"unknown kind":    &control.PeerMessage{Message: text(`{"kind":"gimme"}`)},
		"negative size":   &control.PeerMessage{Message: text(fmt.Sprintf(`{"kind":"offer","id":{"object":%q},"size":-1}`, object))},
		"no part":         &control.PeerMessage{Message: text(`{"kind":"part","tier":"partner"}`)},
		"other protocol":  &control.Ping{},
	} {
		_, cc := dial("b")
		if err := cc.Send(m); err != nil {
			t.Fatal(err)
		}
		ended(what, cc)
	}
	conn, cc := dial("b")
	conn.Write(binary.BigEndian.AppendUint32(nil, 1<<31))
	ended("a message of 2 GiB", cc)
	conn, cc = dial("b")
	if err := cc.Send(&control.PeerBytes{Transfer: 7, Bytes: 100}); err != nil {
		t.Fatal(err)
	}
	conn.Write(bytes.Repeat([]byte{1}, 200)) // not a chunk
	ended("altered bytes", cc)

	// Offers of what cannot be stored are answered.
	_, cc = dial("b")
	for what, id := range map[string]copies.ID{"outside": {Object: "../../etc/passwd"}, "no digest": {Object: "rank-0.h5"}, "a code of nothing": {Object: object, Data: 3}} {
		if err := cc.Send(&control.PeerMessage{Message: text(fmt.Sprintf(`{"kind":"offer","id":{"object":%q,"data":%d},"size":10}`, id.Object, id.Data))}); err != nil {
			t.Fatal(err)
		}
		for failed := false; !failed; {
			m, err := cc.Recv()
			if err != nil {
				t.Fatal(what, err)
			}
			failed = strings.Contains(string(m.(*control.PeerMessage).Message), `"failed"`)
		}
	}
	// Bytes that nobody wants, and a part that names what is outside.
	for _, m := range []control.Message{
		&control.PeerBytes{Transfer: 99, Error: "sorry"},
		&control.PeerMessage{Message: text(fmt.Sprintf(`{"kind":"part","tier":"partner","ids":[{"object":%q}],"part":{"Index":1,"Attempt":"../x","Rank":0,"Ranks":1,"Objects":[{"Name":"x","Size":1}]}}`, object))},
	} {
		if err := cc.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := cc.Recv(); err != nil || !strings.Contains(string(m.(*control.PeerMessage).Message), `"failed"`) {
		t.Error(m, err)
	}

	for _, m := range []*control.GetObject{{Object: "../x", Bytes: 1}, {Object: object, Bytes: 1 << 50}, {Object: object, Offset: 1 << 50, Bytes: 1}, {Object: object, Data: 2, Parity: 1, Bytes: 1}} {
		_, cc := dial("")
		if err := cc.Send(m); err != nil {
			t.Fatal(err)
		}
		got, err := cc.Recv()
		if head, ok := got.(*control.PeerBytes); err != nil || !ok || head.Error == "" {
			t.Errorf("%+v: %+v, %v", m, got, err)
		}
	}
	c.save(c.nodes[0], 6, 300_000)
	c.stored(c.nodes[0])
	c.sound(b)
}

// TestFetch_Hostile fetches from a helper that answers with something else.
func TestFetch_Hostile(t *testing.T) {
	c := newCluster(t, 1, 1, [2]int{})
	c.startAll()
	a := c.nodes[0]
	name := kept.ObjectName(0, tierFile(t, bytes.Repeat([]byte("x"), 1000)))
	for what, answer := range map[string]func(net.Conn, *control.Conn){
		"nothing":         func(net.Conn, *control.Conn) {},
		"another message": func(_ net.Conn, cc *control.Conn) { cc.Send(&control.Ping{}) },
		"too much":        func(_ net.Conn, cc *control.Conn) { cc.Send(&control.PeerBytes{Bytes: 1001}) },
		"half a chunk": func(conn net.Conn, cc *control.Conn) {
			cc.Send(&control.PeerBytes{Bytes: 1000})
			conn.Write(make([]byte, 300))
		},
		"other bytes": func(conn net.Conn, cc *control.Conn) {
			cc.Send(&control.PeerBytes{Bytes: 1000})
			newChunk(bytes.Repeat([]byte("y"), 1000)).Send(conn, 1000)
		},
	} {
		l, err := control.Listen(control.Derive(secret, "copies"), func(conn net.Conn, cc *control.Conn) {
			if _, err := cc.Recv(); err == nil {
				answer(conn, cc)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		// The name is below that of the host, so nobody connects.
		a.SetPeers([]Host{{"0", l.Addresses()[len(l.Addresses())-1:]}}, copies.View{})
		for _, item := range []recovery.Fetch{
			{To: "a", Object: recovery.Object{Name: name, Size: 1000}, From: []recovery.Source{{Store: 0, Shard: -1}}},
			{To: "a", Object: recovery.Object{Name: name, Size: 1000}, From: []recovery.Source{{Store: 0, Shard: 1}, {Store: 0, Shard: 2}}, Data: 2, Parity: 1},
		} {
			if err := a.Fetch(t.Context(), []string{"0"}, []recovery.Fetch{item}); err == nil || a.kept.Has(copies.ID{Object: name}) {
				t.Errorf("%s was accepted", what)
			}
		}
		l.Close()
	}
	for _, item := range []recovery.Fetch{
		{To: "a", Object: recovery.Object{Name: "../x", Size: 1}}, {To: "a", Object: recovery.Object{Name: name, Size: 1}},
		{To: "a", Object: recovery.Object{Name: name, Size: 1}, From: []recovery.Source{{Store: 7, Shard: -1}}},
		{To: "a", Object: recovery.Object{Name: name, Size: 1}, From: []recovery.Source{{Store: 0, Shard: 9}}, Data: 2, Parity: 1},
	} {
		if err := a.Fetch(t.Context(), []string{"nobody"}, []recovery.Fetch{item}); err == nil {
			t.Errorf("%+v was fetched", item)
		}
	}
}
