package mpi

import (
	"fmt"
	"math/bits"
	"slices"
	"unsafe"
)

// How collectives work. All messages use the collective context of the
// communicator, and their tag is the kind of the collective. Every receive
// names its source. The arguments alone determine the number and order of the
// messages between two ranks, and messages with the same tag between two ranks
// keep their order. So a rank may be several collectives ahead of another one.
//
// Long messages wait for their receive. This cannot block a ring of ranks,
// because each rank that sends either receives at the same time or has a peer
// that waits for its message.
//
// The algorithm depends on the number of ranks n and the bytes of a vector,
// which are the same on all ranks:
//
//	                   short                   long
//	Barrier            dissemination, ⌈log₂ n⌉ steps
//	Bcast              binomial tree           blocks from the root, then ring
//	Gather, Scatter    binomial tree           each rank with the root
//	Gatherv, Scatterv  each rank with the root, since only it knows the counts
//	Allgather(v)       Bruck, ⌈log₂ n⌉ steps   ring
//	Alltoall(v)        pairs at distance 1, 2, 3 …, some at a time
//	Reduce             binomial tree           blocks all to all, then to the
//	                                           root
//	Allreduce          recursive doubling      blocks all to all, then ring
//	ReduceScatter      as Allreduce            blocks all to all
//	Scan, Exscan       recursive doubling
//
// Algorithms for short vectors take few steps. Those for long vectors move few
// bytes: no rank sends more than about twice the vector, for any n. See
// collective_reduce.go for the order in which values are combined.

// kind is one of the collectives. It is the tag of its messages.
type kind int

const (
	kindBarrier kind = iota + 1
	kindBcast
	kindGather
	kindScatter
	kindAllgather
	kindAlltoall
	kindReduce
	kindAllreduce
	kindReduceScatter
	kindScan
)

// Vectors of at least this many bytes are long.
const (
	longBcast     = 128 << 10
	longBlock     = 2 << 10 // of Gather and Scatter, where a block moves log₂ n times
	longAllgather = 32 << 10
	longReduce    = 32 << 10

	// leastBlock is the smallest block that a long vector is cut into.
	leastBlock = 1 << 10
)

// window is the number of peers with which a rank exchanges blocks at a time.
// It keeps a link busy without flooding one receiver.
const window = 16

// collective is a call of a collective function on one rank.
type collective struct {
	c          *Comm // the collective context
	rank, size int
	kind       kind
	name       string
}

func begin[T any](c *Comm, k kind, name string) (collective, error) {
	_, err := view[T](nil) // can this type be sent?
	return collective{c: c.coll(), rank: c.Rank(), size: c.Size(), kind: k, name: name}, err
}

// beginAt is begin for a collective with a root.
func beginAt[T any](c *Comm, kind kind, name string, root int) (collective, error) {
	k, err := begin[T](c, kind, name)
	if err == nil && (root < 0 || root >= k.size) {
		err = k.wrong("root is %d; it must be a rank of the communicator, 0 to %d", root, k.size-1)
	}
	return k, err
}

// wrong returns the error for an invalid argument.
func (k collective) wrong(format string, args ...any) error {
	return fmt.Errorf("mpi: %w: %s on rank %d of %d: %s", ErrArgument, k.name, k.rank, k.size, fmt.Sprintf(format, args...))
}

// failed adds the name of the collective to the error of a message.
func (k collective) failed(err error) error {
	return fmt.Errorf("mpi: %s on rank %d of %d: %w", k.name, k.rank, k.size, err)
}

// set returns the error of a vector's set.
func (k collective) set(err error) error {
	if err != nil {
		return k.failed(err)
	}
	return nil
}

// long reports whether a vector of this many bytes is cut into blocks.
func (k collective) long(bytes, limit int) bool {
	return bytes >= limit && bytes/k.size >= leastBlock
}

