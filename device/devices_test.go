package device

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/host"
)

// pointers is a device whose memory has addresses: one block.
type pointers struct {
	driver.Device
	block driver.Buffer
	addr  uintptr
	n     int64
	host  []byte
	syncs int
}

func (p *pointers) Attributes(addr uintptr) (driver.Attributes, bool, error) {
	if addr >= p.addr && addr < p.addr+uintptr(p.n) {
		return driver.Attributes{Device: 7}, true, nil
	}
	if lo := uintptr(unsafe.Pointer(unsafe.SliceData(p.host))); addr >= lo && addr < lo+uintptr(len(p.host)) {
		return driver.Attributes{Host: true}, true, nil
	}
	return driver.Attributes{}, false, nil
}

func (p *pointers) At(addr uintptr, n int64) driver.Buffer {
	if addr != p.addr || n > p.n {
		panic("not this block")
	}
	return p.block
}

func (p *pointers) Synchronize() error {
	p.syncs++
	return nil
}

// TestRaw_ProgramMemory uses memory that the program has allocated.
func TestRaw_ProgramMemory(t *testing.T) {
	drv := &pointers{Device: host.New(host.Options{Index: 7, Discrete: true}), addr: 1 << 20, n: 400, host: heap[byte](400)}
	var err error
	drv.block, err = drv.Alloc(400)
	must(t, err)
	d, e := use1(t, drv), discrete(t, 1, 0)
	devs := []*Device{e, d}
	a, err := rawOn[uint32](devs, 1<<20, []int{100})
	must(t, err)
	must(t, d.Launch(put, Size{100}, Out(a), uint32(1), n32(100)))
	p, err := a.Read()
	if err != nil || p[99] != 100 || drv.syncs != 1 {
		t.Fatalf("%v, %v, synchronized %d times", p, err, drv.syncs)
	}
	must(t, d.q.CopyIn(drv.block, 4, []byte{9, 0, 0, 0})) // the program itself
	if p, err = a.Data(); err != nil || p[1] != 9 {
		t.Errorf("%v, %v", p, err)
	}
	places, err := a.h.m.Places(40, 80)
	if err != nil || len(places) != 1 || places[0].Version != 0 || places[0].Buffer != drv.block || places[0].Off != 40 || drv.syncs != 3 {
		t.Errorf("%+v, %v, synchronized %d times", places, err, drv.syncs)
	}
	if err := e.Launch(put, Size{100}, Out(a), uint32(1), n32(100)); err == nil || !strings.Contains(err.Error(), "belongs to host:7") {
		t.Errorf("on another device: %v", err)
	}
	if err := shared(t, 0).Launch(put, Size{100}, Out(a), uint32(1), n32(100)); err == nil || !strings.Contains(err.Error(), "belongs to host:7") {
		t.Errorf("on the host: %v", err)
	}
	must(t, a.h.m.Fill(8, []byte{1, 2, 3, 4}))
	got := make([]byte, 4)
	must(t, d.q.CopyOut(got, drv.block, 8))
	if string(got) != "\x01\x02\x03\x04" {
		t.Errorf("restored: %v", got)
	}
	for _, addr := range []uintptr{1 << 20, ^uintptr(0) - 999} {
		if _, err := rawOn[uint32](devs[:1], addr, []int{100}); runtime.GOOS == "linux" && err == nil {
			t.Errorf("memory at %#x, which no device knows, is taken for host memory", addr)
		}
	}
	runtime.KeepAlive(a)

	for _, own := range [][]byte{drv.host, heap[byte](400)} {
		addr := uintptr(unsafe.Pointer(unsafe.SliceData(own)))
		h, err := rawOn[uint32](devs, addr, []int{100})
		must(t, err)
		own[0] = 3
		must(t, e.Launch(axpy, Size{100}, In(h), InOut(h), uint32(2), n32(100)))
		if _, err = h.Data(); err != nil || own[0] != 9 {
			t.Errorf("%v, %v", own[0], err)
		}
		must(t, h.h.m.Fill(0, []byte{5, 6}))
		if own[0] != 5 || own[1] != 6 {
			t.Errorf("restored: %v", own[:2])
		}
		runtime.KeepAlive(own)
	}
	if _, err := rawOn[uint32](devs, 0, []int{1}); err == nil {
		t.Error("address 0")
	}
	if _, err := rawOn[uint32](devs, 1<<20+1, []int{1}); err == nil {
		t.Error("an odd address")
	}
}

