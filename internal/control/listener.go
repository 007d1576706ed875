package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// maxPeers is how many connections a Listener has at a time, and dialTime how
// long connecting to one address may take.
const (
	maxPeers = 256
	dialTime = 5 * time.Second
)

// Listener accepts TCP connections of helpers that know a secret.
type Listener struct {
	secret []byte
	port   net.Listener
	serve  func(net.Conn, *Conn)

	mu    sync.Mutex
	conns map[net.Conn]bool // nil: it is closed
	done  sync.WaitGroup
}

// Listen begins to accept connections. After the handshake, serve is called for
// each, concurrently; when it returns, the connection is closed.
func Listen(secret []byte, serve func(net.Conn, *Conn)) (*Listener, error) {
	port, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	l := &Listener{secret: secret, port: port, serve: serve, conns: make(map[net.Conn]bool)}
	l.done.Go(l.accept)
	return l, nil
}

// Addresses returns where the listener can be reached, loopback last.
func (l *Listener) Addresses() []string { return ListenAddresses(l.port.Addr()) }

// Close ends the listener and its connections.
func (l *Listener) Close() {
	l.port.Close()
	l.mu.Lock()
	for c := range l.conns {
		c.Close()
	}
	l.conns = nil
	l.mu.Unlock()
	l.done.Wait()
}

func (l *Listener) accept() {
	for {
		conn, err := l.port.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // most likely, there are too many open files
			continue
		}
		l.mu.Lock()
		full := l.conns == nil || len(l.conns) >= maxPeers
		if !full {
			l.conns[conn] = true
		}
		l.mu.Unlock()
		if full {
			conn.Close()
			continue
		}
		l.done.Go(func() {
			if c, err := Server(conn, l.secret); err == nil { // else it is no helper of this run
				l.serve(conn, c)
			}
			conn.Close()
			l.mu.Lock()
			delete(l.conns, conn)
			l.mu.Unlock()
		})
	}
}

// Dial connects to another helper's Listener, at the first of its addresses
// that answers and that accept, if it is not nil, does not refuse.
func Dial(ctx context.Context, addresses []string, secret []byte, accept func(net.Conn, *Conn) error) (net.Conn, *Conn, error) {
	var errs []error
	for _, a := range addresses {
		d := net.Dialer{Timeout: dialTime}
		conn, err := d.DialContext(ctx, "tcp", a)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			var c *Conn
			if c, err = Client(conn, secret); err == nil && accept != nil {
				if err = accept(conn, c); err != nil {
					conn.Close()
				}
			}
			if stop(); err == nil {
				return conn, c, nil
			}
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("it has told no address"))
	}
	return nil, nil, fmt.Errorf("its helper cannot be reached: %w", errors.Join(errs...))
}