// right and left return the ranks at distance d around the ring.
func (k collective) right(d int) int { return (k.rank + d) % k.size }
func (k collective) left(d int) int  { return (k.rank - d + k.size) % k.size }

func sizeOf[T any](n int) int {
	var zero T
	return n * int(unsafe.Sizeof(zero))
}

func sendTo[T any](k collective, v vector[T], dest int) (err error) {
	if v.m == nil {
		err = Send(k.c, v.s, dest, int(k.kind))
	} else {
		_, err = startVector(k, v, dest).Wait()
	}
	if err != nil {
		return k.failed(err)
	}
	return nil
}

func recvFrom[T any](k collective, v vector[T], source int) error {
	var st Status
	var err error
	if v.m == nil {
		st, err = Recv(k.c, v.s, source, int(k.kind))
	} else {
		st, err = awaitVector(k, v, source).Wait()
	}
	return k.received(st, err, source, sizeOf[T](v.len()))
}

// shift sends to one rank and receives from another at the same time.
func shift[T any](k collective, send vector[T], dest int, recv vector[T], source int) error {
	if send.m == nil && recv.m == nil {
		st, err := Sendrecv(k.c, send.s, dest, int(k.kind), recv.s, source, int(k.kind))
		return k.received(st, err, source, sizeOf[T](len(recv.s)))
	}
	in := awaitVector(k, recv, source)
	if err := sendTo(k, send, dest); err != nil {
		return err
	}
	st, err := in.Wait()
	return k.received(st, err, source, sizeOf[T](recv.len()))
}

// received checks the outcome of a receive that expects this many bytes.
func (k collective) received(st Status, err error, source, bytes int) error {
	if err != nil {
		return k.failed(err)
	}
	if st.Bytes != bytes {
		return k.failed(fmt.Errorf("%w: rank %d sent %d bytes where %d are expected; give all ranks lengths and counts that fit",
			ErrMismatch, source, st.Bytes, bytes))
	}
	return nil
}

// pending holds sends and receives that have been started.
type pending struct {
	k     collective
	sends []*Request
	recvs []pendingRecv
}

type pendingRecv struct {
	req           *Request
	source, bytes int
}

func startSend[T any](p *pending, v vector[T], dest int) {
	p.sends = append(p.sends, startVector(p.k, v, dest))
}

func startRecv[T any](p *pending, v vector[T], source int) {
	p.recvs = append(p.recvs, pendingRecv{awaitVector(p.k, v, source), source, sizeOf[T](v.len())})
}

// wait waits until all are done or one has failed.
func (p *pending) wait() error {
	for _, r := range p.recvs {
		st, err := r.req.Wait()
		if err := p.k.received(st, err, r.source, r.bytes); err != nil {
			return err
		}
	}
	for _, r := range p.sends {
		if _, err := r.Wait(); err != nil {
			return p.k.failed(err)
		}
	}
	p.sends, p.recvs = p.sends[:0], p.recvs[:0]
	return nil
}

// layout returns the position of each rank's block in a vector.
type layout func(rank int) (from, to int)

// equal is the layout of consecutive blocks of n elements.
func equal(n int) layout {
	return func(r int) (int, int) { return r * n, (r + 1) * n }
}

// divided is the layout of n elements that are divided among the ranks as
// evenly as possible.
func divided(n, ranks int) layout {
	each, more := n/ranks, n%ranks
	at := func(r int) int { return r*each + min(r, more) }
	return func(r int) (int, int) { return at(r), at(r + 1) }
}

// listed is the layout that the caller's counts and displacements describe.
func listed(counts, displs []int) layout {
	return func(r int) (int, int) { return displs[r], displs[r] + counts[r] }
}

func block[T any](v vector[T], l layout, rank int) vector[T] {
	from, to := l(rank)
	return v.part(from, to)
}

