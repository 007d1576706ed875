package mpi

import "math/bits"

// The order of reductions. Values are combined in one shape that depends on
// the number of ranks alone, whichever algorithm is used, whatever arrives
// first and whoever is the root; so the result has the same bits in every
// run, on every transport and on every rank, and Reduce, Allreduce and
// ReduceScatter agree. The shape keeps the order of ranks. It is a balanced
// tree over the largest power of two, p ≤ n, of terms; to get there, the first
// 2(n-p) ranks are combined in pairs. For n = 6, p is 4:
//
//	((0 1) (2 3)) (4 5)
//
// Scan and Exscan keep the order of ranks as well, in a shape of their own.

// tree is the shape of reductions among n ranks.
type tree struct {
	terms int // a power of two
	pairs int // so many terms are pairs of ranks, the others one rank
}

func treeOf(n int) tree {
	terms := 1 << (bits.Len(uint(n)) - 1)
	return tree{terms: terms, pairs: n - terms}
}

// paired reports whether a rank belongs to a pair, and term its term.
func (t tree) paired(rank int) bool { return rank < 2*t.pairs }

func (t tree) term(rank int) int {
	if t.paired(rank) {
		return rank / 2
	}
	return rank - t.pairs
}

// rank is the first rank of a term. It works for the term.
func (t tree) rank(term int) int {
	if term < t.pairs {
		return 2 * term
	}
	return term + t.pairs
}

// Reduce combines send of all ranks with op, in rank order, into recv of root.
// All ranks give the same length, root for recv too; recv of the others is not
// used. send and recv may be the same slice. The result has the same bits as
// that of Allreduce.
func Reduce[T any](c *Comm, send, recv []T, op Op[T], root int) error {
	k, err := begin[T](c, kindReduce, "Reduce")
	if err != nil {
		return err
	}
	if err := k.checkRoot(root); err != nil {
		return err
	}
	if k.rank != root {
		recv = send
	}
	if err := checkReduce(k, send, recv, op); err != nil {
		return err
	}
	if k.long(sizeOf[T](len(send)), longReduce) {
		l := divided(len(send), k.size)
		part, err := reduceBlocks(k, send, l, op)
		if err != nil {
			return err
		}
		return gatherEach(k, part, recv, l, root)
	}
	// Along the tree to rank 0, which keeps the order, and then to the root.
	var acc []T
	if k.rank == root {
		acc = recv
	}
	acc, err = reduceToFirst(k, send, acc, op)
	switch {
	case err != nil || root == 0:
		return err
	case k.rank == 0:
		return sendTo(k, acc, root)
	case k.rank == root:
		return recvFrom(k, recv, 0)
	}
	return nil
}

func checkReduce[T any](k collective, send, recv []T, op Op[T]) error {
	if op == nil {
		return k.wrong("op is nil")
	}
	if len(send) != len(recv) {
		return k.wrong("send has %d elements and recv %d; they must have the same number", len(send), len(recv))
	}
	return nil
}

// reduceToFirst combines send of all ranks on rank 0 and returns the result
// there. It works in acc, or if that is nil, in new memory where it is needed.
func reduceToFirst[T any](k collective, send, acc []T, op Op[T]) ([]T, error) {
	var in []T
	add := func(source int) error {
		if in == nil {
			in = make([]T, len(send))
			if acc == nil {
				acc = make([]T, len(send))
			}
			copy(acc, send)
			send = acc
		}
		if err := recvFrom(k, in, source); err != nil {
			return err
		}
		op(acc, in)
		return nil
	}
	t := treeOf(k.size)
	if t.paired(k.rank) {
		if k.rank%2 == 1 {
			return nil, sendTo(k, send, k.rank-1)
		}
		if err := add(k.rank + 1); err != nil {
			return nil, err
		}
	}
	me := t.term(k.rank)
	for d := 1; d < t.terms; d *= 2 {
		if me&d != 0 {
			return nil, sendTo(k, send, t.rank(me-d))
		}
		if err := add(t.rank(me + d)); err != nil {
			return nil, err
		}
	}
	if k.size == 1 {
		copy(acc, send)
	}
	return acc, nil
}

// Allreduce combines send of all ranks with op, in rank order, into recv of
// every rank. All ranks give the same length. send and recv may be the same
// slice.
func Allreduce[T any](c *Comm, send, recv []T, op Op[T]) error {
	k, err := begin[T](c, kindAllreduce, "Allreduce")
	if err != nil {
		return err
	}
	if err := checkReduce(k, send, recv, op); err != nil {
		return err
	}
	return allreduce(k, send, recv, op)
}

