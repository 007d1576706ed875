// Emigrant is a program with arrays on devices, for ranks that are taken to a
// host with other ones. Its arrays are spread over all devices of CAIRN_DEVICES;
// some are views of others, some were written by the host, in part or not at
// all. It computes with integers up to the step that a file says, and waits
// there, with what it has computed still on the devices.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/mpi"
)

const (
	rows, width = 24, 5003 // rows that end within blocks
	pairs       = 700_001
	parts       = 6 // of the grid, for as many devices or fewer
)

type pair struct {
	A uint32
	B int16
	C [2]uint8
}

const source = `
kernel void scramble(global ulong *a, int n, int width, int first, int step) {
	int y = get_global_id(0);
	if (y >= n) return;
	ulong carry = (ulong)(first + y) << 32 | (ulong)step;
	for (int x = 0; x < width; x++) {
		carry = (carry ^ a[y*width + x]) * 0x9e3779b97f4a7c15UL;
		a[y*width + x] = carry ^ carry >> 29;
	}
}
typedef struct { uint a; short b; uchar c[2]; } pair;
kernel void stir(global pair *p, global const uint *by, int n, int step) {
	int i = get_global_id(0);
	if (i >= n) return;
	p[i].a = p[i].a * 1664525u + by[i % 64] + step;
	p[i].b = (short)(p[i].a >> 16);
	p[i].c[1] = (uchar)(p[i].c[0] + step);
	p[i].c[0] = (uchar)(p[i].a >> 9);
}`

var scramble = device.NewKernel(source, "scramble", func(w *device.Work) {
	a, n, width, first, step := device.Slice[uint64](w, 0), int(device.Value[int32](w, 1)), int(device.Value[int32](w, 2)), device.Value[int32](w, 3), device.Value[int32](w, 4)
	lo, hi := w.Range(0)
	for y := lo; y < min(hi, n); y++ {
		row := a[y*width : (y+1)*width]
		carry := uint64(first+int32(y))<<32 | uint64(step)
		for x := range row {
			carry = (carry ^ row[x]) * 0x9e3779b97f4a7c15
			row[x] = carry ^ carry>>29
		}
	}
})

var stir = device.NewKernel(source, "stir", func(w *device.Work) {
	p, by, n, step := device.Slice[pair](w, 0), device.Slice[uint32](w, 1), int(device.Value[int32](w, 2)), device.Value[int32](w, 3)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, n); i++ {
		p[i].A = p[i].A*1664525 + by[i%64] + uint32(step)
		p[i].B = int16(p[i].A >> 16)
		p[i].C[1] = p[i].C[0] + uint8(step)
		p[i].C[0] = uint8(p[i].A >> 9)
	}
})

// state is what a rank carries.
type state struct {
	Step  int
	Devs  *device.Group
	Grid  *device.Array[uint64]
	Part  *device.Array[uint64] // some rows of Grid
	Pairs *device.Array[pair]
	By    *device.Array[uint32] // the host's
	More  map[string]*device.Array[uint64]
	None  *device.Array[float64] // never touched
}

func main() {
	limit := flag.String("limit", "", "file that says up to which step may be computed")
	steps := flag.Int("steps", 60, "steps in all")
	flag.Parse()
	if err := run(context.Background(), *steps, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "emigrant:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(75)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, steps int, limit string) (err error) {
	devs, err := device.Open(os.Getenv("CAIRN_DEVICES"))
	if err != nil {
		return err
	}
	p, err := cairn.Open(ctx, cairn.Options{Every: 1 << 60})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	w := p.World()
	s, err := begin(devs, w.Rank())
	if err != nil {
		return err
	}
	if err := cairn.Protect(p, "state", &s); err != nil {
		return err
	}
	if _, err := p.Restore(ctx); err != nil {
		return err
	}
	var names []string
	for _, d := range devs {
		names = append(names, d.Info().ID)
	}
	fmt.Fprintf(os.Stderr, "emigrant: rank %d at step %d with %s\n", w.Rank(), s.Step, strings.Join(names, " "))
	for {
		if err := p.Point(ctx); err != nil {
			return err
		}
		may, err := allowed(w, limit, steps)
		if err != nil {
			return err
		}
		if s.Step == steps {
			break
		}
		if s.Step >= may {
			time.Sleep(time.Millisecond)
			continue
		}
		if err := s.compute(); err != nil {
			return err
		}
		text := "\n"
		if s.Step%20 == 0 {
			sum, err := s.digest()
			if err != nil {
				return err
			}
			text = fmt.Sprintf(" %016x\n", sum)
		}
		fmt.Printf("rank %d step %d:%s", w.Rank(), s.Step, text)
	}
	p.Finish()
	return nil
}

// allowed returns up to which step may be computed, as rank 0 reads it.
func allowed(w *mpi.Comm, limit string, steps int) (int, error) {
	may := []int32{int32(steps)}
	if limit != "" && w.Rank() == 0 {
		text, err := os.ReadFile(limit)
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return 0, err
		}
		may[0] = int32(n)
	}
	err := mpi.Bcast(w, may, 0)
	return int(may[0]), err
}