// checkLayout checks counts and displacements for a vector of n elements. If
// displs is nil, the blocks are consecutive. Blocks of a vector that is written
// must not overlap.
func (k collective) checkLayout(what string, n int, counts, displs []int, written bool) (layout, error) {
	if len(counts) != k.size {
		return nil, k.wrong("%d counts for %s; give one for each of the %d ranks", len(counts), what, k.size)
	}
	if displs == nil {
		displs = make([]int, k.size)
		at := 0
		for i, c := range counts {
			displs[i] = at
			at += max(c, 0)
		}
	}
	if len(displs) != k.size {
		return nil, k.wrong("%d displacements for %s; give one for each of the %d ranks, or nil", len(displs), what, k.size)
	}
	for i, c := range counts {
		if d := displs[i]; c < 0 || d < 0 || d > n || c > n-d {
			return nil, k.wrong("block %d of %s has %d elements from %d on; %s has %d elements", i, what, c, d, what, n)
		}
	}
	if written {
		order := make([]int, 0, k.size)
		for i, c := range counts {
			if c > 0 {
				order = append(order, i)
			}
		}
		slices.SortFunc(order, func(a, b int) int { return displs[a] - displs[b] })
		for i := 1; i < len(order); i++ {
			if a, b := order[i-1], order[i]; displs[a]+counts[a] > displs[b] {
				return nil, k.wrong("blocks %d and %d of %s overlap", a, b, what)
			}
		}
	}
	return listed(counts, displs), nil
}

// Barrier waits until all ranks of the communicator have called it.
func (c *Comm) Barrier() error {
	k, err := begin[byte](c, kindBarrier, "Barrier")
	if err != nil {
		return err
	}
	// After the step of distance d a rank knows of the 2d ranks up to it.
	for d := 1; d < k.size; d *= 2 {
		if err := shift(k, vector[byte]{}, k.right(d), vector[byte]{}, k.left(d)); err != nil {
			return err
		}
	}
	return nil
}

// Bcast copies root's data to data on all other ranks. All ranks pass the same
// length.
func Bcast[T any](c *Comm, data []T, root int) error { return bcast(c, of(data), root) }

func bcast[T any](c *Comm, data vector[T], root int) error {
	k, err := beginAt[T](c, kindBcast, "Bcast", root)
	if err != nil {
		return err
	}
	if k.size > 2 && k.long(sizeOf[T](data.len()), longBcast) {
		l := divided(data.len(), k.size)
		if err := scatterEach(k, data, l, block(data, l, k.rank), root); err != nil {
			return err
		}
		return ring(k, data, l)
	}
	v := k.left(root) // this rank's number, counted from the root
	if v != 0 {
		if err := recvFrom(k, data, k.left(lowBit(v))); err != nil {
			return err
		}
	}
	p := pending{k: k}
	// The farthest child has the largest subtree, so it comes first.
	for d := topChild(v, k.size); d > 0; d /= 2 {
		if v+d < k.size {
			startSend(&p, data, k.right(d))
		}
	}
	return p.wait()
}

// In a binomial tree over the numbers 0 to n-1, the parent of v is v without
// its lowest set bit. The children of v are v+d for the powers of two d below
// that bit. The subtree of v consists of the numbers v to v+lowBit(v)-1.

func lowBit(v int) int { return v & -v }

// topChild returns the distance to the farthest child of v, or 0 if v has none.
func topChild(v, n int) int {
	if v != 0 {
		return lowBit(v) / 2
	}
	if n < 2 {
		return 0
	}
	return 1 << (bits.Len(uint(n-1)) - 1)
}

// subtree returns the number of ranks in the subtree of v.
func subtree(v, n int) int {
	if v == 0 {
		return n
	}
	return min(lowBit(v), n-v)
}

// overlap reports whether two slices share memory.
func overlap[T any](a, b []T) bool {
	if sizeOf[T](len(a)) == 0 || sizeOf[T](len(b)) == 0 {
		return false
	}
	pa, pb := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return pa < pb+uintptr(sizeOf[T](len(b))) && pb < pa+uintptr(sizeOf[T](len(a)))
}