func allreduce[T any](k collective, send, recv []T, op Op[T]) error {
	if k.size > 1 && k.long(sizeOf[T](len(send)), longReduce) {
		l := divided(len(send), k.size)
		part, err := reduceBlocks(k, send, l, op)
		if err != nil {
			return err
		}
		copy(block(recv, l, k.rank), part)
		return ring(k, recv, l)
	}
	copy(recv, send)
	if k.size == 1 {
		return nil
	}
	acc, in := recv, make([]T, len(recv))
	t := treeOf(k.size)
	if t.paired(k.rank) {
		if k.rank%2 == 1 {
			if err := sendTo(k, recv, k.rank-1); err != nil {
				return err
			}
			return recvFrom(k, recv, k.rank-1)
		}
		if err := recvFrom(k, in, k.rank+1); err != nil {
			return err
		}
		op(acc, in)
	}
	me := t.term(k.rank)
	for d := 1; d < t.terms; d *= 2 {
		peer := t.rank(me ^ d)
		if err := shift(k, acc, peer, in, peer); err != nil {
			return err
		}
		if me&d != 0 { // what came is of lower ranks
			acc, in = in, acc
		}
		op(acc, in)
	}
	copy(recv, acc)
	if t.paired(k.rank) {
		return sendTo(k, recv, k.rank+1)
	}
	return nil
}

// ReduceScatter combines send of all ranks with op, in rank order, and gives
// rank r the next counts[r] elements of the result, in recv. All ranks give
// the same counts, a send as long as their sum, and a recv as long as their
// own. recv may be a part of send. The elements have the same bits as those of
// Allreduce.
func ReduceScatter[T any](c *Comm, send, recv []T, counts []int, op Op[T]) error {
	k, err := begin[T](c, kindReduceScatter, "ReduceScatter")
	if err != nil {
		return err
	}
	l, err := k.checkLayout("send", len(send), counts, nil, false)
	if err != nil {
		return err
	}
	if _, end := l(k.size - 1); end != len(send) {
		return k.wrong("send has %d elements, but counts add up to %d", len(send), end)
	}
	if len(recv) != counts[k.rank] {
		return k.wrong("recv has %d elements, but counts[%d] is %d", len(recv), k.rank, counts[k.rank])
	}
	if err := checkReduce(k, send, send, op); err != nil {
		return err
	}
	var part []T
	if k.long(sizeOf[T](len(send)), longReduce) {
		part, err = reduceBlocks(k, send, l, op)
	} else {
		all := make([]T, len(send))
		err = allreduce(k, send, all, op)
		part = block(all, l, k.rank)
	}
	if err != nil {
		return err
	}
	copy(recv, part)
	return nil
}

// reduceBlocks returns this rank's block of the result, in new memory. Every
// rank sends every other that one's block of send, and the blocks that come
// are combined here. So each byte moves once, and the shape of the tree is
// free, for any number of ranks.
func reduceBlocks[T any](k collective, send []T, l layout, op Op[T]) ([]T, error) {
	from, to := l(k.rank)
	m := to - from
	buf := make([]T, m*k.size)
	if err := exchangeBlocks(k, send, l, buf, equal(m)); err != nil {
		return nil, err
	}
	t := treeOf(k.size)
	// Piece by piece, so that what is combined stays in the cache.
	piece := max(1, 16<<10/max(1, sizeOf[T](1)))
	for at := 0; at < m; at += piece {
		n := min(piece, m-at)
		part := func(rank int) []T {
			i := rank*m + at
			return buf[i : i+n : i+n]
		}
		for i := range t.pairs {
			op(part(2*i), part(2*i+1))
		}
		for d := 1; d < t.terms; d *= 2 {
			for i := 0; i < t.terms; i += 2 * d {
				op(part(t.rank(i)), part(t.rank(i+d)))
			}
		}
	}
	return buf[:m:m], nil
}

// Scan combines with op, in rank order, send of the ranks up to and including
// the rank itself, into its recv. All ranks give the same length. send and
// recv may be the same slice.
func Scan[T any](c *Comm, send, recv []T, op Op[T]) error {
	k, err := begin[T](c, kindScan, "Scan")
	if err != nil {
		return err
	}
	if err := checkReduce(k, send, recv, op); err != nil {
		return err
	}
	if k.size == 1 {
		copy(recv, send)
		return nil
	}
	all := make([]T, len(send))
	copy(all, send)
	copy(recv, send)
	return scan(k, all, recv, true, op)
}

// Exscan is Scan without the rank itself: it combines send of the ranks below
// it. recv of rank 0, below which there is none, is left as it is. All ranks
// give the same length. send and recv may be the same slice.
func Exscan[T any](c *Comm, send, recv []T, op Op[T]) error {
	k, err := begin[T](c, kindScan, "Exscan")
	if err != nil {
		return err
	}
	if err := checkReduce(k, send, recv, op); err != nil {
		return err
	}
	all := make([]T, len(send))
	copy(all, send)
	return scan(k, all, recv, false, op)
}

// scan doubles, step by step, the group of neighbours of which a rank knows
// what they give together (all), and combines what comes from lower groups
// into recv, where have says if there is something already. In a group that
// lacks ranks because there are no more, all is not complete, but
// then there are no ranks above it that would need it.
func scan[T any](k collective, all, recv []T, have bool, op Op[T]) error {
	in, low := make([]T, len(all)), make([]T, len(all))
	for d := 1; d < k.size; d *= 2 {
		peer := k.rank ^ d
		if peer >= k.size {
			continue
		}
		if err := shift(k, all, peer, in, peer); err != nil {
			return err
		}
		if peer > k.rank {
			op(all, in)
			continue
		}
		copy(low, in)
		if have {
			op(low, recv)
		}
		copy(recv, low)
		have = true
		op(in, all)
		all, in = in, all
	}
	return nil
}
