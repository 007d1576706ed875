package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/faulty"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// discrete returns a device with memory of its own, of this size.
func discrete(t testing.TB, index int, memory int64) driver.Device {
	d := host.New(host.Options{Index: index, Workers: 1, Discrete: true, Memory: memory})
	t.Cleanup(func() { d.Close() })
	return d
}

func use(t testing.TB, d driver.Device) *device.Device {
	t.Helper()
	dev, err := driver.Expose[*device.Device](d)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// mix makes a row of each row and its neighbours.
var mix = device.NewKernel("", "mix", func(w *device.Work) {
	out, in := device.Slice[uint64](w, 0), device.Slice[uint64](w, 1)
	top, rows, width, salt := device.Value[int32](w, 2), device.Value[int32](w, 3), device.Value[int32](w, 4), device.Value[uint64](w, 5)
	x0, x1 := w.Range(0)
	y0, y1 := w.Range(1)
	for y := y0; y < y1; y++ {
		for x := x0; x < x1; x++ {
			at := func(y int) uint64 { // y counts from the first row of out, which is row top of in
				y = min(max(y+int(top), 0), int(rows)-1)
				return in[y*int(width)+x]
			}
			v := at(y)*3 + at(y-1)*5 + at(y+1)*7 + salt
			out[y*int(width)+x] = v ^ v>>17
		}
	}
})

const (
	mixRows, mixWidth = 12, 40
	mixSteps          = 14
)

// mixer is a program whose arrays lie on several devices.
type mixer struct {
	t    *testing.T
	file string
	fs   vfs.FS

	step   int
	a, b   *device.Array[uint64]
	half   *device.Array[uint64] // the upper half of a
	total  *device.Array[uint64] // one number
	salt   *device.Array[uint64] // constant
	seen   map[string]int
	latest *uint64 // an element of past
	past   []uint64
	out    *os.File
	all    []uint64 // the result

	rollbacks, anew int
	lost            []error // why
	unsaved         int     // of them, at a checkpoint
}

func newMixer(t *testing.T) *mixer {
	return &mixer{t: t, file: filepath.Join(t.TempDir(), "out.txt"), fs: vfstest.NewMem()}
}

// begin creates the initial state.
func (m *mixer) begin() {
	m.step = 0
	m.a, m.b = device.New[uint64](mixRows, mixWidth), device.New[uint64](mixRows, mixWidth)
	m.half = m.a.Rows(0, mixRows/2)
	m.total, m.salt = device.New[uint64](), device.NewConstant[uint64](3)
	p, err := m.a.Data()
	s, err2 := m.salt.Data()
	if err := errors.Join(err, err2); err != nil {
		m.t.Fatal(err)
	}
	for i := range p {
		p[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	copy(s, []uint64{3, 1, 4})
	m.seen, m.past = map[string]int{}, make([]uint64, mixSteps)
	m.latest = &m.past[0]
}

// alive returns the devices that are not lost.
func alive(devs []*device.Device) []*device.Device {
	return slices.DeleteFunc(slices.Clone(devs), func(d *device.Device) bool { return d.Err() != nil })
}

// loop runs to the end.
func (m *mixer) loop(p *Run, devs []*device.Device) error {
	m.a.Prefer(devs[0])
	for ; m.step < mixSteps; m.step++ {
		if err := p.Point(ctx); err != nil {
			return err
		}
		salt, err := m.salt.Read()
		if err != nil {
			return err
		}
		lo := 0
		for i, d := range devs {
			hi := mixRows * (i + 1) / len(devs)
			from, to := max(lo-1, 0), min(hi+1, mixRows)
			err := d.Launch(mix, device.Size{mixWidth, hi - lo}, device.Out(m.b.Rows(lo, hi)), device.In(m.a.Rows(from, to)),
				int32(lo-from), int32(to-from), int32(mixWidth), salt[m.step%3])
			if err != nil {
				return err
			}
			lo = hi
		}
		m.a, m.b = m.b, m.a
		m.half = m.a.Rows(0, mixRows/2)
		if m.step%4 == 3 { // the host reads it now and then
			if err := m.look(); err != nil {
				return err
			}
		}
		fmt.Fprintf(m.out, "step %d\n", m.step)
	}
	if err := m.look(); err != nil {
		return err
	}
	var err error
	m.all, err = m.a.Read()
	return err
}

// look sums up the upper half.
func (m *mixer) look() error {
	total, err := m.total.Data()
	if err != nil {
		return err
	}
	rows, err := m.half.Read()
	if err != nil {
		return err
	}
	for _, x := range rows {
		total[0] = total[0]*31 + x
	}
	m.seen[fmt.Sprint("at ", m.step)] = len(rows)
	m.latest = &m.past[min(m.step, mixSteps-1)]
	*m.latest = total[0]
	return nil
}

// run runs the program on devices, and goes back to a checkpoint when one is
// lost. It returns the result.
func (m *mixer) run(devs []*device.Device, change ...func(*Options)) (string, error) {
	p := open(m.t, "/ckpt", append(change, func(o *Options) { o.fs, o.EveryPoints, o.Memory = m.fs, 3, 1<<20 })...)
	defer p.Close()
	var err error
	if m.out, err = p.OpenFile(m.file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666); err != nil {
		return "", err
	}
	defer m.out.Close()
	m.begin()
	Protect(p, "step", &m.step)
	Protect(p, "a", &m.a)
	Protect(p, "b", &m.b)
	Protect(p, "half", &m.half)
	Protect(p, "total", &m.total)
	Protect(p, "salt", &m.salt)
	Protect(p, "seen", &m.seen)
	Protect(p, "latest", &m.latest)
	Protect(p, "past", &m.past)
	if _, err := p.Restore(ctx); err != nil {
		return "", err
	}
	for {
		err := m.loop(p, alive(devs))
		if err == nil {
			break
		}
		if err := m.back(p, err); err != nil {
			return "", err
		}
	}
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if m.latest != &m.past[mixSteps-1] {
		return "", errors.New("the pointer does not point into the slice")
	}
	p.Finish()
	return fmt.Sprint(m.all, m.seen, m.past, *m.latest, string(text)), p.Close()
}

// back goes back to a checkpoint after a device was lost.
func (m *mixer) back(p *Run, err error) error {
	for range 3 {
		if !errors.Is(err, device.ErrLost) {
			return err
		}
		m.lost = append(m.lost, err)
		if errors.Is(err, ErrNotSaved) {
			m.unsaved++
		}
		var ok bool
		if ok, err = p.Rollback(ctx); err == nil {
			if m.rollbacks++; !ok {
				m.anew++
				m.begin()
			}
			return nil
		}
	}
	return err
}

// three returns three devices, of which one has a fault.
func three(t *testing.T, which int, f *faulty.Fault, memory int64) []*device.Device {
	t.Helper()
	var devs []*device.Device
	for i := range 3 {
		d := discrete(t, i, memory)
		if i == which {
			d = faulty.Wrap(d, f)
		}
		devs = append(devs, use(t, d))
	}
	return devs
}

// TestRollback_DeviceLostAtEveryCall loses a device at each of its calls in
// turn. The program goes back to its last checkpoint, on the other devices, and
// gives the right result.
func TestRollback_DeviceLostAtEveryCall(t *testing.T) {
	want, err := newMixer(t).run([]*device.Device{use(t, host.New(host.Options{}))})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(want, "step 13\n") || strings.Count(want, "step") != mixSteps {
		t.Fatal(want)
	}
	for which := range 2 {
		for _, kind := range []faulty.Kind{faulty.Lost, faulty.Late, faulty.Memory} {
			t.Run(fmt.Sprint(kind, " ", which), func(t *testing.T) {
				t.Parallel()
				plain := new(faulty.Fault)
				if got, err := newMixer(t).run(three(t, which, plain, 0)); err != nil || got != want {
					t.Fatal("undisturbed: ", err, firstDifferent(got, want))
				}
				var rollbacks, anew, unsaved int
				names := make(map[string]bool)
				n, stride := 2, 1 // the first is made by Use
				if os.Getenv("CAIRN_LONG") == "" && kind != faulty.Memory {
					stride = 13
				}
				for ; ; n += stride {
					if kind == faulty.Memory && n < plain.Calls() && plain.Name(n) != "Device.Alloc" {
						continue
					}
					f := &faulty.Fault{At: n, Kind: kind}
					m := newMixer(t)
					got, err := m.run(three(t, which, f, 0))
					if err != nil {
						t.Fatalf("call %d, %s: %v", n, f.Name(n), err)
					}
					if got != want {
						t.Fatalf("call %d, %s, after %d rollbacks (%v): %s", n, f.Name(n), m.rollbacks, m.lost, firstDifferent(got, want))
					}
					if m.rollbacks > 0 && !f.Fired() || m.rollbacks > 0 && kind == faulty.Memory || len(m.lost) > 2 {
						t.Errorf("call %d, %s: %d rollbacks, %v", n, f.Name(n), m.rollbacks, m.lost)
					}
					rollbacks, anew, unsaved = rollbacks+m.rollbacks, anew+m.anew, unsaved+m.unsaved
					if f.Fired() {
						names[f.Name(n)] = true
					}
					if f.Calls() < n {
						break
					}
				}
				t.Logf("%d calls, %d rollbacks, %d of them to the beginning, %d after a failed checkpoint", n, rollbacks, anew, unsaved)
				if kind != faulty.Memory && (rollbacks < n/stride/2 || anew == 0 || anew == rollbacks || stride == 1 && (unsaved == 0 || len(names) < 8)) {
					t.Errorf("the faults were not where they should be: %v", names)
				}
				if kind == faulty.Memory && len(names) != 1 {
					t.Errorf("no memory for %v", names)
				}
			})
		}
	}
}

func firstDifferent(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("at %d %.80q instead of %.80q", i, got[max(0, i-20):], want[max(0, i-20):])
}

// refusing counts allocations that are refused.
type refusing struct {
	driver.Device
	refused atomic.Int32
}

func (c *refusing) Alloc(n int64) (driver.Buffer, error) {
	b, err := c.Device.Alloc(n)
	if err != nil {
		c.refused.Add(1)
	}
	return b, err
}

// TestCheckpoint_NoRoomOnDevice has no room on the device for a copy. The state
// is read while the program is paused, and is right.
func TestCheckpoint_NoRoomOnDevice(t *testing.T) {
	const n = 100_000
	for _, room := range []int64{0, 8 * n * 5 / 4, 8*n*2 + 8*n/10} {
		dir := t.TempDir()
		p := open(t, dir)
		small := &refusing{Device: discrete(t, 0, room)}
		d := use(t, small)
		a := device.New[float64](n)
		step := 0
		Protect(p, "a", &a)
		Protect(p, "step", &step)
		restore(t, p, false)
		for ; step < 5; step++ {
			fillWith(t, d, a, float64(step+1))
			p.Request()
			if err := p.Point(ctx); err != nil { // its kernels continue at once
				t.Fatal(err)
			}
		}
		if full := room > 0 && room < 8*n*2; full != (small.refused.Load() > 0) {
			t.Errorf("%d bytes of room: %d allocations were refused", room, small.refused.Load())
		}
		fillWith(t, d, a, 100)
		rollback(t, p, true)
		if step != 4 {
			t.Fatalf("step %d", step)
		}
		filled(t, fmt.Sprintf("%d bytes of room: gone back", room), a, 5, n)
		closeRun(t, p)
		p = open(t, dir)
		again := device.New[float64](n)
		Protect(p, "a", &again)
		Protect(p, "step", &step)
		again.Prefer(use(t, discrete(t, 1, room)))
		restore(t, p, true)
		filled(t, fmt.Sprintf("%d bytes of room: restored", room), again, 5, n)
		closeRun(t, p)
	}
}

// cells is arrays inside of other things.
type cells struct {
	Name  string
	Field device.Array[float64]
	List  []*device.Array[float64]
	Map   map[string]*device.Array[float64]
	Any   any
}

// TestArray_RestoredAnywhere restores arrays wherever they are in the state, in
// a program that made the same and in one that made none.
func TestArray_RestoredAnywhere(t *testing.T) {
	for _, same := range []bool{true, false} {
		dir := t.TempDir()
		d := use(t, discrete(t, 0, 0))
		p := open(t, dir)
		parent := device.New[float64](20, 10)
		view := parent.Rows(5, 15)
		point := device.New[float64]()
		fixed := device.NewConstant[float64](4)
		group := device.NewGroup(d, d, d)
		c := cells{Name: "x", Field: *device.New[float64](2, 3, 4), List: []*device.Array[float64]{device.New[float64](7), view, nil}}
		c.Map = map[string]*device.Array[float64]{"parent": parent, "own": device.New[float64](3)}
		c.Any = c.List[0]
		var empty device.Array[float64]
		protect := func(p *Run) {
			Protect(p, "parent", &parent)
			Protect(p, "view", &view)
			Protect(p, "point", &point)
			Protect(p, "fixed", &fixed)
			Protect(p, "group", &group)
			Protect(p, "cells", &c)
			Protect(p, "empty", &empty)
			Register[*device.Array[float64]](p)
		}
		protect(p)
		restore(t, p, false)
		fillWith(t, d, parent, 1)
		fillWith(t, d, view, -1)
		fillWith(t, d, &c.Field, 2)
		fillWith(t, d, c.List[0], 3)
		fillWith(t, d, c.Map["own"], 4)
		q, err := point.Data()
		if err != nil {
			t.Fatal(err)
		}
		q[0] = 42
		if q, err = fixed.Data(); err != nil {
			t.Fatal(err)
		}
		copy(q, []float64{0, 9, 18, 27})
		checkpoint(t, p)
		fillWith(t, d, parent, 8)
		fillWith(t, d, &c.Field, 8)

		check := func(how string) {
			t.Helper()
			whole, err := parent.Read()
			if err != nil || len(whole) != 200 || whole[49] != 49 || whole[51] != -1 || whole[149] != -99 || whole[150] != 150 {
				t.Fatalf("%s: %v %v", how, whole, err)
			}
			filled(t, how+", the view", view, -1, 10, 10)
			filled(t, how+", the field", &c.Field, 2, 2, 3, 4)
			filled(t, how+", the list", c.List[0], 3, 7)
			filled(t, how+", the map", c.Map["own"], 4, 3)
			filled(t, how+", the constant", fixed, 9, 4)
			if q, err := point.Read(); err != nil || len(q) != 1 || q[0] != 42 || len(point.Dims()) != 0 {
				t.Errorf("%s: an array of no dimensions: %v %v", how, q, err)
			}
			if c.List[2] != nil || c.Any != any(c.List[0]) || c.Map["parent"] != parent || c.List[1] != view || empty.Len() != 0 {
				t.Errorf("%s: what was the same is not any more: %+v", how, c)
			}
			if group.Len() != 3 || group.At(2) == nil {
				t.Errorf("%s: a group of %d devices", how, group.Len())
			}
			if err := d.Launch(fill, device.Size{4}, device.Out(fixed), 1.0); err == nil || !strings.Contains(err.Error(), "constant") {
				t.Errorf("%s: a constant array was written: %v", how, err)
			}
			// The view is still one.
			fillWith(t, d, c.List[1], 5)
			if whole, err = parent.Read(); err != nil || whole[49] != 49 || whole[51] != 5 || whole[149] != 495 || whole[150] != 150 {
				t.Fatalf("%s: the view shares no memory: %v %v", how, whole, err)
			}
		}
		rollback(t, p, true)
		check("rolled back")
		rollback(t, p, true)
		closeRun(t, p)

		d = use(t, discrete(t, 1, 0))
		if same {
			parent, point, fixed = device.New[float64](20, 10), device.New[float64](), device.NewConstant[float64](4)
			view = parent.Rows(5, 15)
			c = cells{Field: *device.New[float64](2, 3, 4)}
			group = device.NewGroup(d)
		} else {
			parent, view, point, fixed, group, c = nil, nil, nil, nil, nil, cells{}
		}
		p = open(t, dir)
		protect(p)
		restore(t, p, true)
		check(fmt.Sprintf("restored, made the same: %v", same))
		checkpoint(t, p)
		closeRun(t, p)
	}
}

// TestArray_OtherDimensions: a restored array has the dimensions of the
// checkpoint. Another type of elements is an error.
func TestArray_OtherDimensions(t *testing.T) {
	dir := t.TempDir()
	d := use(t, discrete(t, 0, 0))
	p := open(t, dir)
	a := device.New[float64](6, 5)
	Protect(p, "a", &a)
	restore(t, p, false)
	fillWith(t, d, a, 2)
	checkpoint(t, p)
	closeRun(t, p)
	for _, other := range []*device.Array[float64]{device.New[float64](30), device.New[float64](5, 6), device.New[float64](2, 2), device.New[float64](1000, 3, 2)} {
		was := other.Dims()
		other.Prefer(d)
		p := open(t, dir)
		Protect(p, "a", &other)
		restore(t, p, true)
		filled(t, fmt.Sprintf("made with %v", was), other, 2, 6, 5)
		closeRun(t, p)
		// A variable that is not behind a pointer.
		value := *device.New[float64](was...)
		p = open(t, dir)
		Protect(p, "a", &value)
		if ok, err := p.Restore(ctx); err == nil || !errors.Is(err, ErrMismatch) {
			t.Fatalf("an array where there was a pointer to one: %v %v", ok, err)
		}
		closeRun(t, p)
	}
	narrow := device.New[float32](6, 5)
	p = open(t, dir)
	Protect(p, "a", &narrow)
	if _, err := p.Restore(ctx); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), "float32") {
		t.Errorf("other elements: %v", err)
	}
}

// TestArray_FixedRefusesOtherDimensions refuses a checkpoint whose array has
// other dimensions.
func TestArray_FixedRefusesOtherDimensions(t *testing.T) {
	dir := t.TempDir()
	for i, dims := range [][]int{{4, 5}, {4, 5}, {5, 4}} {
		a := device.New[float32](dims...)
		p, err := Open(context.Background(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		Protect(p, "a", a, Fixed)
		ok, err := p.Restore(context.Background())
		switch {
		case i == 2 && !errors.Is(err, ErrMismatch):
			t.Errorf("other dimensions: %v, %v", ok, err)
		case i < 2 && (err != nil || ok != (i == 1)):
			t.Errorf("%d: %v, %v", i, ok, err)
		case i == 0:
			if err := p.Checkpoint(context.Background()); err != nil {
				t.Error(err)
			}
		}
		p.Close()
	}
}
