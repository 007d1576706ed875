package mpi_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/mpi"
)

// arrayDevices returns one device of each kind.
func arrayDevices(t *testing.T) (devs []*device.Device) {
	for _, name := range []string{"discrete", "host", "opencl"} {
		list, err := device.Open(name)
		if err != nil {
			t.Logf("without %s: %v", name, err)
			continue
		}
		devs = append(devs, list[0])
	}
	return devs
}

var fill = device.NewKernel(`
__kernel void fill(__global uint *a, uint first, int n) { int i = get_global_id(0); if (i < n) a[i] = first + i; }`,
	"fill", func(w *device.Work) {
		a, first := device.Slice[uint32](w, 0), device.Value[uint32](w, 1)
		lo, hi := w.Range(0)
		for i := lo; i < hi; i++ {
			a[i] = first + uint32(i)
		}
	})

// some returns an array of n elements, on a device, on the host, or unused: the
// whole of it, some rows, or a tile. Its elements are first, first+1 … if it is
// used.
func some(r *rand.Rand, devs []*device.Device, n int, first uint32) (*device.Array[uint32], error) {
	d := devs[r.IntN(len(devs))]
	var a *device.Array[uint32]
	switch r.IntN(3) {
	case 0:
		a = device.New[uint32](n)
	case 1:
		a = device.New[uint32](n+5).Rows(2, n+2)
	default:
		for w := min(n, 1+r.IntN(50)); ; w-- {
			if n%w == 0 {
				a = device.New[uint32](n/w+2, w+3).View([]int{1, 2}, []int{n/w + 1, w + 2})
				break
			}
		}
	}
	var err error
	switch r.IntN(4) {
	case 0:
	case 1:
		err = a.Update(func(p []uint32) {
			for i := range p {
				p[i] = first + uint32(i)
			}
		})
	default:
		b := device.New[uint32](n)
		if err = d.Launch(fill, device.Size{n}, device.Out(b), first, int32(n)); err == nil {
			err = device.Copy(a, b)
		}
	}
	return a, err
}

