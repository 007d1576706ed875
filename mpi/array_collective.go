package mpi

// The collectives for arrays on devices. All ranks of a call may pass arrays,
// slices (to the function without "Array"), or some the one and some the other.
// Those that move values send and receive blocks of the arrays. Reductions
// bring the arrays to host memory, where the Op runs, and put the result where
// the newest values of the array were.

// BcastArray is Bcast for an array on devices, or a view of one.
func BcastArray[T any](c *Comm, a Array[T], root int) error {
	v, err := ofArray(a)
	if err != nil {
		return err
	}
	return bcast(c, v, root)
}

// GatherArray is Gather for arrays on devices, or views of them.
func GatherArray[T any](c *Comm, send, recv Array[T], root int) error {
	v, w, err := ofArrays(send, recv)
	if err != nil {
		return err
	}
	return gather(c, v, w, root)
}

// GathervArray is Gatherv for arrays on devices, or views of them.
func GathervArray[T any](c *Comm, send, recv Array[T], counts, displs []int, root int) error {
	v, w, err := ofArrays(send, recv)
	if err != nil {
		return err
	}
	return gatherv(c, v, w, counts, displs, root)
}

// ScatterArray is Scatter for arrays on devices, or views of them.
func ScatterArray[T any](c *Comm, send, recv Array[T], root int) error {
	v, w, err := ofArrays(send, recv)
	if err != nil {
		return err
	}
	return scatter(c, v, w, root)
}

// ScattervArray is Scatterv for arrays on devices, or views of them.
func ScattervArray[T any](c *Comm, send Array[T], counts, displs []int, recv Array[T], root int) error {
	v, w, err := ofArrays(send, recv)
	if err != nil {
		return err
	}
	return scatterv(c, v, counts, displs, w, root)
}

// AllgatherArray is Allgather for arrays on devices, or views of them.
func AllgatherArray[T any](c *Comm, send, recv Array[T]) error {
	v, w, err := ofArrays(send, recv)
	if err != nil {
		return err
	}
	return allgatherEqual(c, v, w)
}

// AllgathervArray is Allgatherv for arrays on devices, or views of them.
func AllgathervArray[T any](c *Comm, send, recv Array[T], counts, displs []int) error {
	v, w, err := ofArrays(send, recv)
	if err != nil {
		return err
	}
	return allgatherv(c, v, w, counts, displs)
}

// AlltoallArray is Alltoall for arrays on devices, or views of them.
func AlltoallArray[T any](c *Comm, send, recv Array[T]) error {
	v, w, err := ofArrays(send, recv)
	if err != nil {
		return err
	}
	return alltoall(c, v, w)
}

// AlltoallvArray is Alltoallv for arrays on devices, or views of them.
func AlltoallvArray[T any](c *Comm, send Array[T], scounts, sdispls []int, recv Array[T], rcounts, rdispls []int) error {
	v, w, err := ofArrays(send, recv)
	if err != nil {
		return err
	}
	return alltoallv(c, v, scounts, sdispls, w, rcounts, rdispls)
}

// ReduceArray is Reduce for arrays on devices, or views of them.
func ReduceArray[T any](c *Comm, send, recv Array[T], op Op[T], root int) error {
	return onHost(send, recv, c.Rank() == root, func(s, r []T) error { return Reduce(c, s, r, op, root) })
}

// AllreduceArray is Allreduce for arrays on devices, or views of them.
func AllreduceArray[T any](c *Comm, send, recv Array[T], op Op[T]) error {
	return onHost(send, recv, true, func(s, r []T) error { return Allreduce(c, s, r, op) })
}

// ReduceScatterArray is ReduceScatter for arrays on devices, or views of them.
func ReduceScatterArray[T any](c *Comm, send, recv Array[T], counts []int, op Op[T]) error {
	return onHost(send, recv, true, func(s, r []T) error { return ReduceScatter(c, s, r, counts, op) })
}

// ScanArray is Scan for arrays on devices, or views of them.
func ScanArray[T any](c *Comm, send, recv Array[T], op Op[T]) error {
	return onHost(send, recv, true, func(s, r []T) error { return Scan(c, s, r, op) })
}

// ExscanArray is Exscan for arrays on devices, or views of them.
func ExscanArray[T any](c *Comm, send, recv Array[T], op Op[T]) error {
	return onHost(send, recv, c.Rank() > 0, func(s, r []T) error { return Exscan(c, s, r, op) })
}

// onHost calls f with the values of send, and stores in recv what f returns, if
// this rank gets a result.
func onHost[T any](send, recv Array[T], gets bool, f func(send, recv []T) error) error {
	v, w, err := ofArrays(send, recv)
	if err != nil {
		return err
	}
	s, err := v.slice()
	if err != nil {
		return err
	}
	r := make([]T, w.len())
	if err := f(s, r); err != nil || !gets {
		return err
	}
	return w.set(of(r))
}
