package mpi

import "slices"

// Gather collects send of all ranks in recv of root, in rank order. All ranks
// pass a send of the same length. On root, recv must have this length times the
// number of ranks, and send may be a part of it. The other ranks' recv is not
// used.
func Gather[T any](c *Comm, send, recv []T, root int) error {
	return gather(c, of(send), of(recv), root)
}

func gather[T any](c *Comm, send, recv vector[T], root int) error {
	k, err := beginAt[T](c, kindGather, "Gather", root)
	if err != nil {
		return err
	}
	m := send.len()
	if k.rank == root && recv.len() != m*k.size {
		return k.wrong("recv has %d elements; with %d in send it must have %d", recv.len(), m, m*k.size)
	}
	if sizeOf[T](m) >= longBlock {
		return gatherEach(k, send, recv, equal(m), root)
	}
	v := k.left(root)
	n := subtree(v, k.size)
	if v != 0 && n == 1 {
		return sendTo(k, send, k.left(lowBit(v)))
	}
	// The blocks of the subtree, counted from the root, which for root 0 is
	// already how they lie in recv.
	buf := recv
	if k.rank != root || root != 0 {
		buf = of(make([]T, n*m))
	}
	if err := buf.set(send); err != nil {
		return k.failed(err)
	}
	for d := 1; d < n; d *= 2 {
		if err := recvFrom(k, buf.part(d*m, (d+subtree(v+d, k.size))*m), k.right(d)); err != nil {
			return err
		}
	}
	if v != 0 {
		return sendTo(k, buf, k.left(lowBit(v)))
	}
	if root != 0 {
		first := (k.size - root) * m
		if err := recv.part(root*m, recv.len()).set(buf.part(0, first)); err != nil {
			return k.failed(err)
		}
		if err := recv.part(0, root*m).set(buf.part(first, buf.len())); err != nil {
			return k.failed(err)
		}
	}
	return nil
}

// Gatherv is Gather for blocks of different lengths. Rank r's send is stored in
// recv[displs[r]:][:counts[r]] on root. If displs is nil, the blocks are
// consecutive. The other ranks need to pass only send and root. On root, send
// may be a part of recv.
func Gatherv[T any](c *Comm, send, recv []T, counts, displs []int, root int) error {
	return gatherv(c, of(send), of(recv), counts, displs, root)
}

func gatherv[T any](c *Comm, send, recv vector[T], counts, displs []int, root int) error {
	k, err := beginAt[T](c, kindGather, "Gatherv", root)
	if err != nil {
		return err
	}
	var l layout
	if k.rank == root {
		if l, err = k.checkLayout("recv", recv.len(), counts, displs, true); err != nil {
			return err
		}
		if counts[root] != send.len() {
			return k.wrong("send has %d elements, but counts[%d] is %d", send.len(), root, counts[root])
		}
	}
	return gatherEach(k, send, recv, l, root)
}

// gatherEach has every rank send its block to root. Only root uses l.
func gatherEach[T any](k collective, send, recv vector[T], l layout, root int) error {
	if k.rank != root {
		return sendTo(k, send, root)
	}
	// First, since a block that comes may be put where send lies.
	if err := block(recv, l, root).set(send); err != nil {
		return k.failed(err)
	}
	p := pending{k: k}
	for d := 1; d < k.size; d++ {
		startRecv(&p, block(recv, l, k.right(d)), k.right(d))
	}
	return p.wait()
}

// Scatter divides root's send into one block per rank, and stores each rank's
// block in its recv. All ranks pass a recv of the same length. On root, send
// must have this length times the number of ranks, and recv may be a part of
// it. The other ranks' send is not used.
func Scatter[T any](c *Comm, send, recv []T, root int) error {
	return scatter(c, of(send), of(recv), root)
}

