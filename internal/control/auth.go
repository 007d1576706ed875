package control

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The handshake on a TCP connection, before any message:
//
//	client                                   server
//	  magic, nonce c (32)               →
//	                                    ←      magic, nonce s (32), HMAC(secret, "server" c s)
//	  HMAC(secret, "client" c s)        →
//
// The client gives up after clientTime; the server, whose port is open to
// anybody, after serverTime. Nonces are random, so an old
// handshake is of no use, and the two proofs differ, so neither is a
// reflection of the other.
const (
	magic      = "cairn-control/1\n"
	nonceSize  = 32
	clientTime = 10 * time.Second
	serverTime = 3 * time.Second
)

// ErrRefused says that the peer does not know the run's secret.
var ErrRefused = errors.New("the peer did not prove that it belongs to this run")

func proof(secret []byte, role string, client, server []byte) []byte {
	h := hmac.New(sha256.New, secret)
	io.WriteString(h, magic+role)
	h.Write(client)
	h.Write(server)
	return h.Sum(nil)
}

// Derive returns a secret for another purpose made from this one.
func Derive(secret []byte, purpose string) []byte {
	h := hmac.New(sha256.New, secret)
	io.WriteString(h, "cairn derived secret\n"+purpose)
	return h.Sum(nil)
}

// Client proves to the server at the other end that this process knows the
// secret, and the other way round. It closes the connection if that fails.
func Client(conn net.Conn, secret []byte) (*Conn, error) { return handshake(conn, secret, false) }

// Server is the other side of Client.
func Server(conn net.Conn, secret []byte) (*Conn, error) { return handshake(conn, secret, true) }

func handshake(conn net.Conn, secret []byte, server bool) (c *Conn, err error) {
	defer func() {
		if err != nil {
			conn.Close()
			err = fmt.Errorf("%s: %w", conn.RemoteAddr(), err)
		}
	}()
	if len(secret) < 16 {
		return nil, errors.New("a secret has at least 16 bytes")
	}
	limit := clientTime
	if server {
		limit = serverTime
	}
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	mine := make([]byte, nonceSize)
	rand.Read(mine)
	if server {
		err = answer(conn, secret, mine)
	} else {
		err = challenge(conn, secret, mine)
	}
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return New(conn), nil
}

func challenge(conn net.Conn, secret, mine []byte) error {
	if _, err := conn.Write(append([]byte(magic), mine...)); err != nil {
		return err
	}
	theirs, err := readNonce(conn)
	if err != nil {
		return err
	}
	if err := readProof(conn, proof(secret, "server", mine, theirs)); err != nil {
		return err
	}
	_, err = conn.Write(proof(secret, "client", mine, theirs))
	return err
}

func answer(conn net.Conn, secret, mine []byte) error {
	theirs, err := readNonce(conn)
	if err != nil {
		return err
	}
	reply := append([]byte(magic), mine...)
	if _, err := conn.Write(append(reply, proof(secret, "server", theirs, mine)...)); err != nil {
		return err
	}
	return readProof(conn, proof(secret, "client", theirs, mine))
}

func readNonce(r io.Reader) ([]byte, error) {
	buf := make([]byte, len(magic)+nonceSize)
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	if string(buf[:len(magic)]) != magic {
		return nil, ErrRefused
	}
	return buf[len(magic):], nil
}

func readProof(r io.Reader, want []byte) error {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil {
		return err
	}
	if !hmac.Equal(got, want) {
		return ErrRefused
	}
	return nil
}
