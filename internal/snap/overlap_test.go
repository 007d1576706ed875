package snap

import (
	"bytes"
	"sync"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/internal/mem"
)

// TestFreeze_DoesNotWait shows that Freeze does not wait for kernels before it,
// and that frozen data is drained while a kernel behind it runs.
func TestFreeze_DoesNotWait(t *testing.T) {
	dev := host.New(host.Options{Discrete: true, Memory: 64 << 20})
	t.Cleanup(func() { dev.Close() })
	w := newWorld(t, dev)
	gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
	p := must(dev.Build(driver.Source{Go: map[string]func(*driver.Work){"wait": func(w *driver.Work) {
		<-gates[driver.Value[uint32](w, 1)]
		for i, p := 0, w.Args[0]; i < len(p); i++ {
			p[i]++
		}
	}}}))(t)
	wait := must(p.Kernel("wait"))(t)
	data := random(2<<20, 20)
	b := w.buffer(data)
	launch := func(gate uint32) {
		if err := w.q.Launch(wait, [3]int{1, 1, 1}, [3]int{1, 1, 1}, []driver.Arg{whole(b), value(gate)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range data {
		data[i]++
	}
	at := []mem.Extent{{Buffer: b, Len: 2 << 20, Block: 64 << 10}, {Buffer: b, Off: 1, Len: 1 << 20, Block: 64 << 10}}
	for i := range 5 {
		at = append(at, mem.Extent{Buffer: b, Off: int64(i * 100_000), Len: 70_000, Block: 64 << 10})
	}

	launch(0)
	f := must(w.Freeze(at))(t) // it hangs here if Freeze waits for the kernel before it
	launch(1)
	close(gates[0])
	got, sums := read(t, w, f, at) // or here, if reading waits for the kernel behind it
	for i, x := range at {
		if !bytes.Equal(got[i], data[x.Off:][:x.Len]) {
			t.Fatalf("extent %d is not as the kernel before the snapshot left it", i)
		}
	}
	compare(t, "frozen", sums, want(map[driver.Buffer][]byte{b: data}, at))
	f.Close()
	close(gates[1])
}

// TestFreeze_ConcurrentWithEverything does everything at the same time.
func TestFreeze_ConcurrentWithEverything(t *testing.T) {
	onAll(t, func(t *testing.T, w *world) {
		data := random(1<<20, 21)
		b := w.buffer(data)
		all := map[driver.Buffer][]byte{b: data}
		at := []mem.Extent{{Buffer: b, Len: 1 << 20, Block: 64 << 10}}
		for i := range 20 {
			at = append(at, mem.Extent{Buffer: b, Off: int64(i * 48 << 10), Len: 40_000, Block: 64 << 10})
		}
		expect := want(all, at)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				for range 3 {
					sums, err := digests(w.Engine, at)
					if err != nil {
						t.Error(err)
						return
					}
					for i := range sums {
						if sums[i] != expect[i] {
							t.Errorf("digest %d is wrong", i)
						}
					}
				}
			})
			group.Go(func() {
				p := mem.Aligned(1 << 20)
				if err := w.Pin(p); err != nil {
					t.Error(err)
					return
				}
				defer w.Unpin(p)
				for range 3 {
					f, err := w.Freeze(at)
					if err != nil {
						t.Error(err)
						return
					}
					err = f.Read(p, 0, 0)
					if err == nil {
						var wait func() error
						if wait, err = f.Mark(); err == nil {
							err = wait()
						}
					}
					if err != nil || !bytes.Equal(p, data) {
						t.Errorf("a snapshot is wrong (%v)", err)
					}
					f.Close()
				}
			})
			group.Go(func() {
				for range 10 {
					w.Reserve(2 << 20)
					w.Release()
				}
			})
		}
		group.Wait()
	})
}
