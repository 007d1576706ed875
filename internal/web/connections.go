//go:build linux

package web

import (
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	maxConnections = 256              // at a time
	writeTime      = 30 * time.Second // how long a visitor may take to read an answer, or an update
	idleTime       = time.Minute      // how long a connection may wait for its next request
)

// connections bounds the connections of a server, so that visitors cannot use
// up the files that the process may have open: the run needs some, too.
type connections struct {
	mu   sync.Mutex
	idle map[net.Conn]time.Time // since when it waits for a request; zero: it is answered
}

// change is called when a connection has another state.
func (c *connections) change(conn net.Conn, to http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch to {
	case http.StateNew:
		if len(c.idle) >= maxConnections {
			c.drop(conn)
		}
		c.idle[conn] = time.Now()
	case http.StateIdle:
		c.idle[conn] = time.Now()
	case http.StateActive:
		c.idle[conn] = time.Time{}
	default:
		delete(c.idle, conn)
	}
}

// drop closes the connection that has waited for a request for the longest
// time, or the new one if none waits.
func (c *connections) drop(conn net.Conn) {
	oldest, since := conn, time.Now()
	for other, at := range c.idle {
		if !at.IsZero() && at.Before(since) {
			oldest, since = other, at
		}
	}
	delete(c.idle, oldest)
	oldest.Close()
}