// TestOpen_ParsesLists parses lists of devices.
func TestOpen_ParsesLists(t *testing.T) {
	two, err := Open(" host, host")
	if err != nil || len(two) != 2 || two[0].Info().ID != "host:0" || two[1].Info().ID != "host:1" {
		t.Fatal(two, err)
	}
	again, err := Open("host:1,discrete")
	if err != nil || again[0] != two[1] || again[1].Info().Shared || !strings.HasPrefix(again[0].String(), "host:1 (") {
		t.Error(again, err)
	}
	for list, want := range map[string]string{
		"abacus": `no device "abacus"; there are`, "host,host:0": "named twice", "host:x": `"host:x"`, "host:-1": `"host:-1"`,
		"cuda:99": `"cuda:99"`, "opencl:9.9": `"opencl:9.9"`, "host,": `no device ""`,
	} {
		if devs, err := Open(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", list, devs, err, want)
		}
	}
	all, err := Open("")
	if err != nil || all[len(all)-1] != two[0] {
		t.Error(all, err)
	}
	devs, err := Devices()
	if err != nil || len(devs) == 0 {
		t.Error(devs, err)
	}
	for name, err := range Missing() {
		if _, e := Open(name); e == nil || err == nil || !strings.Contains(e.Error(), err.Error()) {
			t.Errorf("%s is missing because of %v, but %v", name, err, e)
		}
	}
}

// TestGroup_KeepsLength shows that a group keeps its length when devices are
// lost or replaced.
func TestGroup_KeepsLength(t *testing.T) {
	a, b, c := shared(t, 0), shared(t, 1), shared(t, 2)
	g := NewGroup(a, b, c)
	ids := func() (s string) {
		for i := range g.Len() {
			s += g.At(i).Info().ID[len("host:"):]
		}
		return s
	}
	if ids() != "012" {
		t.Error(ids())
	}
	b.lose(fmt.Errorf("gone: %w", ErrLost))
	if ids() != "022" {
		t.Error(ids())
	}
	g.n = 7 // as restored
	if ids() != "0220020" && ids() != "0220220" && len(ids()) != 7 || strings.Contains(ids(), "1") {
		t.Error(ids())
	}
	if got := Spread(5, []*Device{a, c}); !reflect.DeepEqual(got, []*Device{a, c, a, c, a}) {
		t.Error(got)
	}
}

// BenchmarkLaunch measures a launch without the kernel, compared with the
// driver's own.
func BenchmarkLaunch(b *testing.B) {
	for _, d := range mixed(b) {
		x, y := New[uint32](64), New[uint32](64)
		args := []any{In(x), InOut(y), uint32(1), n32(64)}
		must(b, d.Launch(axpy, Size{64}, args...), d.Finish())
		b.Run(d.Info().ID, func(b *testing.B) {
			for range b.N {
				must(b, d.Launch(axpy, Size{64}, In(x), InOut(y), uint32(1), n32(64)))
			}
			must(b, d.Finish())
		})
		k, err := axpy.on(d, variant{})
		must(b, err)
		p, err := d.drv.Alloc(256)
		must(b, err)
		list := []driver.Arg{{Buffer: p, Len: 256}, {Buffer: p, Len: 256}, {Value: make([]byte, 4)}, {Value: make([]byte, 4)}}
		b.Run(d.Info().ID+" driver", func(b *testing.B) {
			for range b.N {
				must(b, d.q.Launch(k, [3]int{64, 1, 1}, [3]int{}, list))
			}
			must(b, d.q.Finish())
		})
		must(b, p.Free())
	}
}
