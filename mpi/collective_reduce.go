package mpi

import "math/bits"

// The order of reductions. The tree in which values are combined depends only
// on the number of ranks: not on the algorithm, the order of arrival, or the
// root. So a result has the same bits in every run, on every transport and on
// every rank, and Reduce, Allreduce and ReduceScatter agree.
//
// The tree keeps the order of ranks. It is balanced and has p leaves, called
// terms, where p is the largest power of two that is at most n. The first
// 2(n-p) ranks form terms in pairs. For n = 6, p is 4:
//
//	((0 1) (2 3)) (4 5)
//
// Scan and Exscan keep the order of ranks, too, with a tree of their own.

// tree is the order of reductions among n ranks.
type tree struct {
	terms int // a power of two
	pairs int // so many terms are pairs of ranks, the others one rank
}

func treeOf(n int) tree {
	terms := 1 << (bits.Len(uint(n)) - 1)
	return tree{terms: terms, pairs: n - terms}
}

// paired reports whether a rank shares its term with another rank. term returns
// the rank's term.
func (t tree) paired(rank int) bool { return rank < 2*t.pairs }

func (t tree) term(rank int) int {
	if t.paired(rank) {
		return rank / 2
	}
	return rank - t.pairs
}

// rank returns the first rank of a term. It computes the term.
func (t tree) rank(term int) int {
	if term < t.pairs {
		return 2 * term
	}
	return term + t.pairs
}

// Reduce combines send of all ranks with op, in rank order, and stores the
// result in recv of root. All ranks pass a send of the same length, which is
// also the length of root's recv. The other ranks' recv is not used. send and
// recv may be the same slice. The result has the same bits as that of
// Allreduce.
func Reduce[T any](c *Comm, send, recv []T, op Op[T], root int) error {
	k, err := beginAt[T](c, kindReduce, "Reduce", root)
	if err != nil {
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
		return gatherEach(k, of(part), of(recv), l, root)
	}
	// Along the tree to rank 0, which keeps the order, and then to the
	// root.
	var acc []T
	if k.rank == root {
		acc = recv
	}
	acc, err = reduceToFirst(k, send, acc, op)
	switch {
	case err != nil || root == 0:
		return err
	case k.rank == 0:
		return sendTo(k, of(acc), root)
	case k.rank == root:
		return recvFrom(k, of(recv), 0)
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

// reduceToFirst combines send of all ranks on rank 0, and returns the result
// there. It works in acc. If acc is nil, it allocates memory where necessary.
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
		if err := recvFrom(k, of(in), source); err != nil {
			return err
		}
		op(acc, in)
		return nil
	}
	t := treeOf(k.size)
	if t.paired(k.rank) {
		if k.rank%2 == 1 {
			return nil, sendTo(k, of(send), k.rank-1)
		}
		if err := add(k.rank + 1); err != nil {
			return nil, err
		}
	}
	me := t.term(k.rank)
	for d := 1; d < t.terms; d *= 2 {
		if me&d != 0 {
			return nil, sendTo(k, of(send), t.rank(me-d))
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

// Allreduce combines send of all ranks with op, in rank order, and stores the
// result in recv of every rank. All slices have the same length. send and recv
// may be the same slice.
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
		copy(block(of(recv), l, k.rank).s, part)
		return ring(k, of(recv), l)
	}
	copy(recv, send)
	if k.size == 1 {
		return nil
	}
	acc, in := recv, make([]T, len(recv))
	t := treeOf(k.size)
	if t.paired(k.rank) {
		if k.rank%2 == 1 {
			if err := sendTo(k, of(recv), k.rank-1); err != nil {
				return err
			}
			return recvFrom(k, of(recv), k.rank-1)
		}
		if err := recvFrom(k, of(in), k.rank+1); err != nil {
			return err
		}
		op(acc, in)
	}
	me := t.term(k.rank)
	for d := 1; d < t.terms; d *= 2 {
		peer := t.rank(me ^ d)
		if err := shift(k, of(acc), peer, of(in), peer); err != nil {
			return err
		}
		if me&d != 0 { // what came is of lower ranks
			acc, in = in, acc
		}
		op(acc, in)
	}
	copy(recv, acc)
	if t.paired(k.rank) {
		return sendTo(k, of(recv), k.rank+1)
	}
	return nil
}

// ReduceScatter combines send of all ranks with op, in rank order, and divides
// the result among the ranks: rank r's recv gets the next counts[r] elements.
// All ranks pass the same counts, a send as long as their sum, and a recv as
// long as their own count. recv may be a part of send. The elements have the
// same bits as those of Allreduce.
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
		part = block(of(all), l, k.rank).s
	}
	if err != nil {
		return err
	}
	copy(recv, part)
	return nil
}

// reduceBlocks returns this rank's block of the result, in new memory. Every
// rank sends each other rank that rank's block of send, and combines the blocks
// it receives. So each byte moves once, for any number of ranks and any tree.
func reduceBlocks[T any](k collective, send []T, l layout, op Op[T]) ([]T, error) {
	from, to := l(k.rank)
	m := to - from
	buf := make([]T, m*k.size)
	if err := exchangeBlocks(k, of(send), l, of(buf), equal(m)); err != nil {
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

// Scan combines send of the ranks 0 to r with op, in rank order, and stores the
// result in recv of rank r. All slices have the same length. send and recv may
// be the same slice.
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

// Exscan is Scan without the rank itself: rank r gets the combination of ranks
// 0 to r-1. recv of rank 0 is not changed. All slices have the same length.
// send and recv may be the same slice.
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

// scan works in steps. In each, a rank's group of neighbours doubles: all holds
// the combination of the group, and recv that of all lower ranks, if have is
// set. The last group may lack ranks; then all is incomplete, but no higher
// rank needs it.
func scan[T any](k collective, all, recv []T, have bool, op Op[T]) error {
	in, low := make([]T, len(all)), make([]T, len(all))
	for d := 1; d < k.size; d *= 2 {
		peer := k.rank ^ d
		if peer >= k.size {
			continue
		}
		if err := shift(k, of(all), peer, of(in), peer); err != nil {
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