func scatter[T any](c *Comm, send, recv vector[T], root int) error {
	k, err := beginAt[T](c, kindScatter, "Scatter", root)
	if err != nil {
		return err
	}
	m := recv.len()
	if k.rank == root && send.len() != m*k.size {
		return k.wrong("send has %d elements; with %d in recv it must have %d", send.len(), m, m*k.size)
	}
	if sizeOf[T](m) >= longBlock {
		return scatterEach(k, send, equal(m), recv, root)
	}
	v := k.left(root)
	n := subtree(v, k.size)
	if v != 0 && n == 1 {
		return recvFrom(k, recv, k.left(lowBit(v)))
	}
	var buf vector[T] // the blocks of the subtree, counted from the root
	switch {
	case v != 0:
		buf = of(make([]T, n*m))
		if err := recvFrom(k, buf, k.left(lowBit(v))); err != nil {
			return err
		}
	case root != 0:
		all, err := send.slice()
		if err != nil {
			return k.failed(err)
		}
		buf = of(slices.Concat(all[root*m:], all[:root*m]))
	default:
		buf = send
	}
	for d := topChild(v, k.size); d > 0; d /= 2 {
		if v+d < k.size {
			if err := sendTo(k, buf.part(d*m, (d+subtree(v+d, k.size))*m), k.right(d)); err != nil {
				return err
			}
		}
	}
	return k.set(recv.set(buf))
}

// Scatterv is Scatter for blocks of different lengths. Rank r receives
// send[displs[r]:][:counts[r]] of root, and its recv must have that length. If
// displs is nil, the blocks are consecutive. The other ranks need to pass only
// recv and root. On root, recv may be a part of send.
func Scatterv[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) error {
	return scatterv(c, of(send), counts, displs, of(recv), root)
}

func scatterv[T any](c *Comm, send vector[T], counts, displs []int, recv vector[T], root int) error {
	k, err := beginAt[T](c, kindScatter, "Scatterv", root)
	if err != nil {
		return err
	}
	var l layout
	if k.rank == root {
		if l, err = k.checkLayout("send", send.len(), counts, displs, false); err != nil {
			return err
		}
		if counts[root] != recv.len() {
			return k.wrong("recv has %d elements, but counts[%d] is %d", recv.len(), root, counts[root])
		}
	}
	return scatterEach(k, send, l, recv, root)
}

// scatterEach has root send each rank its block. Only root uses l.
func scatterEach[T any](k collective, send vector[T], l layout, recv vector[T], root int) error {
	if k.rank != root {
		return recvFrom(k, recv, root)
	}
	p := pending{k: k}
	for d := 1; d < k.size; d++ {
		startSend(&p, block(send, l, k.right(d)), k.right(d))
	}
	if err := p.wait(); err != nil {
		return err
	}
	return k.set(recv.set(block(send, l, root))) // last, since recv may be a part of send
}

// Allgather collects send of all ranks in recv of every rank, in rank order.
// All ranks pass a send of the same length, and a recv of this length times the
// number of ranks. send may be a part of recv.
func Allgather[T any](c *Comm, send, recv []T) error {
	return allgatherEqual(c, of(send), of(recv))
}

func allgatherEqual[T any](c *Comm, send, recv vector[T]) error {
	k, err := begin[T](c, kindAllgather, "Allgather")
	if err != nil {
		return err
	}
	if recv.len() != send.len()*k.size {
		return k.wrong("recv has %d elements; with %d in send it must have %d", recv.len(), send.len(), send.len()*k.size)
	}
	return allgather(k, send, recv, equal(send.len()), recv.len())
}

// Allgatherv is Allgather for blocks of different lengths. Rank r's send is
// stored in recv[displs[r]:][:counts[r]] on every rank. All ranks pass the same
// counts. displs may differ between ranks; if it is nil, the blocks are
// consecutive. send may be a part of recv.
func Allgatherv[T any](c *Comm, send, recv []T, counts, displs []int) error {
	return allgatherv(c, of(send), of(recv), counts, displs)
}