// TestArray_Messages sends arrays and views on all kinds of devices to others,
// to slices, and the other way round.
func TestArray_Messages(t *testing.T) {
	devs := arrayDevices(t)
	lengths := []int{1, 7, 1000, 20000, 262144 + 3, 700001}
	err := mpi.Local(2, func(c *mpi.Comm) error {
		r, mine := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(3, uint64(c.Rank())))
		for i := range 60 {
			n, extra := lengths[r.IntN(len(lengths))], r.IntN(3)
			if i%10 != 0 {
				n = lengths[r.IntN(4)]
			}
			first, way, to := uint32(1000*i), r.IntN(3), i%2
			if way == 2 && c.Rank() != to { // with itself
				continue
			}
			send := way == 2 || c.Rank() != to
			recv := c.Rank() == to
			dest, source := to, 1-to
			if way == 2 {
				source = to
			}
			var in, out *mpi.Request
			var got *device.Array[uint32]
			var list []uint32
			var err error
			if recv {
				if mine.IntN(4) == 0 {
					list = make([]uint32, n+extra)
					in = mpi.Irecv(c, list, source, i)
				} else {
					if got, err = some(mine, devs, n+extra, 7); err != nil {
						return err
					}
					in = mpi.IrecvArray(c, got, source, i)
				}
			}
			if send {
				want := make([]uint32, n)
				for k := range want {
					want[k] = first + uint32(k)
				}
				if mine.IntN(4) == 0 {
					out = mpi.Isend(c, want, dest, i)
				} else {
					a, err := some(mine, devs, n, 0)
					if err == nil {
						err = a.Update(func(p []uint32) { copy(p, want) })
					}
					if err == nil && mine.IntN(2) == 0 { // to the device
						b := device.New[uint32](n)
						if err = devs[0].Launch(fill, device.Size{n}, device.Out(b), first, int32(n)); err == nil {
							a = b
						}
					}
					if err != nil {
						return err
					}
					out = mpi.IsendArray(c, a, dest, i)
				}
			}
			if recv {
				st, err := in.Wait()
				if err == nil && got != nil {
					list, err = got.Read()
				}
				if err != nil {
					return fmt.Errorf("message %d of %d: %w", i, n, err)
				}
				if mpi.Count[uint32](st) != n || st.Source != source || st.Tag != i {
					return fmt.Errorf("message %d: %+v, want %d elements", i, st, n)
				}
				for k, v := range list[:n] {
					if v != first+uint32(k) {
						return fmt.Errorf("message %d: element %d of %d is %d", i, k, n, v)
					}
				}
			}
			if send {
				if _, err := out.Wait(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestArray_Collectives compares collectives of arrays with those of slices.
// Some ranks pass arrays where others pass slices.
func TestArray_Collectives(t *testing.T) {
	devs := arrayDevices(t)
	for _, size := range []int{1, 2, 3, 5} {
		for _, n := range []int{1, 30, 9000, 60000} {
			if n == 60000 && size != 3 {
				continue
			}
			err := mpi.Local(size, func(c *mpi.Comm) error {
				return arrayCollectives(c, rand.New(rand.NewPCG(9, uint64(c.Rank()))), devs, n)
			})
			if err != nil {
				t.Fatalf("%d ranks, %d elements: %v", size, n, err)
			}
		}
	}
}

func arrayCollectives(c *mpi.Comm, r *rand.Rand, devs []*device.Device, n int) error {
	rank, size := c.Rank(), c.Size()
	values := func(n int) []uint32 {
		out := make([]uint32, n)
		for i := range out {
			out[i] = uint32(rank*1000000 + i)
		}
		return out
	}
	counts, all := make([]int, size), 0
	for i := range counts {
		counts[i] = n/2 + 1 + i
		all += counts[i]
	}
	root := size / 2
	for _, x := range []struct {
		name       string
		send, recv int
		slices     func(s, r []uint32) error
		arrays     func(s, r *device.Array[uint32]) error
	}{
		{"Bcast", 0, n, func(_, r []uint32) error { return mpi.Bcast(c, r, root) },
			func(_, r *device.Array[uint32]) error { return mpi.BcastArray(c, r, root) }},
		{"Gather", n, n * size, func(s, r []uint32) error { return mpi.Gather(c, s, r, root) },
			func(s, r *device.Array[uint32]) error { return mpi.GatherArray(c, s, r, root) }},
		{"Gatherv", counts[rank], all, func(s, r []uint32) error { return mpi.Gatherv(c, s, r, counts, nil, root) },
			func(s, r *device.Array[uint32]) error { return mpi.GathervArray(c, s, r, counts, nil, root) }},
		{"Scatter", n * size, n, func(s, r []uint32) error { return mpi.Scatter(c, s, r, root) },
			func(s, r *device.Array[uint32]) error { return mpi.ScatterArray(c, s, r, root) }},
		{"Scatterv", all, counts[rank], func(s, r []uint32) error { return mpi.Scatterv(c, s, counts, nil, r, root) },
			func(s, r *device.Array[uint32]) error { return mpi.ScattervArray(c, s, counts, nil, r, root) }},
		{"Allgather", n, n * size, func(s, r []uint32) error { return mpi.Allgather(c, s, r) },
			func(s, r *device.Array[uint32]) error { return mpi.AllgatherArray(c, s, r) }},
		{"Allgatherv", counts[rank], all, func(s, r []uint32) error { return mpi.Allgatherv(c, s, r, counts, nil) },
			func(s, r *device.Array[uint32]) error { return mpi.AllgathervArray(c, s, r, counts, nil) }},
		{"Alltoall", n * size, n * size, func(s, r []uint32) error { return mpi.Alltoall(c, s, r) },
			func(s, r *device.Array[uint32]) error { return mpi.AlltoallArray(c, s, r) }},
		{"Alltoallv", counts[rank] * size, all, func(s, r []uint32) error {
			return mpi.Alltoallv(c, s, slices.Repeat([]int{counts[rank]}, size), nil, r, counts, nil)
		}, func(s, r *device.Array[uint32]) error {
			return mpi.AlltoallvArray(c, s, slices.Repeat([]int{counts[rank]}, size), nil, r, counts, nil)
		}},
		{"Reduce", n, n, func(s, r []uint32) error { return mpi.Reduce(c, s, r, mpi.Sum, root) },
			func(s, r *device.Array[uint32]) error { return mpi.ReduceArray(c, s, r, mpi.Sum, root) }},
		{"Allreduce", n, n, func(s, r []uint32) error { return mpi.Allreduce(c, s, r, mpi.Sum) },
			func(s, r *device.Array[uint32]) error { return mpi.AllreduceArray(c, s, r, mpi.Sum) }},
		{"ReduceScatter", all, counts[rank], func(s, r []uint32) error { return mpi.ReduceScatter(c, s, r, counts, mpi.Sum) },
			func(s, r *device.Array[uint32]) error { return mpi.ReduceScatterArray(c, s, r, counts, mpi.Sum) }},
		{"Scan", n, n, func(s, r []uint32) error { return mpi.Scan(c, s, r, mpi.Sum) },
			func(s, r *device.Array[uint32]) error { return mpi.ScanArray(c, s, r, mpi.Sum) }},
		{"Exscan", n, n, func(s, r []uint32) error { return mpi.Exscan(c, s, r, mpi.Sum) },
			func(s, r *device.Array[uint32]) error { return mpi.ExscanArray(c, s, r, mpi.Sum) }},
	} {
		send, recv, want := values(x.send), values(x.recv), values(x.recv)
		if err := x.slices(send, want); err != nil {
			return err
		}
		if r.IntN(4) == 0 { // this rank passes slices
			if err := x.slices(send, recv); err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
		} else {
			var s *device.Array[uint32]
			var err error
			if x.send > 0 {
				if s, err = some(r, devs, x.send, 0); err == nil {
					err = s.Update(func(p []uint32) { copy(p, send) })
				}
			}
			a, err2 := some(r, devs, x.recv, 0)
			if err = errors.Join(err, err2); err == nil {
				err = a.Update(func(p []uint32) { copy(p, recv) })
			}
			if err == nil {
				err = x.arrays(s, a)
			}
			if err == nil {
				recv, err = a.Read()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
		}
		if !slices.Equal(recv, want) {
			return fmt.Errorf("%s: rank %d got %v…, want %v…", x.name, rank, recv[:min(20, len(recv))], want[:min(20, len(want))])
		}
	}
	return nil
}

// odd is no array of package device.
type odd struct{}

func (odd) Dims() []int                   { return nil }
func (odd) Len() int                      { return 1 }
func (odd) Read() ([]uint32, error)       { return nil, nil }
func (odd) Update(f func([]uint32)) error { return nil }

// TestArray_Refused refuses arrays that were freed, that are constant, or that
// are none.
func TestArray_Refused(t *testing.T) {
	err := mpi.Local(1, func(c *mpi.Comm) error {
		a, constant, freed := device.New[uint32](4), device.NewConstant[uint32](4), device.New[uint32](4)
		freed.Free()
		var none *device.Array[uint32]
		_, recv := mpi.RecvArray(c, constant, 0, 0)
		_, both := mpi.SendrecvArray(c, a, 0, 0, freed, 0, 0)
		for what, err := range map[string]error{
			"not an array":      mpi.SendArray[uint32](c, odd{}, 0, 0),
			"constant":          recv,
			"freed":             both,
			"not made with New": mpi.SendArray(c, none, 0, 0),
			"rank 1":            mpi.SendArray(c, a, 1, 0),
			"tag -5":            mpi.SendArray(c, a, 0, -5),
			"recv has 0":        mpi.GatherArray(c, a, nil, 0),
		} {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("want an error with %q: %v", what, err)
			}
		}
		long := mpi.IsendArray(c, device.New[uint32](5), 0, 3)
		if _, err := mpi.RecvArray(c, a, 0, 3); !errors.Is(err, mpi.ErrTruncated) {
			t.Errorf("a message that is too long: %v", err)
		}
		_, err := long.Wait()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestArray_OtherElements sends arrays whose elements have another size than
// those of the array that receives them, so that the ranks divide the message
// into other parts.
func TestArray_OtherElements(t *testing.T) {
	devs, err := device.Open("discrete")
	if err != nil {
		t.Fatal(err)
	}
	put := device.NewKernel("", "put", func(w *device.Work) {
		a, first := device.Slice[float64](w, 0), device.Value[float64](w, 1)
		lo, hi := w.Range(0)
		for i := lo; i < hi; i++ {
			a[i] = first + float64(i)
		}
	})
	const n = 300_000
	err = mpi.Local(2, func(c *mpi.Comm) error {
		a, b := device.New[[3]float64](n/3), device.New[float64](n)
		for turn := range 2 {
			first := float64(1 - c.Rank()) // what is sent begins with 1
			if err := devs[0].Launch(put, device.Size{n}, device.Out(a), first); err != nil {
				return err
			}
			if err := devs[0].Launch(put, device.Size{n}, device.Out(b), first); err != nil {
				return err
			}
			var err error
			switch {
			case c.Rank() == 0 && turn == 0:
				err = mpi.SendArray(c, a, 1, 0)
			case c.Rank() == 0:
				err = mpi.SendArray(c, b, 1, 0)
			case turn == 0:
				_, err = mpi.RecvArray(c, b, 0, 0)
			default:
				_, err = mpi.RecvArray(c, a, 0, 0)
			}
			if err != nil {
				return err
			}
			flat, err := b.Read()
			if err != nil {
				return err
			}
			if turn == 1 {
				triples, err := a.Read()
				if err != nil {
					return err
				}
				flat = nil
				for _, v := range triples {
					flat = append(flat, v[:]...)
				}
			}
			for i, v := range flat {
				if v != float64(i+1) {
					return fmt.Errorf("turn %d: element %d is %v", turn, i, v)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
