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
	addressMagic   = "cnTc"
	addressVersion = 2
	addressFixed   = len(addressMagic) + 1 + idSize + 2 + 4 + 4
	idSize         = 16
)

var errAddress = errors.New("not an address of this transport")

// identity is unique to one driver, also among those that had its rank before.
type identity [idSize]byte

// address is a parsed address.
type address struct {
	id   identity
	port uint16
	rank int
	size int
	host string
	ips  []ipAddr
}

// ipAddr is an IP address at which a rank listens.
type ipAddr struct {
	ip       netip.Addr
	loopback bool
}

func (c *address) encode() []byte {
	b := append([]byte(addressMagic), addressVersion)
	b = append(b, c.id[:]...)
	b = binary.LittleEndian.AppendUint16(b, c.port)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rank))
	b = binary.LittleEndian.AppendUint32(b, uint32(c.size))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.host)))
	b = append(b, c.host...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.ips)))
	for _, a := range c.ips {
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

// parseAddress parses an address. It checks every length.
func parseAddress(b []byte) (*address, error) {
	if len(b) < addressFixed || string(b[:4]) != addressMagic {
		return nil, errAddress
	}
	if b[4] != addressVersion {
		return nil, fmt.Errorf("%w: version %d, this program knows %d; use one build for all ranks", errAddress, b[4], addressVersion)
	}
	c := &address{
		id:   identity(b[5:]),
		port: binary.LittleEndian.Uint16(b[5+idSize:]),
		rank: int(binary.LittleEndian.Uint32(b[7+idSize:])),
		size: int(binary.LittleEndian.Uint32(b[11+idSize:])),
	}
	b = b[addressFixed:]
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
			return nil, fmt.Errorf("%w: a bad address", errAddress)
		}
		c.ips = append(c.ips, ipAddr{ip, head[0] == 1})
	}
	switch {
	case b == nil:
		return nil, fmt.Errorf("%w: cut short", errAddress)
	case len(b) != 0:
		return nil, fmt.Errorf("%w: %d bytes too many", errAddress, len(b))
	case c.port == 0, c.size < 1 || c.size > math.MaxInt32, c.rank < 0 || c.rank >= c.size:
		return nil, fmt.Errorf("%w: impossible values", errAddress)
	}
	return c, nil
}

// targets returns the addresses at which a rank with address from may reach a
// peer, the most promising first.
func targets(from, peer *address) []netip.AddrPort {
	same := from.host == peer.host
	mine := make(map[netip.Addr]bool)
	for _, a := range from.ips {
		mine[a.ip] = true
	}
	var first, then, last []netip.AddrPort
	for _, a := range peer.ips {
		at := netip.AddrPortFrom(a.ip, peer.port)
		switch {
		case a.loopback && same:
			first = append(first, at)
		case !same && (a.loopback || mine[a.ip]):
			// This address probably leads back to this machine: a loopback
			// address, or that of a container's bridge, which is the same on
			// every host. It can be right only if one machine has two names.
			// The handshake verifies who answers.
			last = append(last, at)
		default:
			then = append(then, at)
		}
	}
	return slices.Concat(first, then, last)
}