func begin(devs []*device.Device, rank int) (*state, error) {
	s := &state{Devs: device.NewGroup(devs...), Grid: device.New[uint64](rows, width), Pairs: device.New[pair](pairs), By: device.NewConstant[uint32](64), None: device.New[float64](1 << 20)}
	s.Part = s.Grid.Rows(5, 11)
	s.More = map[string]*device.Array[uint64]{"some": device.New[uint64](1 << 18), "few": device.New[uint64](3)}
	by, err := s.By.Data()
	if err != nil {
		return nil, err
	}
	for i := range by {
		by[i] = uint32(i*i*77 + rank)
	}
	return s, nil
}

// compute is a step: parts of the grid on devices in turn, the rest on one of
// them.
func (s *state) compute() error {
	dev := func(i int) *device.Device { return s.Devs.At(i % s.Devs.Len()) }
	for i := range parts {
		lo, hi := i*rows/parts, (i+1)*rows/parts
		if err := dev(i).Launch(scramble, device.Size{hi - lo}, device.InOut(s.Grid.Rows(lo, hi)), int32(hi-lo), int32(width), int32(lo), int32(s.Step)); err != nil {
			return err
		}
	}
	// The same memory by another name, and for some rows on another device.
	if err := dev(s.Step).Launch(scramble, device.Size{6}, device.InOut(s.Part), int32(6), int32(width), int32(100), int32(s.Step)); err != nil {
		return err
	}
	if err := dev(1).Launch(stir, device.Size{pairs}, device.InOut(s.Pairs), device.In(s.By), int32(pairs), int32(s.Step)); err != nil {
		return err
	}
	// Some of this array is on a device, some on the host, most is zero.
	some := s.More["some"]
	if err := dev(s.Step).Launch(scramble, device.Size{1}, device.InOut(some.Rows(100, 1100)), int32(1), int32(1000), int32(7), int32(s.Step)); err != nil {
		return err
	}
	v, err := some.Rows(1<<17, 1<<17+10).Data()
	if err != nil {
		return err
	}
	for i := range v {
		v[i] += uint64(s.Step * i)
	}
	s.Step++
	return nil
}

// digest is of all arrays, byte by byte.
func (s *state) digest() (uint64, error) {
	h := fnv.New64a()
	add := func(v []uint64, err error) error {
		sum := uint64(0)
		for _, x := range v {
			sum = (sum ^ x) * 0x9e3779b97f4a7c15
			sum ^= sum >> 31
		}
		fmt.Fprintln(h, len(v), sum)
		return err
	}
	err := add(s.Grid.Read())
	err = errors.Join(err, add(s.Part.Read()), add(s.More["some"].Read()), add(s.More["few"].Read()))
	p, e := s.Pairs.Read()
	sum := uint64(0)
	for _, x := range p {
		sum = (sum ^ uint64(x.A)<<32 ^ uint64(uint16(x.B))<<16 ^ uint64(x.C[0])<<8 ^ uint64(x.C[1])) * 0x9e3779b97f4a7c15
		sum ^= sum >> 31
	}
	none, e2 := s.None.Read()
	for _, x := range none {
		if x != 0 {
			return 0, errors.New("an array of zeros is not")
		}
	}
	fmt.Fprintln(h, sum, len(none))
	return h.Sum64(), errors.Join(err, e, e2)
}
