package tcp

import (
	"bytes"
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

func sampleAddress() *address {
	return &address{id: identity{1, 2, 3}, port: 4711, rank: 3, size: 9, host: "node7", ips: []ipAddr{
		{netip.MustParseAddr("10.0.0.7"), false},
		{netip.MustParseAddr("fd00::7"), false},
		{netip.MustParseAddr("172.17.0.1"), false},
		{netip.MustParseAddr("127.0.0.1"), true},
	}}
}

// TestAddress shows that an address comes back as it was encoded. What is too
// short or too long is refused.
func TestAddress(t *testing.T) {
	want := sampleAddress()
	b := want.encode()
	got, err := parseAddress(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range b {
		if _, err := parseAddress(b[:n]); err == nil {
			t.Errorf("an address of %d of %d bytes is taken", n, len(b))
		}
	}
	if _, err := parseAddress(append(b, 0)); err == nil {
		t.Error("an address with a byte too many is taken")
	}
}

// TestTargets checks in which order the addresses of a peer are tried.
func TestTargets(t *testing.T) {
	me := &address{host: "node1", ips: []ipAddr{{netip.MustParseAddr("172.17.0.1"), false}, {netip.MustParseAddr("127.0.0.1"), true}}}
	list := func() (s []string) {
		for _, a := range targets(me, sampleAddress()) {
			s = append(s, a.String())
		}
		return s
	}
	if got, want := list(), []string{"10.0.0.7:4711", "[fd00::7]:4711", "172.17.0.1:4711", "127.0.0.1:4711"}; !slices.Equal(got, want) {
		t.Errorf("another host: %v", got)
	}
	me.host = "node7"
	if got, want := list(), []string{"127.0.0.1:4711", "10.0.0.7:4711", "[fd00::7]:4711", "172.17.0.1:4711"}; !slices.Equal(got, want) {
		t.Errorf("the same host: %v", got)
	}
}

// FuzzAddress shows that bytes are refused, or are the encoding of the address
// that they are read as.
func FuzzAddress(f *testing.F) {
	f.Add(sampleAddress().encode())
	f.Add([]byte(addressMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseAddress(b)
		if err != nil {
			return
		}
		if again := c.encode(); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		targets(c, c)
	})
}

// FuzzHello shows the same for the first message of a connection.
func FuzzHello(f *testing.F) {
	f.Add(pair{dialer: 2, acceptor: 1, size: 3}.hello(make([]byte, nonceSize)))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseHello(b)
		if err == nil && !bytes.Equal(p.hello(b[len(b)-nonceSize:]), b) {
			t.Fatalf("%x is %v", b, p)
		}
	})
}
