package mpi

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Status describes the message that a receive or probe got.
type Status struct {
	Source int // rank of the sender in the communicator
	Tag    int
	Bytes  int // length; see Count
}

// Count returns the number of elements of type T in a message.
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

// plain returns an error if values of type t hold references, which cannot be
// sent.
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

// Send sends data to rank dest. When it returns, data may be changed. Send may
// wait until the receiver has called Recv.
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
	if err := c.in().Engine().Send(c.in().Context(), to, int32(tag), buf); err != nil {
		return fmt.Errorf("mpi: send to rank %d, tag %d: %w", dest, tag, err)
	}
	return nil
}

// Recv waits for a message and stores it in data. The message may be shorter
// than data: see Status and Count. source may be AnySource, and tag AnyTag.
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
	st, err := c.in().Engine().Recv(c.in().Context(), from, int32(tag), buf)
	if err != nil {
		return Status{}, fmt.Errorf("mpi: receive from %s: %w", whom(source, tag), err)
	}
	s := Status{Source: c.in().Local(st.Source), Tag: st.Tag, Bytes: st.Bytes}
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

// Sendrecv sends one message and receives another at the same time. With it,
// ranks can shift data around a ring without a deadlock.
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

// Probe waits until a message can be received, and describes it. It does not
// receive it. source may be AnySource, and tag AnyTag.
func (c *Comm) Probe(source, tag int) (Status, error) {
	from, err := c.source(source)
	if err != nil {
		return Status{}, err
	}
	if err := checkWanted(tag); err != nil {
		return Status{}, err
	}
	st, err := c.in().Engine().Probe(c.in().Context(), from, int32(tag))
	if err != nil {
		return Status{}, fmt.Errorf("mpi: probe for %s: %w", whom(source, tag), err)
	}
	return Status{Source: c.in().Local(st.Source), Tag: st.Tag, Bytes: st.Bytes}, nil
}

// Iprobe is Probe without waiting. It reports whether there is a message.
func (c *Comm) Iprobe(source, tag int) (bool, Status, error) {
	from, err := c.source(source)
	if err != nil {
		return false, Status{}, err
	}
	if err := checkWanted(tag); err != nil {
		return false, Status{}, err
	}
	ok, st, err := c.in().Engine().Iprobe(c.in().Context(), from, int32(tag))
	if err != nil {
		return false, Status{}, fmt.Errorf("mpi: probe for %s: %w", whom(source, tag), err)
	}
	if !ok {
		return false, Status{}, nil
	}
	return true, Status{Source: c.in().Local(st.Source), Tag: st.Tag, Bytes: st.Bytes}, nil
}

// bytesOf is view for a slice whose type is not known at compile time.
func bytesOf(v reflect.Value) []byte {
	return unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
}
