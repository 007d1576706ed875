package mpi

import (
	"fmt"

	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/p2p"
)

// Array is a *device.Array[T], or a view of one.
type Array[T any] interface {
	Dims() []int
	Len() int
	Read() ([]T, error)
	Update(func([]T)) error
}

// memoryOf returns an array as package p2p knows it.
func memoryOf(a any) (*p2p.Memory, error) {
	m, err := mem.PartsOf(a)
	if err != nil {
		return nil, fmt.Errorf("mpi: %w: %w", ErrArgument, err)
	}
	if m == nil {
		return nil, fmt.Errorf("mpi: %w: a %T is not an array of package device", ErrArgument, a)
	}
	return &p2p.Memory{Parts: m, Swap: swapperOf(m.Elem()).swap}, nil
}

// arrayArguments checks the arguments of a message of an array.
func arrayArguments[T any](c *Comm, a Array[T], rank, tag int, receive bool) (m *p2p.Memory, peer int, err error) {
	if m, err = memoryOf(a); err != nil {
		return nil, 0, err
	}
	if receive {
		if peer, err = c.source(rank); err == nil {
			err = checkWanted(tag)
		}
	} else if peer, err = c.peer(rank); err == nil {
		err = checkTag(tag)
	}
	return m, peer, err
}

// SendArray is Send for an array on devices, or a view of one. It waits for the
// kernels that write the array.
func SendArray[T any](c *Comm, a Array[T], dest, tag int) error {
	m, to, err := arrayArguments(c, a, dest, tag, false)
	if err != nil {
		return err
	}
	if err := c.in().Engine().SendMemory(c.in().Context(), to, int32(tag), m); err != nil {
		return fmt.Errorf("mpi: send to rank %d, tag %d: %w", dest, tag, err)
	}
	return nil
}

// RecvArray is Recv for an array on devices, or a view of one. The values are
// put where the newest ones are: on a device, or on the host. Launches see
// them.
func RecvArray[T any](c *Comm, a Array[T], source, tag int) (Status, error) {
	m, from, err := arrayArguments(c, a, source, tag, true)
	if err != nil {
		return Status{}, err
	}
	st, err := c.in().Engine().RecvMemory(c.in().Context(), from, int32(tag), m)
	if err != nil {
		return Status{}, fmt.Errorf("mpi: receive from %s: %w", whom(source, tag), err)
	}
	s := Status{Source: c.in().Local(st.Source), Tag: st.Tag, Bytes: st.Bytes}
	return s, settle(m.Elem(), nil, s, st)
}

// SendrecvArray is Sendrecv for arrays on devices, or views of them.
func SendrecvArray[T, U any](c *Comm, send Array[T], dest, sendTag int, recv Array[U], source, recvTag int) (Status, error) {
	if _, _, err := arrayArguments(c, send, dest, sendTag, false); err != nil {
		return Status{}, err
	}
	in := IrecvArray(c, recv, source, recvTag)
	if in.err != nil {
		return Status{}, in.err
	}
	if err := SendArray(c, send, dest, sendTag); err != nil {
		return Status{}, err
	}
	return in.Wait()
}

// IsendArray is Isend for an array on devices, or a view of one. Kernels that
// write the array may still run. Later launches may read it, but not write it,
// before the request is done. If the values are in host memory, IsendArray
// waits for the kernels that write them there.
func IsendArray[T any](c *Comm, a Array[T], dest, tag int) *Request {
	q := &Request{comm: c, data: a, send: true, peer: dest, tag: tag}
	m, to, err := arrayArguments(c, a, dest, tag, false)
	if err != nil {
		q.err = err
		return q
	}
	q.r = c.in().Engine().IsendMemory(c.in().Context(), to, int32(tag), m)
	return q
}

// IrecvArray is Irecv for an array on devices, or a view of one. Before the
// request is done, launches may be given arrays that contain the view, if their
// kernels do not touch its elements.
func IrecvArray[T any](c *Comm, a Array[T], source, tag int) *Request {
	q := &Request{comm: c, data: a, peer: source, tag: tag}
	m, from, err := arrayArguments(c, a, source, tag, true)
	if err != nil {
		q.err = err
		return q
	}
	q.settleArray(m)
	q.r = c.in().Engine().IrecvMemory(c.in().Context(), from, int32(tag), m)
	return q
}

// settleArray sets what is done with a message that was received into an array.
// The bytes of elements are swapped on the way.
func (q *Request) settleArray(m *p2p.Memory) {
	q.settle = func(s Status, st p2p.Status) error { return settle(m.Elem(), nil, s, st) }
}

// restoreArray returns the array of a restored receive.
func (q *Request) restoreArray() (*p2p.Memory, error) {
	m, err := memoryOf(q.data)
	if err == nil {
		q.settleArray(m)
	}
	return m, err
}