func allgatherv[T any](c *Comm, send, recv vector[T], counts, displs []int) error {
	k, err := begin[T](c, kindAllgather, "Allgatherv")
	if err != nil {
		return err
	}
	l, err := k.checkLayout("recv", recv.len(), counts, displs, true)
	if err != nil {
		return err
	}
	if counts[k.rank] != send.len() {
		return k.wrong("send has %d elements, but counts[%d] is %d", send.len(), k.rank, counts[k.rank])
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	return allgather(k, send, recv, l, total)
}

// allgather collects blocks that have total elements together.
func allgather[T any](k collective, send, recv vector[T], l layout, total int) error {
	if k.size > 2 && !k.long(sizeOf[T](total), longAllgather) {
		return bruck(k, send, recv, l, total)
	}
	if err := block(recv, l, k.rank).set(send); err != nil {
		return k.failed(err)
	}
	return ring(k, recv, l)
}

// bruck collects blocks in ⌈log₂ n⌉ steps, for any n. After the step of
// distance d, buf holds the blocks of the 2d ranks that begin with this one, in
// order.
func bruck[T any](k collective, send, recv vector[T], l layout, total int) error {
	ends := make([]int, k.size+1) // where the first i blocks end in buf
	for i := range k.size {
		from, to := l(k.right(i))
		ends[i+1] = ends[i] + to - from
	}
	buf := of(make([]T, total))
	if err := buf.set(send); err != nil {
		return k.failed(err)
	}
	for d := 1; d < k.size; d *= 2 {
		n := min(d, k.size-d)
		if err := shift(k, buf.part(0, ends[n]), k.left(d), buf.part(ends[d], ends[d+n]), k.right(d)); err != nil {
			return err
		}
	}
	for i := range k.size {
		if err := block(recv, l, k.right(i)).set(buf.part(ends[i], ends[i+1])); err != nil {
			return k.failed(err)
		}
	}
	return nil
}

// ring passes blocks to the right until every rank has all. Each rank's own
// block is in its place at the start.
func ring[T any](k collective, data vector[T], l layout) error {
	for d := range k.size - 1 {
		if err := shift(k, block(data, l, k.left(d)), k.right(1), block(data, l, k.left(d+1)), k.left(1)); err != nil {
			return err
		}
	}
	return nil
}

// Alltoall exchanges blocks between all pairs of ranks: block s of rank r's
// send becomes block r of rank s's recv. All ranks pass a send and a recv of
// the same length, a multiple of the number of ranks. send and recv may be the
// same slice.
func Alltoall[T any](c *Comm, send, recv []T) error {
	return alltoall(c, of(send), of(recv))
}

func alltoall[T any](c *Comm, send, recv vector[T]) error {
	k, err := begin[T](c, kindAlltoall, "Alltoall")
	if err != nil {
		return err
	}
	if send.len() != recv.len() || send.len()%k.size != 0 {
		return k.wrong("send has %d elements and recv %d; they must have the same number, a multiple of %d", send.len(), recv.len(), k.size)
	}
	l := equal(send.len() / k.size)
	return exchangeBlocks(k, send, l, recv, l)
}

// Alltoallv is Alltoall for blocks of different lengths. Rank r sends
// send[sdispls[s]:][:scounts[s]] to rank s, which stores it in
// recv[rdispls[r]:][:rcounts[r]]. Blocks are consecutive where displacements
// are nil. send and recv may share memory.
func Alltoallv[T any](c *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	return alltoallv(c, of(send), scounts, sdispls, of(recv), rcounts, rdispls)
}

func alltoallv[T any](c *Comm, send vector[T], scounts, sdispls []int, recv vector[T], rcounts, rdispls []int) error {
	k, err := begin[T](c, kindAlltoall, "Alltoallv")
	if err != nil {
		return err
	}
	from, err := k.checkLayout("send", send.len(), scounts, sdispls, false)
	if err != nil {
		return err
	}
	to, err := k.checkLayout("recv", recv.len(), rcounts, rdispls, true)
	if err != nil {
		return err
	}
	if scounts[k.rank] != rcounts[k.rank] {
		return k.wrong("scounts[%d] is %d and rcounts[%[1]d] is %d; what a rank gives itself has one length", k.rank, scounts[k.rank], rcounts[k.rank])
	}
	return exchangeBlocks(k, send, from, recv, to)
}

// exchangeBlocks sends every rank its block of send, and receives a block of
// recv from every rank. It sends empty blocks, too: so ranks find counts that
// do not match, instead of waiting for each other.
func exchangeBlocks[T any](k collective, send vector[T], from layout, recv vector[T], to layout) error {
	if send.overlaps(recv) {
		all, err := send.slice()
		if err != nil {
			return k.failed(err)
		}
		if send.m == nil {
			all = slices.Clone(all)
		}
		send = of(all)
	}
	p := pending{k: k}
	for first := 1; first < k.size; first += window {
		last := min(first+window, k.size)
		for d := first; d < last; d++ {
			startRecv(&p, block(recv, to, k.left(d)), k.left(d))
		}
		for d := first; d < last; d++ {
			startSend(&p, block(send, from, k.right(d)), k.right(d))
		}
		if first == 1 { // while messages move
			if err := block(recv, to, k.rank).set(block(send, from, k.rank)); err != nil {
				return k.failed(err)
			}
		}
		if err := p.wait(); err != nil {
			return err
		}
	}
	if k.size == 1 {
		return k.set(block(recv, to, 0).set(block(send, from, 0)))
	}
	return nil
}
