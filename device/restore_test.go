package device

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/driver/faulty"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/internal/graph"
)

// handles is the state of a program that does not use checkpoints.
type handles struct {
	Devs   []*Device
	Last   *Device
	Counts map[*Device]int
	Array  *Array[uint32]
	Args   []any
	Kernel *Kernel
	Grid   Grid
	Roster *deviceCount
}

func (h *handles) roots() []graph.Root { return []graph.Root{{Name: "handles", Ptr: h}} }

// reload saves h and returns it as another process would restore it, on other
// devices.
func (h *handles) reload(t *testing.T, devs ...*Device) (*handles, error) {
	t.Helper()
	img, err := graph.Collect(h.roots(), nil)
	if err != nil {
		return nil, err
	}
	s := newSaver(t)
	set, err := s.Save(context.Background(), img, nil, ckpt.Note{})
	must(t, err)
	res := <-s.Done()
	s.Collect(res)
	must(t, res.Err)
	start(t, devs...)
	f, err := ckpt.Open(s.dir.FS(), s.dir.File(set))
	must(t, err)
	defer f.Close()
	if img, err = f.Image(); err != nil {
		return nil, err
	}
	to := new(handles)
	return to, f.Load(context.Background(), img, to.roots(), nil, nil, nil)
}

// start simulates the start of a process with these devices.
func start(t *testing.T, devs ...*Device) {
	machine.Lock()
	defer machine.Unlock()
	chosen, given, seen, stands := machine.chosen, machine.given, machine.seen, machine.substitutes
	t.Cleanup(func() {
		machine.Lock()
		defer machine.Unlock()
		machine.chosen, machine.given, machine.seen, machine.substitutes = chosen, given, seen, stands
	})
	machine.chosen, machine.given, machine.seen, machine.substitutes = devs, nil, 0, nil
}

// TestRestore_OtherDevices restores devices, kernels and arguments on one
// device instead of two, and then on three.
func TestRestore_OtherDevices(t *testing.T) {
	a, b, c := shared(t, 60), discrete(t, 61, 0), discrete(t, 62, 0)
	start(t, a, b)
	devs, err := Devices()
	must(t, err)
	arr := New[uint32](8, 4)
	h := &handles{Devs: devs, Last: devs[1], Counts: map[*Device]int{a: 1, b: 2}, Array: arr, Kernel: NewKernel("source", "name", nil),
		Args: []any{InOut(arr.Rows(2, 4)), uint32(7), int32(8)}, Grid: Size{8}.In(4), Roster: new(deviceCount)}
	for i, there := range [][]*Device{{c}, {c, a, b}} {
		if h, err = h.reload(t, there...); err != nil {
			t.Fatal(err)
		}
		now, err := Devices()
		must(t, err)
		if len(h.Devs) != 2 || len(now) != 2 || h.Devs[0] != now[0] || h.Devs[1] != now[1] || h.Last != now[1] || now[0] == now[1] {
			t.Fatalf("on %v: the program has %v and %v, Devices says %v", there, h.Devs, h.Last, now)
		}
		if len(h.Counts) != 2 || h.Counts[now[0]] != 1 || h.Counts[now[1]] != 2 {
			t.Errorf("on %v: counts are %v", there, h.Counts)
		}
		for k, d := range now {
			if want := there[k%len(there)]; d.real() != want || d.String() != want.String() || d.Info() != want.Info() {
				t.Errorf("on %v: device %d is %v", there, k, d)
			}
		}
		if h.Kernel.source != "source" || h.Kernel.name != "name" || h.Kernel.self.Value() != h.Kernel {
			t.Errorf("on %v: kernel %+v", there, h.Kernel)
		}
		// An argument that was made before refers to a part of the array.
		fill := NewKernel("", "fill", func(w *Work) {
			p := Slice[uint32](w, 0)
			lo, hi := w.Range(0)
			for i := lo; i < min(hi, int(Value[int32](w, 2))); i++ {
				p[i] += Value[uint32](w, 1)
			}
		})
		must(t, h.Last.Launch(fill, h.Grid, h.Args...))
		must(t, h.Last.Finish())
		v, err := h.Array.Read()
		must(t, err)
		for k, x := range v {
			if want := uint32(7 * (i + 1)); k >= 8 && k < 16 && x != want || (k < 8 || k >= 16) && x != 0 {
				t.Fatalf("on %v: element %d is %d", there, k, x)
			}
		}
		h.Array.Prefer(h.Last)
	}
}

// TestRestore_OpenedDevice shows that a device which Open returned is the same
// one after a restart, if it exists.
func TestRestore_OpenedDevice(t *testing.T) {
	t.Setenv("CAIRN_DEVICES", "")
	a := shared(t, 60)
	start(t, a)
	devs, err := Open("host:7")
	must(t, err)
	h, err := (&handles{Last: devs[0]}).reload(t, a)
	must(t, err)
	if h.Last == devs[0] || h.Last.real() != devs[0] {
		t.Errorf("it is %v", h.Last)
	}
	t.Setenv("CAIRN_DEVICES", "host")
	if h, err = h.reload(t, a); err != nil || h.Last.real() != a {
		t.Errorf("with CAIRN_DEVICES it is %v, %v", h.Last, err)
	}
	if _, err = (&handles{Last: shared(t, 63)}).reload(t, a); err == nil || !strings.Contains(err.Error(), "cannot save device") {
		t.Errorf("a device that neither Devices nor Open returned: %v", err)
	}
}

// TestLost_Reported shows that the program's state reports a lost device.
func TestLost_Reported(t *testing.T) {
	bad, err := newDevice(faulty.Wrap(host.New(host.Options{Index: 64}), &faulty.Fault{At: 2, Kind: faulty.Lost}))
	must(t, err)
	lastLoss.Store(nil) // of other tests
	start(t, shared(t, 60), bad)
	if err := new(deviceCount).CairnLost(); err != nil {
		t.Error(err)
	}
	for range 10 {
		if err = bad.Finish(); err != nil {
			break
		}
	}
	if e := new(deviceCount).CairnLost(); !errors.Is(err, ErrLost) || !errors.Is(e, ErrLost) {
		t.Errorf("Finish says %v, the roster %v", err, e)
	}
}
