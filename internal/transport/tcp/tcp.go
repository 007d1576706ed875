// Package tcp moves frames over TCP, one connection per pair of ranks.
//
// Open listens, and the driver's address says on which IP addresses and port.
// On Connect, the higher rank of every pair dials the lower one. It tries the
// IP addresses in turn. The listening socket stays open until the driver is
// closed, but connections are accepted only during Connect. Connections that
// come between two calls wait in the kernel. Those that come during one call
// and are for a later one wait for their verdict.
//
// # An address
//
// Integers are little-endian.
//
//	"cnTc" version=2 | identity, 16 random bytes | port, 2 | rank, 4 | size, 4
//	length of host, 2 | host
//	number of IP addresses, 2 | for each: loopback, 1 | length, 1 (4 or 16) | IP address
//
// Another process that gets the same rank later has another identity. Frames
// are the same on machines of any byte order.
//
// # A connection
//
// Before anything else, both sides show that they know the run's secret.
// D is the rank that dials, A the one that accepts:
//
//	D → A   "cairnTCP" version=2 | rank of D, 4 | rank of A, 4 | size, 4 |
//	        identity of D, 16 | identity of A, 16 | nonce of D, 32
//	A → D   nonce of A, 32 | proof of A, 32
//	D → A   proof of D, 32
//	A → D   verdict, 1 byte: 1 welcome, 2 this rank is connected already
//
// A proof is the HMAC-SHA256, under the secret, of a word for the role
// ("dial" or "accept"), the first message and the nonce of A. So a proof cannot
// be replayed from an earlier connection, nor reflected to its sender. A
// connection that sends anything else, or nothing for a while, is closed.
// Frames are neither encrypted nor authenticated: the secret keeps strangers
// from connecting, but not from changing data on the wire.
//
// Then frames follow in both directions:
//
//	length of payload, 6 bytes | 0xca 0x1f | header, 48 | payload
//
// # Death
//
// A peer is lost when its connection ends, however it does: what arrived
// before is delivered first. A host that vanished is noticed by its silence;
// see Options.Timeout.
package tcp

import (
	"errors"
	"time"
)

// Options says how to open a driver.
type Options struct {
	// Rank is this process among the Size ranks of the run.
	Rank, Size int
	// Secret is what all ranks of the run know and nobody else does: at
	// least 16 bytes.
	Secret []byte
	// Host names this host: peers whose address has the same name try
	// loopback addresses first. The default is the system's host name.
	Host string
	// Listen is an address (10.1.2.3, 10.1.2.3:7000, [fd00::2]:7000, :7000)
	// or the name of a network interface (eth0). The default is all
	// addresses and a port that is free.
	Listen string
	// Timeout is how long a host may be silent before its ranks are lost:
	// 30 s by default, off if negative. Silence is measured by what the
	// peer's kernel answers, so a rank that computes for hours is not
	// silent. A host that vanished while its rank had long not read what
	// was sent to it may be noticed up to two minutes later: the kernel
	// asks such a peer no more often.
	Timeout time.Duration
	// Reopen makes links ask to be closed before the state of the program
	// is saved (transport.Fragile).
	Reopen bool
}

// ErrNotConnected is the error of a Connect that did not reach all peers.
var ErrNotConnected = errors.New("not connected")

const (
	minSecret      = 16
	defaultTimeout = 30 * time.Second
)
