// Wander is a program for ranks that move to hosts unlike the first one. Its
// state has values of every kind and size; messages of several types are in
// flight at every point; each rank writes to standard output and to a file. All
// arithmetic uses integers, or floats that are rounded at every operation, so
// that the result is the same on every architecture.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

// packet is a message of a struct type.
type packet struct {
	Step   uint32
	From   int16
	Mark   [3]uint8
	Good   bool
	Weight float64
	Count  int64
}

type node struct {
	Left, Right *node
	Key         int32
	Text        string
}

// state is what a rank carries.
type state struct {
	Step   int
	Cells  []uint64
	Field  [][]float64
	Row    []float64 // one of Field
	Small  []float32
	Bytes  []byte
	Names  map[string]int
	Tree   *node
	Any    []any
	Wide   complex128
	Sum    [3]uint64
	Born   time.Time
	Early  []uint32 // comes from the rank before, asked for before the point
	Coming *mpi.Request
	Out    []packet // to the rank after, taken after the point
	Going  *mpi.Request
	Log    *os.File
	Input  *os.File // is read as it continues
	Both   *os.File // is written, and read
}

func main() {
	size := flag.Int("size", 1<<14, "elements of the arrays")
	limit := flag.String("limit", "", "file that says up to which step may be computed")
	steps := flag.Int("steps", 60, "steps in all")
	data := flag.String("data", "", "directory for a file per rank")
	flag.Parse()
	if err := run(context.Background(), *size, *steps, *limit, *data); err != nil {
		fmt.Fprintln(os.Stderr, "wander:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(75)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, size, steps int, limit, data string) (err error) {
	p, err := cairn.Open(ctx, cairn.Options{Every: 1 << 60})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	w := p.World()
	s := begin(size, w.Rank())
	if data != "" {
		if s.Log, err = p.OpenFile(fmt.Sprintf("%s/rank-%d.txt", data, w.Rank()), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640); err != nil {
			return err
		}
	}
	if err := greet(w); err != nil {
		return err
	}
	if err := cairn.Protect(p, "state", &s); err != nil {
		return err
	}
	resumed, err := p.Restore(ctx)
	if err != nil {
		return err
	}
	var routes []string
	for r := range w.Size() {
		if r != w.Rank() {
			name, _ := w.Transport(r)
			routes = append(routes, name)
		}
	}
	fmt.Fprintf(os.Stderr, "wander: rank %d on %s at step %d by %s\n", w.Rank(), runtime.GOARCH, s.Step, strings.Join(routes, ","))
	for {
		if !resumed {
			if err := s.send(w); err != nil {
				return err
			}
		}
		resumed = false // that point is passed again, and messages that were sent before it are in flight
		if err := p.Point(ctx); err != nil {
			return err
		}
		got, err := s.receive(w)
		if err != nil {
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
		if err := s.compute(w, got); err != nil {
			return err
		}
		if data != "" {
			if err := s.files(p, data, w.Rank()); err != nil {
				return err
			}
		}
	}
	fmt.Printf("rank %d ends: %016x\n", w.Rank(), s.digest())
	p.Finish()
	return nil
}

// greet exchanges messages before anything is restored, as programs do that
// divide their work.
func greet(w *mpi.Comm) error {
	n, rank := w.Size(), w.Rank()
	in := make([]packet, 1)
	if _, err := mpi.Sendrecv(w, []packet{{From: int16(rank), Weight: 0.5, Count: -3}}, (rank+1)%n, 9, in, (rank+n-1)%n, 9); err != nil {
		return err
	}
	sum := []int64{0}
	if err := mpi.Allreduce(w, []int64{int64(rank) - 100}, sum, mpi.Sum[int64]); err != nil {
		return err
	}
	if in[0].From != int16((rank+n-1)%n) || in[0].Weight != 0.5 || in[0].Count != -3 || sum[0] != int64(n*(n-1)/2-100*n) {
		return fmt.Errorf("before Restore, %+v and %d came", in[0], sum[0])
	}
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

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func begin(size, rank int) *state {
	s := &state{Cells: make([]uint64, size), Small: make([]float32, size), Bytes: make([]byte, size), Names: make(map[string]int),
		Wide: complex(1, float64(rank)), Born: time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC), Early: make([]uint32, 5), Out: make([]packet, 300)}
	for i := range s.Cells {
		s.Cells[i] = mix(uint64(rank)<<32 + uint64(i))
		s.Small[i] = float32(i%97) / 8
		s.Bytes[i] = byte(i * (rank + 3))
	}
	for r := range 4 {
		s.Field = append(s.Field, make([]float64, size/4))
		for i := range s.Field[r] {
			s.Field[r][i] = float64(mix(uint64(r*size+i))>>12) / (1 << 52)
		}
	}
	s.Row = s.Field[2]
	s.Any = []any{int32(rank), "text", s.Row[3:9:12], &s.Cells[7], map[int8]string{1: "one"}, 2.5}
	return s
}

// send does what is done before the point: what is sent is taken after it.
func (s *state) send(w *mpi.Comm) error {
	rank, n := w.Rank(), w.Size()
	next, last := (rank+1)%n, (rank+n-1)%n
	s.Coming = mpi.Irecv(w, s.Early, last, 5)
	for i := range s.Out {
		s.Out[i] = packet{uint32(s.Step), int16(-rank), [3]uint8{1, uint8(i), 3}, i%3 == 0, s.Row[i], -int64(s.Cells[i] >> 1)}
	}
	s.Going = mpi.Isend(w, s.Out, next, 6)
	return mpi.Send(w, []float32{s.Small[s.Step%len(s.Small)], float32(rank)}, next, 7)
}

// receive takes what was sent before the point, and one message that is sent
// only now.
func (s *state) receive(w *mpi.Comm) (uint64, error) {
	rank, n := w.Rank(), w.Size()
	next, last := (rank+1)%n, (rank+n-1)%n
	if err := mpi.Send(w, []uint32{uint32(s.Step), 0xdeadbeef, uint32(rank), 1 << 31, 7}, next, 5); err != nil {
		return 0, err
	}
	in := make([]packet, len(s.Out))
	if _, err := mpi.Recv(w, in, last, 6); err != nil {
		return 0, err
	}
	few := make([]float32, 2)
	if _, err := mpi.Recv(w, few, last, 7); err != nil {
		return 0, err
	}
	for _, r := range []*mpi.Request{s.Coming, s.Going} {
		if _, err := r.Wait(); err != nil {
			return 0, err
		}
	}
	if few[1] != float32(last) || s.Early[0] != uint32(s.Step) || s.Early[1] != 0xdeadbeef || s.Early[2] != uint32(last) || s.Early[3] != 1<<31 || s.Early[4] != 7 {
		return 0, fmt.Errorf("step %d: %v and %v came from rank %d", s.Step, few, s.Early, last)
	}
	sum := uint64(math.Float32bits(few[0]))
	for i, x := range in {
		if x.Step != uint32(s.Step) || x.From != int16(-last) || x.Mark != [3]uint8{1, uint8(i), 3} || x.Good != (i%3 == 0) {
			return 0, fmt.Errorf("step %d: %+v came from rank %d", s.Step, x, last)
		}
		sum = mix(sum ^ math.Float64bits(x.Weight) ^ uint64(x.Count))
	}
	return sum, nil
}

// compute is a step.
func (s *state) compute(w *mpi.Comm, got uint64) error {
	n := len(s.Cells)
	for i := range s.Cells {
		s.Cells[i] = mix(s.Cells[i] ^ got + uint64(s.Bytes[(i*7)%n]))
	}
	for r, row := range s.Field {
		for i := range row {
			a := float64(row[i] * 0.75)
			b := float64(s.Field[(r+1)%4][(i+1)%len(row)] * 0.25)
			row[i] = float64(a + b)
		}
	}
	for i := s.Step % 5; i < n; i += 5 {
		s.Small[i] = float32(s.Small[i]/2) + 1
		s.Bytes[i]++
	}
	x := real(s.Wide)
	s.Wide = complex(float64(x+1), imag(s.Wide))
	s.Names[fmt.Sprint("step ", s.Step)] = int(s.Cells[s.Step] >> 40)
	s.Tree = s.Tree.insert(int32(s.Cells[0]), fmt.Sprint(s.Step))
	*s.Any[3].(*uint64) += 3 // a cell
	s.Any[2].([]float64)[0] = float64(s.Step)
	all := make([]uint64, 3)
	if err := mpi.Allreduce(w, []uint64{got, s.Cells[1], uint64(s.Step)}, all, mpi.Sum[uint64]); err != nil {
		return err
	}
	sums := make([]float64, 1)
	if err := mpi.Allreduce(w, []float64{float64(s.Cells[2] >> 20)}, sums, mpi.Sum[float64]); err != nil {
		return err
	}
	for i := range s.Sum {
		s.Sum[i] = mix(s.Sum[i] ^ all[i] ^ math.Float64bits(sums[0]))
	}
	s.Step++
	line := fmt.Sprintf("rank %d step %d: %016x\n", w.Rank(), s.Step, s.digest())
	if s.Log != nil {
		if _, err := s.Log.WriteString(line); err != nil {
			return err
		}
	}
	_, err := os.Stdout.WriteString(line)
	return err
}

// files is what a step does with files that were opened on the way. Each line
// of the input says its number.
func (s *state) files(p *cairn.Run, data string, rank int) (err error) {
	if s.Step == 3 {
		if s.Input, err = p.OpenFile(fmt.Sprintf("%s/input-%d.txt", data, rank), os.O_RDONLY, 0); err != nil {
			return err
		}
		if s.Both, err = p.OpenFile(fmt.Sprintf("%s/both-%d.txt", data, rank), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			return err
		}
	}
	if s.Step < 3 {
		return nil
	}
	line, first := make([]byte, 5), make([]byte, 5)
	if _, err := s.Input.Read(line); err != nil {
		return err
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(line))); err != nil || n != s.Step-3 {
		return fmt.Errorf("step %d: the input says %q, %v", s.Step, line, err)
	}
	if _, err := s.Both.Write(line); err != nil {
		return err
	}
	if _, err := s.Both.ReadAt(first, 0); err != nil || string(first) != "0000\n" {
		return fmt.Errorf("step %d: what was written first is %q, %v", s.Step, first, err)
	}
	return nil
}

func (t *node) insert(key int32, text string) *node {
	switch {
	case t == nil:
		return &node{Key: key, Text: text}
	case key < t.Key:
		t.Left = t.Left.insert(key, text)
	default:
		t.Right = t.Right.insert(key, text)
	}
	return t
}

func (t *node) walk(f func(*node)) {
	if t != nil {
		t.Left.walk(f)
		f(t)
		t.Right.walk(f)
	}
}

// digest is of all of the state.
func (s *state) digest() uint64 {
	h := fnv.New64a()
	sum := uint64(0)
	for i := range s.Cells {
		sum = mix(sum ^ s.Cells[i] ^ uint64(math.Float32bits(s.Small[i]))<<16 ^ uint64(s.Bytes[i]))
	}
	for _, row := range s.Field {
		for _, x := range row {
			sum = mix(sum ^ math.Float64bits(x))
		}
	}
	var names []string
	for k := range s.Names {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		fmt.Fprintln(h, k, s.Names[k])
	}
	s.Tree.walk(func(t *node) { fmt.Fprintln(h, t.Key, t.Text) })
	fmt.Fprintln(h, s.Step, s.Sum, s.Wide, s.Born, s.Row[3], &s.Row[0] == &s.Field[2][0], s.Any[0], s.Any[1], s.Any[4], s.Any[5], cap(s.Any[2].([]float64)))
	return h.Sum64() ^ sum
}
