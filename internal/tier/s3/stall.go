package s3

import (
	"context"
	"net"
	"time"
)

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// stalling returns dial with connections that fail if nothing is read or
// written for a time.
func stalling(dial dialer, most time.Duration) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &stallConn{c, most}, nil
	}
}

type stallConn struct {
	net.Conn
	most time.Duration
}

// moved begins the time anew, in both directions: while a request is sent, the
// answer is awaited already.
func (c *stallConn) moved() { c.SetDeadline(time.Now().Add(c.most)) }

func (c *stallConn) Read(p []byte) (int, error) {
	c.moved()
	n, err := c.Conn.Read(p)
	c.moved()
	return n, err
}

func (c *stallConn) Write(p []byte) (done int, err error) {
	for done < len(p) && err == nil { // in pieces, so that a slow connection is seen to move
		c.moved()
		var n int
		n, err = c.Conn.Write(p[done:min(done+64<<10, len(p))])
		done += n
	}
	return done, err
}
