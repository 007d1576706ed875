package mpi_test

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/mpi"
)

var messageScenes = []scene{
	{"order", []int{2}, order},
	{"order of posting", []int{2}, orderOfPosting},
	{"any source", []int{1, 2, 5}, anySource},
	{"any source, long and short", []int{4}, anySourceMixed},
	{"unexpected, in reverse", []int{2}, reverse},
	{"probe", []int{1, 2, 3}, probe},
	{"iprobe", []int{2}, iprobe},
	{"truncation", []int{1, 2}, truncation},
	{"to oneself", []int{1, 2}, toOneself},
	{"no content", []int{1, 3}, noContent},
	{"element types", []int{2}, elementTypes},
	{"sendrecv ring", []int{1, 2, 3, 7}, sendrecvRing},
	{"head to head", []int{2, 4}, headToHead},
	{"wrong arguments", []int{1, 3}, wrongArguments},
}

// order shows that messages of one pair do not overtake each other, whatever
// their lengths. A receive of one tag gets the oldest of that tag, and a
// receive of any tag the oldest of all.
func order(c *mpi.Comm) error {
	const messages, tags = 400, 3
	for round := range 3 {
		r := dice(1, round)
		var length, tag [messages]int
		for i := range messages {
			length[i], tag[i] = anyLength(r), r.IntN(tags)
		}
		if c.Rank() == 0 {
			var reqs []*mpi.Request
			for i := range messages {
				reqs = append(reqs, mpi.Isend(c, pattern(length[i], round, i), 1, tag[i]))
				if r.IntN(50) == 0 {
					lag(r)
				}
			}
			if err := mpi.WaitAll(reqs...); err != nil {
				return err
			}
			continue
		}
		if round == 1 { // let messages accumulate
			if _, err := c.Probe(0, tag[0]); err != nil {
				return err
			}
			lag(r)
		}
		r = dice(2, round)
		left := make([]int, messages)
		for i := range left {
			left[i] = i
		}
		buf := make([]byte, slices.Max(lengths))
		for len(left) > 0 {
			ask := tag[left[r.IntN(len(left))]]
			if r.IntN(4) == 0 {
				ask = mpi.AnyTag
			}
			at := slices.IndexFunc(left, func(i int) bool { return ask == mpi.AnyTag || tag[i] == ask })
			i := left[at]
			left = slices.Delete(left, at, at+1)
			st, err := mpi.Recv(c, buf, 0, ask)
			if err != nil {
				return err
			}
			if err := want("status", st, mpi.Status{Source: 0, Tag: tag[i], Bytes: length[i]}); err != nil {
				return err
			}
			if !bytes.Equal(buf[:st.Bytes], pattern(length[i], round, i)) {
				return fmt.Errorf("message %d of round %d is not the one that was sent", i, round)
			}
		}
	}
	return nil
}

// orderOfPosting shows that a message goes to the receive that was posted first
// among those that match, with and without wildcards.
func orderOfPosting(c *mpi.Comm) error {
	for _, n := range []int{1, 40000} { // elements
		if c.Rank() == 0 {
			if _, err := mpi.Recv(c, []byte{0}, 1, 9); err != nil { // all are posted
				return err
			}
			var reqs []*mpi.Request
			for i, tag := range []int{5, 4, 4, 5, 4, 5} {
				data := make([]int32, n)
				data[0] = int32(i)
				reqs = append(reqs, mpi.Isend(c, data, 1, tag))
			}
			if err := mpi.WaitAll(reqs...); err != nil {
				return err
			}
			continue
		}
		type post struct{ source, tag, message int }
		posts := []post{
			{0, 4, 1},                      // 4: the first of its tag
			{mpi.AnySource, mpi.AnyTag, 0}, // the first of all, tag 5
			{mpi.AnySource, 4, 2},          // the second 4
			{0, mpi.AnyTag, 3},             // what is left: 5, 4, 5
			{0, 5, 5},                      // since message 3 was taken above
			{mpi.AnySource, mpi.AnyTag, 4}, //
		}
		var reqs []*mpi.Request
		bufs := make([][]int32, len(posts))
		for i, p := range posts {
			bufs[i] = make([]int32, n)
			reqs = append(reqs, mpi.Irecv(c, bufs[i], p.source, p.tag))
		}
		if err := mpi.Send(c, []byte{0}, 0, 9); err != nil {
			return err
		}
		if err := mpi.WaitAll(reqs...); err != nil {
			return err
		}
		for i, p := range posts {
			if err := want(fmt.Sprintf("message of receive %d", i), int(bufs[i][0]), p.message); err != nil {
				return err
			}
		}
	}
	return nil
}

