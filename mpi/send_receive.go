package mpi

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Status tells what a receive got.
type Status struct {
	Source int // rank in the communicator
	Tag    int
	Bytes  int
}

// Count is the number of elements of type T in a message.
func Count[T any](s Status) int {
	n := int(reflect.TypeFor[T]().Size())
	if n == 0 {
		return 0
	}
	return s.Bytes / n
}

// view returns the memory of a slice as bytes.
func view[T any](data []T) ([]byte, error) {
	var zero T
	switch any(zero).(type) {
	case byte, int8, int16, uint16, int32, uint32, int64, uint64, int, uint, float32, float64, complex64, complex128, bool:
	default:
		if err := plain(reflect.TypeFor[T]()); err != nil {
			return nil, fmt.Errorf("mpi: %w: elements of type %s: %w", ErrArgument, reflect.TypeFor[T](), err)
		}
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*int(unsafe.Sizeof(zero))), nil
}

// plain tells why values of a type can't be sent as they lie in memory.
func plain(t reflect.Type) error {
	switch t.Kind() {
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if err := plain(t.Field(i).Type); err != nil {
				return fmt.Errorf("field %s: %w", t.Field(i).Name, err)
			}
		}
		return nil
	case reflect.Pointer, reflect.UnsafePointer, reflect.Uintptr, reflect.Chan, reflect.Func, reflect.Interface, reflect.Map, reflect.Slice, reflect.String:
		return fmt.Errorf("a %s is not sent; send what it refers to", t.Kind())
	}
	return nil
}

// Send sends data to a rank, and returns when data may be changed.
func Send[T any](c *Comm, data []T, dest, tag int) error {
	buf, err := view(data)
	if err != nil {
		return err
	}
	to, err := c.peer(dest)
	if err != nil {
		return err
	}
	if err := checkTag(tag); err != nil {
		return err
	}
	if err := c.e.Send(c.ctx, to, int32(tag), buf); err != nil {
		return fmt.Errorf("mpi: send to rank %d, tag %d: %w", dest, tag, err)
	}
	return nil
}

// Recv receives a message into data, which may be longer than the message.
func Recv[T any](c *Comm, data []T, source, tag int) (Status, error) {
	buf, err := view(data)
	if err != nil {
		return Status{}, err
	}
	from, err := c.source(source)
	if err != nil {
		return Status{}, err
	}
	if err := checkWanted(tag); err != nil {
		return Status{}, err
	}
	st, err := c.e.Recv(c.ctx, from, int32(tag), buf)
	if err != nil {
		return Status{}, fmt.Errorf("mpi: receive from %s: %w", whom(source, tag), err)
	}
	s := Status{Source: c.local(st.Source), Tag: st.Tag, Bytes: st.Bytes}
	return s, settled[T](buf, s, st)
}

func whom(source, tag int) string {
	s, t := fmt.Sprintf("rank %d", source), fmt.Sprintf("tag %d", tag)
	if source == AnySource {
		s = "any rank"
	}
	if tag == AnyTag {
		t = "any tag"
	}
	return s + ", " + t
}

// Sendrecv sends and receives at once, so that ranks in a ring need not take
// turns.
func Sendrecv[T, U any](c *Comm, send []T, dest, sendTag int, recv []U, source, recvTag int) (Status, error) {
	if _, err := view(send); err != nil {
		return Status{}, err
	}
	if _, err := c.peer(dest); err != nil {
		return Status{}, err
	}
	if err := checkTag(sendTag); err != nil {
		return Status{}, err
	}
	in := Irecv(c, recv, source, recvTag)
	if in.err != nil {
		return Status{}, in.err
	}
	if err := Send(c, send, dest, sendTag); err != nil {
		return Status{}, err
	}
	return in.Wait()
}

// Probe waits until a message can be received, and leaves it there.
func (c *Comm) Probe(source, tag int) (Status, error) {
	from, err := c.source(source)
	if err != nil {
		return Status{}, err
	}
	if err := checkWanted(tag); err != nil {
		return Status{}, err
	}
	st, err := c.e.Probe(c.ctx, from, int32(tag))
	if err != nil {
		return Status{}, fmt.Errorf("mpi: probe for %s: %w", whom(source, tag), err)
	}
	return Status{Source: c.local(st.Source), Tag: st.Tag, Bytes: st.Bytes}, nil
}

// Iprobe looks whether a message can be received, and leaves it there.
func (c *Comm) Iprobe(source, tag int) (bool, Status, error) {
	from, err := c.source(source)
	if err != nil {
		return false, Status{}, err
	}
	if err := checkWanted(tag); err != nil {
		return false, Status{}, err
	}
	ok, st, err := c.e.Iprobe(c.ctx, from, int32(tag))
	if err != nil {
		return false, Status{}, fmt.Errorf("mpi: probe for %s: %w", whom(source, tag), err)
	}
	if !ok {
		return false, Status{}, nil
	}
	return true, Status{Source: c.local(st.Source), Tag: st.Tag, Bytes: st.Bytes}, nil
}

// bytesOf is view for a slice whose type is known only now.
func bytesOf(v reflect.Value) []byte {
	return unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
}
