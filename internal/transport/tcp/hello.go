package tcp

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	helloMagic   = "cairnTCP"
	helloVersion = 2
	nonceSize    = 32
	proofSize    = sha256.Size
	helloSize    = len(helloMagic) + 1 + 3*4 + 2*idSize + nonceSize

	welcome   = 1
	duplicate = 2
)

var (
	errStranger  = errors.New("the other side does not know the secret of this run")
	errDuplicate = errors.New("the other side says that this rank is connected already")
	errHello     = errors.New("not a rank of this run")
)

// pair identifies the two ends of a connection that is being made.
type pair struct {
	dialer, acceptor, size int
	from, to               identity // identities of the dialer and of the acceptor
}

func (p pair) hello(nonce []byte) []byte {
	b := append([]byte(helloMagic), helloVersion)
	for _, n := range []int{p.dialer, p.acceptor, p.size} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	b = append(b, p.from[:]...)
	b = append(b, p.to[:]...)
	return append(b, nonce...)
}

// parseHello reads the first message of a dialer.
func parseHello(b []byte) (pair, error) {
	if len(b) != helloSize || !bytes.HasPrefix(b, []byte(helloMagic)) {
		return pair{}, errHello
	}
	b = b[len(helloMagic):]
	if b[0] != helloVersion {
		return pair{}, fmt.Errorf("%w: version %d of the greeting, this program knows %d; use one build for all ranks", errHello, b[0], helloVersion)
	}
	n := func(i int) int { return int(binary.LittleEndian.Uint32(b[1+4*i:])) }
	return pair{n(0), n(1), n(2), identity(b[13:]), identity(b[13+idSize:])}, nil
}

// proof returns a proof of knowing the secret, for one role and one connection.
func proof(secret []byte, role string, hello, nonce []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write(append([]byte(role), 0))
	m.Write(hello)
	m.Write(nonce)
	return m.Sum(nil)
}

// greet performs the dialer's side of the handshake. The caller sets deadlines.
// proven is called when the other side has proved that it knows the secret.
func greet(c io.ReadWriter, secret []byte, p pair, proven func()) error {
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	hello := p.hello(nonce[:])
	if _, err := c.Write(hello); err != nil {
		return err
	}
	var answer [nonceSize + proofSize]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return err
	}
	theirs := answer[:nonceSize]
	if !hmac.Equal(answer[nonceSize:], proof(secret, "accept", hello, theirs)) {
		return errStranger
	}
	proven()
	if _, err := c.Write(proof(secret, "dial", hello, theirs)); err != nil {
		return err
	}
	var verdict [1]byte
	if _, err := io.ReadFull(c, verdict[:]); err != nil {
		return err
	}
	switch verdict[0] {
	case welcome:
		return nil
	case duplicate:
		return errDuplicate
	}
	return errHello
}

// receive performs the acceptor's side of the handshake, up to the verdict. me
// is the acceptor's address. When the dialer has proved that it knows the
// secret, receive returns its rank and identity. The caller sets deadlines.
func receive(c io.ReadWriter, secret []byte, me *address) (dialer int, from identity, err error) {
	var hello [helloSize]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return 0, from, err
	}
	p, err := parseHello(hello[:])
	if err != nil {
		return 0, from, err
	}
	if p.acceptor != me.rank || p.size != me.size || p.dialer <= me.rank || p.dialer >= me.size {
		return 0, from, fmt.Errorf("%w: rank %d of %d calls rank %d; this is rank %d of %d", errHello, p.dialer, p.size, p.acceptor, me.rank, me.size)
	}
	if p.to != me.id {
		return 0, from, fmt.Errorf("%w: rank %d calls another process that was rank %d", errHello, p.dialer, me.rank)
	}
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	if _, err := c.Write(append(nonce[:], proof(secret, "accept", hello[:], nonce[:])...)); err != nil {
		return 0, from, err
	}
	var theirs [proofSize]byte
	if _, err := io.ReadFull(c, theirs[:]); err != nil {
		return 0, from, err
	}
	if !hmac.Equal(theirs[:], proof(secret, "dial", hello[:], nonce[:])) {
		return 0, from, errStranger
	}
	return p.dialer, p.from, nil
}