// anySource shows that every message is received once, and those of each rank
// in order.
func anySource(c *mpi.Comm) error {
	const each = 100
	var reqs []*mpi.Request
	for i := range each {
		reqs = append(reqs, mpi.Isend(c, []int{c.Rank(), i}, 0, i%4))
	}
	if c.Rank() == 0 {
		next := make([]int, c.Size())
		for range each * c.Size() {
			var got [2]int
			st, err := mpi.Recv(c, got[:], mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			if err := want("status", st, mpi.Status{Source: got[0], Tag: got[1] % 4, Bytes: 16}); err != nil {
				return err
			}
			if err := want("next", got[1], next[got[0]]); err != nil {
				return err
			}
			next[got[0]]++
		}
	}
	return mpi.WaitAll(reqs...)
}

// anySourceMixed mixes wildcards and named sources, at all lengths.
func anySourceMixed(c *mpi.Comm) error {
	const each = 60
	if c.Rank() != 0 {
		var reqs []*mpi.Request
		for i := range each {
			reqs = append(reqs, mpi.Isend(c, pattern(anyLength(dice(3, c.Rank(), i)), c.Rank(), i), 0, 1))
		}
		return mpi.WaitAll(reqs...)
	}
	r := dice(4)
	next := make([]int, c.Size())
	buf := make([]byte, slices.Max(lengths))
	for range each * (c.Size() - 1) {
		source := mpi.AnySource
		if s := 1 + r.IntN(c.Size()-1); r.IntN(2) == 0 && next[s] < each {
			source = s
		}
		st, err := mpi.Recv(c, buf, source, 1)
		if err != nil {
			return err
		}
		s := st.Source
		if source != mpi.AnySource && s != source {
			return fmt.Errorf("source is %d, want %d", s, source)
		}
		if !bytes.Equal(buf[:st.Bytes], pattern(anyLength(dice(3, s, next[s])), s, next[s])) {
			return fmt.Errorf("message %d of rank %d is wrong", next[s], s)
		}
		next[s]++
	}
	return nil
}

// reverse sends many messages before their receives are posted.
func reverse(c *mpi.Comm) error {
	const messages = 3000
	if c.Rank() == 0 {
		for i := range messages {
			if err := mpi.Send(c, []int{i}, 1, i); err != nil {
				return err
			}
		}
		return nil
	}
	for i := messages - 1; i >= 0; i-- {
		got := []int{-1}
		if _, err := mpi.Recv(c, got, 0, i); err != nil {
			return err
		}
		if got[0] != i {
			return fmt.Errorf("tag %d brought %d", i, got[0])
		}
	}
	return nil
}

// probe probes for a message of unknown length, source and tag, and then
// receives that message. Probing removes nothing.
func probe(c *mpi.Comm) error {
	const each = 20
	var reqs []*mpi.Request
	for i := range each {
		data := make([]float64, dice(5, c.Rank(), i).IntN(12000))
		for j := range data {
			data[j] = float64(c.Rank()*each + i)
		}
		reqs = append(reqs, mpi.Isend(c, data, (c.Rank()+i)%c.Size(), i))
	}
	for range each {
		st, err := c.Probe(mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		again, err := c.Probe(st.Source, st.Tag)
		if err != nil {
			return err
		}
		if err := want("second probe", again, st); err != nil {
			return err
		}
		data := make([]float64, mpi.Count[float64](st))
		got, err := mpi.Recv(c, data, st.Source, st.Tag)
		if err != nil {
			return err
		}
		if err := want("status of the receive", got, st); err != nil {
			return err
		}
		if err := want("length", len(data), dice(5, st.Source, st.Tag).IntN(12000)); err != nil {
			return err
		}
		for _, v := range data {
			if v != float64(st.Source*each+st.Tag) {
				return fmt.Errorf("content %v of message %d from %d", v, st.Tag, st.Source)
			}
		}
	}
	return mpi.WaitAll(reqs...)
}

func iprobe(c *mpi.Comm) error {
	for _, n := range []int{0, 3, 100000} {
		peer := 1 - c.Rank()
		// The received message is gone, and there is no other.
		if ok, _, err := c.Iprobe(mpi.AnySource, mpi.AnyTag); ok || err != nil {
			return fmt.Errorf("iprobe before anything was sent: %v, %v", ok, err)
		}
		if err := c.Barrier(); err != nil {
			return err
		}
		r := mpi.Isend(c, make([]uint16, n), peer, 7)
		for {
			ok, st, err := c.Iprobe(peer, 7)
			if err != nil {
				return err
			}
			if ok {
				if err := want("status", st, mpi.Status{Source: peer, Tag: 7, Bytes: 2 * n}); err != nil {
					return err
				}
				break
			}
		}
		if ok, _, err := c.Iprobe(peer, 8); ok || err != nil {
			return fmt.Errorf("iprobe for another tag: %v, %v", ok, err)
		}
		if ok, _, err := c.Iprobe(c.Rank(), 7); ok || err != nil {
			return fmt.Errorf("iprobe for another source: %v, %v", ok, err)
		}
		if _, err := mpi.Recv(c, make([]uint16, n), peer, mpi.AnyTag); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
		if err := c.Barrier(); err != nil {
			return err
		}
	}
	return nil
}

// truncation shows that a message which is too long is an error, writes nothing
// beyond the buffer, and is consumed.
func truncation(c *mpi.Comm) error {
	to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	for _, n := range []int{2, 500, 5000, 70000, 300000} {
		for _, room := range []int{0, 1, n - 1} {
			for _, early := range []bool{false, true} {
				buf := slices.Repeat([]byte{0xee}, room+64)
				var r *mpi.Request
				if early {
					r = mpi.Irecv(c, buf[:room:room], from, 1)
				}
				if err := c.Barrier(); err != nil {
					return err
				}
				s := mpi.Isend(c, pattern(n, n), to, 1)
				if !early {
					if _, err := c.Probe(from, 1); err != nil {
						return err
					}
					r = mpi.Irecv(c, buf[:room:room], from, 1)
				}
				if _, err := r.Wait(); err != nil {
					if err := wantErr("wait", err, mpi.ErrTruncated); err != nil {
						return err
					}
				} else {
					return fmt.Errorf("%d bytes into %d gave no error", n, room)
				}
				if _, err := s.Wait(); err != nil {
					return fmt.Errorf("sender: %w", err)
				}
				if !bytes.Equal(buf[room:], slices.Repeat([]byte{0xee}, 64)) {
					return fmt.Errorf("%d bytes into %d wrote beyond the buffer", n, room)
				}
				// The next message is not affected.
				next := make([]byte, 3)
				if _, err := mpi.Sendrecv(c, []byte("abc"), to, 1, next, from, 1); err != nil {
					return err
				}
				if err := want("next message", string(next), "abc"); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func toOneself(c *mpi.Comm) error {
	me := c.Rank()
	for _, n := range lengths {
		data, buf := pattern(n, n), make([]byte, n)
		for _, recvFirst := range []bool{false, true} {
			clear(buf)
			var s, r *mpi.Request
			if recvFirst {
				r = mpi.Irecv(c, buf, me, 3)
				s = mpi.Isend(c, data, me, 3)
			} else {
				s = mpi.Isend(c, data, me, 3)
				r = mpi.Irecv(c, buf, mpi.AnySource, 3)
			}
			if err := mpi.WaitAll(s, r); err != nil {
				return err
			}
			if !bytes.Equal(buf, data) {
				return fmt.Errorf("%d bytes to oneself are not what was sent", n)
			}
		}
		clear(buf)
		st, err := mpi.Sendrecv(c, data, me, 1, buf, me, 1)
		if err != nil {
			return err
		}
		if err := want("status", st, mpi.Status{Source: me, Tag: 1, Bytes: n}); err != nil {
			return err
		}
		if !bytes.Equal(buf, data) {
			return fmt.Errorf("sendrecv of %d bytes with oneself is not what was sent", n)
		}
	}
	return nil
}

// noContent shows that messages without content are messages, and keep their
// order.
func noContent(c *mpi.Comm) error {
	to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	s := []*mpi.Request{
		mpi.Isend(c, []float64(nil), to, 1),
		mpi.Isend(c, []float64{1}, to, 1),
		mpi.Isend(c, []float64{}, to, 1),
		mpi.Isend(c, make([]float64, 50000), to, 1),
		mpi.Isend(c, []struct{}{{}, {}}, to, 1),
	}
	for i, n := range []int{0, 1, 0, 50000, 0} {
		st, err := mpi.Recv(c, make([]float64, n), from, 1)
		if err != nil {
			return err
		}
		if err := want(fmt.Sprintf("status %d", i), st, mpi.Status{Source: from, Tag: 1, Bytes: 8 * n}); err != nil {
			return err
		}
	}
	if err := mpi.WaitAll(s...); err != nil {
		return err
	}
	// A longer buffer is not changed beyond the message.
	buf := []int{1, 2, 3}
	if _, err := mpi.Sendrecv(c, []int(nil), to, 2, buf, from, 2); err != nil {
		return err
	}
	return want("buffer", buf, []int{1, 2, 3})
}

type colour uint8

type particle struct {
	kind colour
	pos  [3]float64
	mass float32
	n    struct {
		near [2]int16
		on   bool
	}
}

func elementTypes(c *mpi.Comm) error {
	return steps("types",
		func() error { return passOn(c, []bool{true, false, true}) },
		func() error { return passOn(c, []int8{-1, 2}) },
		func() error { return passOn(c, []uint64{1 << 63, 5}) },
		func() error { return passOn(c, []colour{3, 2, 1}) },
		func() error { return passOn(c, []float32{1.5, -2}) },
		func() error { return passOn(c, []complex128{1i, 2 - 3i}) },
		func() error { return passOn(c, [][2][3]int16{{{1, 2, 3}, {4, 5, 6}}, {{7}, {8}}}) },
		func() error {
			p := particle{kind: 7, pos: [3]float64{1, 2, 3}, mass: 4}
			p.n.near[1], p.n.on = -5, true
			return passOn(c, slices.Repeat([]particle{{kind: 1}, p}, 3000))
		},
	)
}

func passOn[T comparable](c *mpi.Comm, data []T) error {
	if c.Rank() == 0 {
		return mpi.Send(c, data, 1, 0)
	}
	got := make([]T, len(data)+1)
	st, err := mpi.Recv(c, got, 0, 0)
	if err != nil {
		return err
	}
	if err := want("count", mpi.Count[T](st), len(data)); err != nil {
		return err
	}
	var none T
	return wantSlice(fmt.Sprintf("%T", data), got, append(slices.Clone(data), none))
}

func sendrecvRing(c *mpi.Comm) error {
	to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	for _, n := range lengths {
		token := pattern(n, c.Rank())
		for range c.Size() {
			next := make([]byte, n)
			st, err := mpi.Sendrecv(c, token, to, 6, next, from, 6)
			if err != nil {
				return err
			}
			if err := want("status", st, mpi.Status{Source: from, Tag: 6, Bytes: n}); err != nil {
				return err
			}
			token = next
		}
		if !bytes.Equal(token, pattern(n, c.Rank())) {
			return fmt.Errorf("%d bytes came back changed", n)
		}
	}
	// Send and receive buffers may have different types.
	words := make([]uint32, 1)
	if _, err := mpi.Sendrecv(c, []uint16{0x0101, 0x0101}, to, 1, words, from, mpi.AnyTag); err != nil {
		return err
	}
	return want("words", words[0], 0x01010101)
}

// headToHead makes all ranks send long messages to all before they receive any.
func headToHead(c *mpi.Comm) error {
	const n = 400000
	var reqs []*mpi.Request
	for i := 1; i < c.Size(); i++ {
		reqs = append(reqs, mpi.Isend(c, pattern(n, c.Rank()), (c.Rank()+i)%c.Size(), 0))
	}
	buf := make([]byte, n)
	for i := 1; i < c.Size(); i++ {
		from := (c.Rank() + i) % c.Size()
		if _, err := mpi.Recv(c, buf, from, 0); err != nil {
			return err
		}
		if !bytes.Equal(buf, pattern(n, from)) {
			return fmt.Errorf("message from %d is wrong", from)
		}
	}
	return mpi.WaitAll(reqs...)
}

// wrongArguments shows that wrong arguments give errors at once, and leave the
// communicator as it was.
func wrongArguments(c *mpi.Comm) error {
	n := c.Size()
	one := []int{1}
	for what, f := range map[string]func() error{
		"send to rank -1":       func() error { return mpi.Send(c, one, -1, 0) },
		"send to rank n":        func() error { return mpi.Send(c, one, n, 0) },
		"send with tag -1":      func() error { return mpi.Send(c, one, 0, mpi.AnyTag) },
		"send with tag -2":      func() error { return mpi.Send(c, one, 0, -2) },
		"isend to rank n":       func() error { return mpi.WaitAll(mpi.Isend(c, one, n, 0)) },
		"recv from rank n":      func() error { _, err := mpi.Recv(c, one, n, 0); return err },
		"recv from rank -2":     func() error { _, err := mpi.Recv(c, one, -2, 0); return err },
		"recv with tag -2":      func() error { _, err := mpi.Recv(c, one, 0, -2); return err },
		"irecv from rank n":     func() error { _, err := mpi.Irecv(c, one, n, 0).Wait(); return err },
		"probe of rank n":       func() error { _, err := c.Probe(n, 0); return err },
		"iprobe of rank n":      func() error { _, _, err := c.Iprobe(n, 0); return err },
		"sendrecv with rank n":  func() error { _, err := mpi.Sendrecv(c, one, 0, 0, one, n, 0); return err },
		"sendrecv to rank n":    func() error { _, err := mpi.Sendrecv(c, one, n, 0, one, 0, 0); return err },
		"pointers":              func() error { return mpi.Send(c, []*int{&n}, 0, 0) },
		"strings":               func() error { return mpi.Send(c, []string{"a"}, 0, 0) },
		"structs with pointers": func() error { return mpi.Send(c, []struct{ p []int }{{}}, 0, 0) },
		"interfaces":            func() error { _, err := mpi.Recv(c, []any{nil}, 0, 0); return err },
	} {
		if err := f(); err == nil {
			return fmt.Errorf("%s: no error", what)
		}
	}
	// Nothing was sent, and no receive was left behind: the next message with
	// the same tag from the same rank must be the right one.
	to, from := (c.Rank()+1)%n, (c.Rank()+n-1)%n
	got := []int{0}
	if _, err := mpi.Sendrecv(c, []int{42}, to, 0, got, mpi.AnySource, mpi.AnyTag); err != nil {
		return err
	}
	if err := want("message after errors", got[0], 42); err != nil {
		return err
	}
	if _, err := mpi.Sendrecv(c, []int{43}, to, 0, got, from, 0); err != nil {
		return err
	}
	return want("second message after errors", got[0], 43)
}
