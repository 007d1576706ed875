//go:build linux

package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/control"
)

const (
	maxCallers   = 512 // maximum number of connections
	maxWaiting   = 16  // maximum number of requests for a checkpoint
	requestTime  = 10 * time.Second
	helloTime    = 5 * time.Second // how long a program may take to say Hello after a request for a checkpoint
	requestLimit = 64 << 10
)

// commandRequest is a request of a command that has not been answered.
type commandRequest struct {
	m         control.Message
	reply     func(*control.Answer) // called once; further calls are ignored
	note      func(*control.Answer) // called before reply; messages that cannot be sent soon are omitted
	done      bool
	cancelled bool // the command has cancelled it, but waits for the answer
	asked     bool
}

func (w *commandRequest) isCheckpoint() bool {
	_, ok := w.m.(*control.Checkpoint)
	return ok
}

// receive accepts requests of commands until the socket is closed.
func (s *Supervisor) receive(l *net.UnixListener) {
	slots := make(chan struct{}, maxCallers)
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // most likely, there are too many open files
			continue
		}
		select {
		case slots <- struct{}{}:
			s.serving.Go(func() {
				s.serve(conn)
				<-slots
			})
		default:
			conn.Close() // too many commands wait for an answer already
		}
	}
}

// sameUser reports whether the peer is this process's user, or root.
func sameUser(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ok = err == nil && (int(cred.Uid) == os.Geteuid() || cred.Uid == 0)
	})
	return ok
}

// serve answers one request.
func (s *Supervisor) serve(conn *net.UnixConn) {
	defer conn.Close()
	if !sameUser(conn) {
		return
	}
	c := control.New(conn)
	c.SetLimit(requestLimit)
	c.SetReadDeadline(time.Now().Add(requestTime))
	served := make(chan struct{})
	defer close(served)
	go func() { // a caller without a request gets no answer
		select {
		case <-s.over:
			c.SetReadDeadline(time.Unix(1, 0))
		case <-served:
		}
	}()
	send := func(m *control.Answer) {
		c.SetWriteDeadline(time.Now().Add(requestTime))
		c.Send(m)
	}
	m, err := c.Recv()
	if err != nil {
		if errors.Is(err, control.ErrMalformed) {
			send(&control.Answer{Error: err.Error()})
		}
		return
	}
	c.SetReadDeadline(time.Time{})
	answer := make(chan *control.Answer, 1)
	notes := make(chan *control.Answer, 16)
	w := &commandRequest{m: m}
	w.note = func(m *control.Answer) {
		select {
		case notes <- m:
		default:
		}
	}
	w.reply = func(m *control.Answer) {
		if !w.done {
			w.done = true
			answer <- m
		}
	}
	left := make(chan struct{})
	go func() { // the caller may disconnect while it waits, or cancel
		defer close(left)
		for {
			m, err := c.Recv()
			if _, ok := m.(*control.Cancel); err != nil || !ok {
				return
			}
			s.post(func() { w.cancelled = true })
		}
	}()
	s.post(func() { s.request(w) })
	for {
		select {
		case m := <-notes:
			send(m)
			continue
		case m := <-answer:
			send(m)
		case <-left:
			s.post(func() { w.done = true })
		case <-s.over:
			select { // it may have been answered at the last moment
			case m := <-answer:
				send(m)
			default:
			}
		}
		return
	}
}

// request handles a request in the goroutine of Run.
func (s *Supervisor) request(w *commandRequest) {
	switch m := w.m.(type) {
	case *control.Status:
		st := s.snapshot()
		w.reply(&control.Answer{Run: &st})
	case *control.Checkpoint:
		if s.instrumentation == uninstrumented && (s.a == nil || !s.a.greeted()) {
			w.reply(&control.Answer{Error: "the program does not use Cairn, so it has no checkpoints; " + remedy})
			return
		}
		if s.a == nil || !s.a.begun() || s.stopping {
			w.reply(&control.Answer{Error: fmt.Sprintf("the run is %s; ask when its ranks run", s.state)})
			return
		}
		waiting := 0
		for _, x := range s.requests {
			if x.isCheckpoint() && !x.done {
				waiting++
			}
		}
		if waiting >= maxWaiting {
			w.reply(&control.Answer{Error: fmt.Sprintf("%d others wait for a checkpoint already; ask when it is committed", waiting)})
			return
		}
		s.addRequest(w)
		s.askWaiting()
		if !w.asked {
			s.after(helloTime, func() {
				if !w.asked {
					w.reply(&control.Answer{Error: "the program has not reported that it uses Cairn: it has not called Open yet, or never does; then it has no checkpoints"})
				}
			})
		}
	case *control.Stop:
		s.addRequest(w)
		s.stop(cmp.Or(m.Reason, "cairn stop"))
	case *control.Migrate:
		s.migrate(w, m)
	default:
		w.reply(&control.Answer{Error: fmt.Sprintf("%q is no request", m.Kind())})
	}
}

func (s *Supervisor) addRequest(w *commandRequest) {
	keep := s.requests[:0]
	for _, x := range s.requests {
		if !x.done {
			keep = append(keep, x)
		}
	}
	s.requests = append(keep, w)
}

// askWaiting asks rank 0 for the requested checkpoints, if it uses Cairn.
func (s *Supervisor) askWaiting() {
	if s.a == nil || !s.a.begun() || !s.a.ranks[0].Cairn || s.move != nil && s.move.pausing { // the request might be lost with the source
		return
	}
	for _, w := range s.requests {
		if m, ok := w.m.(*control.Checkpoint); ok && !w.done && !w.asked {
			w.asked = true
			s.tellRank(0, &control.Checkpoint{Reason: cmp.Or(m.Reason, "request")})
		}
	}
}

// answerAll answers the open requests when the run has ended.
func (s *Supervisor) answerAll(res Result, err error) {
	end := res.State
	if err != nil {
		end = err.Error()
	}
	for _, q := range append(s.unanswered, s.settleMoves("the run has ended ("+end+")")...) {
		q.answer()
	}
	st := s.snapshot()
	for _, w := range s.requests {
		m := &control.Answer{Run: &st}
		_, stop := w.m.(*control.Stop)
		switch {
		case stop && err == nil:
		case err != nil:
			m.Error = err.Error()
		default:
			m.Error = "the run has ended (" + res.State + ") before the checkpoint was committed"
		}
		w.reply(m)
	}
}
