package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

const (
	cardMagic   = "cnTc"
	cardVersion = 2
	cardFixed   = len(cardMagic) + 1 + idSize + 2 + 4 + 4
	idSize      = 16
)

var errCard = errors.New("not a card of this transport")

// identity tells one driver from all others, those that had its rank before
// included.
type identity [idSize]byte

// card is what a card says.
type card struct {
	id    identity
	port  uint16
	rank  int
	size  int
	host  string
	addrs []addr
}

// addr is an address that a rank listens at.
type addr struct {
	ip       netip.Addr
	loopback bool
}

func (c *card) encode() []byte {
	b := append([]byte(cardMagic), cardVersion)
	b = append(b, c.id[:]...)
	b = binary.LittleEndian.AppendUint16(b, c.port)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rank))
	b = binary.LittleEndian.AppendUint32(b, uint32(c.size))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.host)))
	b = append(b, c.host...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.addrs)))
	for _, a := range c.addrs {
		loop := byte(0)
		if a.loopback {
			loop = 1
		}
		raw := a.ip.AsSlice()
		b = append(b, loop, byte(len(raw)))
		b = append(b, raw...)
	}
	return b
}

// parseCard reads a card. Every length in it is checked.
func parseCard(b []byte) (*card, error) {
	if len(b) < cardFixed || string(b[:4]) != cardMagic {
		return nil, errCard
	}
	if b[4] != cardVersion {
		return nil, fmt.Errorf("%w: version %d, this program knows %d; use one build for all ranks", errCard, b[4], cardVersion)
	}
	c := &card{
		id:   identity(b[5:]),
		port: binary.LittleEndian.Uint16(b[5+idSize:]),
		rank: int(binary.LittleEndian.Uint32(b[7+idSize:])),
		size: int(binary.LittleEndian.Uint32(b[11+idSize:])),
	}
	b = b[cardFixed:]
	take := func(n int) []byte {
		if b == nil || len(b) < n {
			b = nil
			return nil
		}
		x := b[:n]
		b = b[n:]
		return x
	}
	count := func() int {
		if x := take(2); x != nil {
			return int(binary.LittleEndian.Uint16(x))
		}
		return 0
	}
	c.host = string(take(count()))
	for range count() {
		head := take(2)
		if head == nil {
			break
		}
		ip, ok := netip.AddrFromSlice(take(int(head[1])))
		if !ok || head[0] > 1 {
			return nil, fmt.Errorf("%w: a bad address", errCard)
		}
		c.addrs = append(c.addrs, addr{ip, head[0] == 1})
	}
	switch {
	case b == nil:
		return nil, fmt.Errorf("%w: cut short", errCard)
	case len(b) != 0:
		return nil, fmt.Errorf("%w: %d bytes too many", errCard, len(b))
	case c.port == 0, c.size < 1 || c.size > math.MaxInt32, c.rank < 0 || c.rank >= c.size:
		return nil, fmt.Errorf("%w: impossible values", errCard)
	}
	return c, nil
}

// targets returns where a peer is to be dialled from a rank with card from,
// the most promising address first.
func targets(from, peer *card) []netip.AddrPort {
	same := from.host == peer.host
	mine := make(map[netip.Addr]bool)
	for _, a := range from.addrs {
		mine[a.ip] = true
	}
	var first, then, last []netip.AddrPort
	for _, a := range peer.addrs {
		at := netip.AddrPortFrom(a.ip, peer.port)
		switch {
		case a.loopback && same:
			first = append(first, at)
		case !same && (a.loopback || mine[a.ip]):
			// It leads back to this machine, as that of a container's bridge,
			// which is the same on every host; unless two names are given to
			// one machine. Whoever answers has to prove who it is.
			last = append(last, at)
		default:
			then = append(then, at)
		}
	}
	return slices.Concat(first, then, last)
}
