package mpi

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/p2p"
)

// Request is a send or receive that Isend or Irecv has started. Do not touch
// its buffer until Wait or Test reports that it is done. Only one goroutine at
// a time may use a Request.
//
// A protected Request is restored with its run: a receive that was pending at
// the checkpoint is pending again, with the same buffer.
type Request struct {
	comm   *Comm
	r      *p2p.Request // nil: done
	data   any          // the slice, a []T, or the array
	settle func(Status, p2p.Status) error
	send   bool
	peer   int // the caller's argument
	tag    int

	status Status
	err    error
}

// Isend starts to send data to rank dest and returns at once. An error is
// reported by Wait or Test.
func Isend[T any](c *Comm, data []T, dest, tag int) *Request {
	q := &Request{comm: c, data: data, send: true, peer: dest, tag: tag}
	buf, err := view(data)
	to := 0
	if err == nil {
		to, err = c.peer(dest)
	}
	if err == nil {
		err = checkTag(tag)
	}
	if err != nil {
		q.err = err
		return q
	}
	q.r = c.in().Engine().Isend(c.in().Context(), to, int32(tag), buf)
	return q
}

// Irecv starts to receive a message into data and returns at once. The message
// may be shorter than data. An error is reported by Wait or Test.
func Irecv[T any](c *Comm, data []T, source, tag int) *Request {
	q := &Request{comm: c, data: data, peer: source, tag: tag}
	buf, err := view(data)
	from := 0
	if err == nil {
		from, err = c.source(source)
	}
	if err == nil {
		err = checkWanted(tag)
	}
	if err != nil {
		q.err = err
		return q
	}
	q.settle = func(s Status, st p2p.Status) error { return settled[T](buf, s, st) }
	q.r = c.in().Engine().Irecv(c.in().Context(), from, int32(tag), buf)
	return q
}

// finish notes the outcome of a request that is done.
func (q *Request) finish(st p2p.Status, err error) {
	q.r = nil
	if err != nil {
		what := "receive from " + whom(q.peer, q.tag)
		if q.send {
			what = fmt.Sprintf("send to rank %d, tag %d", q.peer, q.tag)
		}
		q.err = fmt.Errorf("mpi: %s: %w", what, err)
		return
	}
	if !q.send {
		q.status = Status{Source: q.comm.in().Local(st.Source), Tag: st.Tag, Bytes: st.Bytes}
		q.err = q.settle(q.status, st)
	}
}

// Wait waits until the request is done. It may be called again, and returns the
// same.
func (q *Request) Wait() (Status, error) {
	if q.r != nil {
		q.finish(q.comm.in().Engine().Wait(q.r))
	}
	return q.status, q.err
}

// Test reports whether the request is done, without waiting.
func (q *Request) Test() (bool, Status, error) {
	if q.r != nil {
		ok, st, err := q.comm.in().Engine().Test(q.r)
		if !ok {
			return false, Status{}, nil
		}
		q.finish(st, err)
	}
	return true, q.status, q.err
}

// WaitAll waits for all requests and returns their errors. It skips nil
// requests.
func WaitAll(reqs ...*Request) error {
	var errs []error
	for _, q := range reqs {
		if q == nil {
			continue
		}
		if _, err := q.Wait(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// TestAll reports whether all requests are done, without waiting. If they are,
// it returns their errors. It skips nil requests.
func TestAll(reqs ...*Request) (bool, error) {
	var errs []error
	for _, q := range reqs {
		if q == nil {
			continue
		}
		ok, _, err := q.Test()
		if !ok {
			return false, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return true, errors.Join(errs...)
}

// WaitAny waits until one of the requests is done, and returns its index. It
// skips nil requests: set a request to nil once it was returned. If all are
// nil, the index is -1.
func WaitAny(reqs ...*Request) (int, Status, error) {
	if i, st, err := TestAny(reqs...); i >= 0 {
		return i, st, err
	}
	var e *p2p.Engine
	under := make([]*p2p.Request, len(reqs))
	for i, q := range reqs {
		if q == nil {
			continue
		}
		if e == nil {
			e = q.comm.in().Engine()
		} else if e != q.comm.in().Engine() {
			return -1, Status{}, fmt.Errorf("mpi: %w: requests of different runs", ErrArgument)
		}
		under[i] = q.r
	}
	if e == nil {
		return -1, Status{}, nil
	}
	i, st, err := e.WaitAny(under)
	reqs[i].finish(st, err)
	return i, reqs[i].status, reqs[i].err
}

// TestAny returns the index of a request that is done, or -1 if none is. It
// does not wait, and skips nil requests.
func TestAny(reqs ...*Request) (int, Status, error) {
	for i, q := range reqs {
		if q == nil {
			continue
		}
		if ok, st, err := q.Test(); ok {
			return i, st, err
		}
	}
	return -1, Status{}, nil
}

// state saves and restores the request. Every send is done at a checkpoint,
// because nothing is in flight.
func (q *Request) state(k *graph.Coder) error {
	e, _ := k.Run().(*p2p.Engine)
	done, posted, message := true, uint64(0), ""
	if !k.Restoring() {
		if q.r != nil && !q.send {
			var st p2p.Status
			var err error
			if done, posted, st, err = e.SaveReceive(q.r); done {
				q.finish(st, err)
			}
		}
		if q.err != nil {
			message = q.err.Error()
		}
	}
	graph.Field(k, "comm", &q.comm)
	graph.Field(k, "data", &q.data)
	graph.Field(k, "send", &q.send)
	graph.Field(k, "peer", &q.peer)
	graph.Field(k, "tag", &q.tag)
	graph.Field(k, "done", &done)
	graph.Field(k, "posted", &posted)
	graph.Field(k, "status", &q.status)
	graph.Field(k, "error", &message)
	if !k.Restoring() || k.Err() != nil {
		return k.Err()
	}
	if message != "" {
		q.err = errors.New(message)
	}
	if done {
		return nil
	}
	if e == nil {
		return errors.New("a pending receive is restored only in a run of several ranks")
	}
	if q.comm == nil {
		return errors.New("a pending receive without a communicator")
	}
	v := reflect.ValueOf(q.data)
	if v.Kind() == reflect.Slice {
		if err := plain(v.Type().Elem()); err != nil {
			return err
		}
		q.settle = func(s Status, st p2p.Status) error { return settle(v.Type().Elem(), bytesOf(v), s, st) }
	}
	// The communicator and an array may be restored later, so their fields
	// are read when the receive is posted.
	e.RestoreReceive(posted, func() (r *p2p.Request, ctx uint32, from int, tag int32, buf []byte, m *p2p.Memory, err error) {
		if from, err = q.comm.source(q.peer); err != nil {
			return
		}
		if v.Kind() == reflect.Slice {
			buf = bytesOf(v)
		} else if m, err = q.restoreArray(); err != nil {
			return
		}
		q.r = new(p2p.Request)
		return q.r, q.comm.in().Context(), from, int32(q.tag), buf, m, nil
	})
	return nil
}
