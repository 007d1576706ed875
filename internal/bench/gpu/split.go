package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// hostPart is the part of a state that is on the host.
type hostPart struct {
	root   graph.Root
	change func(all bool) error // changes all of it, or one word in each page
}

// inArray keeps the host's part in an array, which Cairn can guard. inVariable
// keeps it in an ordinary variable.
func inArray(words int) hostPart {
	a := device.New[uint32](words)
	return hostPart{graph.Root{Name: "host", Ptr: a}, func(all bool) error {
		return a.Update(func(v []uint32) { changeWords(v, all) })
	}}
}

func inVariable(words int) hostPart {
	v := make([]uint32, words)
	return hostPart{graph.Root{Name: "host", Ptr: &v}, func(all bool) error {
		changeWords(v, all)
		return nil
	}}
}

func changeWords(v []uint32, all bool) {
	if all {
		for i := range v {
			v[i] += uint32(i) * 2654435761
		}
		return
	}
	for i := 0; i < len(v); i += 512 {
		v[i]++
	}
}

// split saves a state of a fixed size that is partly on the host and partly on
// the device, as in figure 2 of Parasyris and Bautista Gomez: first the pause
// alone, in one process without writing, then several processes with files, as
// they do.
func split(ctx context.Context) error {
	d, err := pick()
	if err != nil {
		return err
	}
	bytes := int64(*total * (1 << 30))
	raw, err := measureRaw(d, bytes)
	if err != nil {
		return err
	}
	for _, form := range []struct {
		name  string
		make  func(words int) hostPart
		bound bool
	}{{"arrays that are changed with Update", inArray, true}, {"ordinary variables", inVariable, false}} {
		sh := newSheet(fmt.Sprintf("%g GiB on host and %s, all of it changed; the host's part in %s (medians of %d, %d processors)", *total, d, form.name, *rounds, processors()))
		sh.line("copy of all on the device", fmt.Sprintf("%.3f ms", 1e3*raw.copy), "", true)
		for _, percent := range []int{10, 50, 90} {
			host := form.make(int(bytes) / 100 * percent / 4)
			if err := host.change(true); err != nil {
				return err
			}
			got, err := splitSaves(ctx, vfstest.Discard(d.wrote), "/split", d, bytes/100*int64(100-percent), host)
			if err != nil {
				return err
			}
			what := fmt.Sprintf("%d %% host, %d %% device: ", percent, 100-percent)
			bound := ""
			if form.bound {
				bound = "≤ 1.5"
			}
			sh.line(what+"pause", fmt.Sprintf("%.3f ms = %.2f × the copy", 1e3*got.pause, got.pause/raw.copy), bound, !form.bound || got.pause <= 1.5*raw.copy)
			sh.line(what+"and changed at once", fmt.Sprintf("%.2f ms longer than after the checkpoint", 1e3*got.again), "", true)
		}
		sh.flush()
	}
	return splitProcesses(ctx, d)
}

// splitTimes holds medians.
type splitTimes struct {
	pause float64
	again float64 // additional time to change the host's part before that
}

func splitSaves(ctx context.Context, fsys vfs.FS, path string, d *target, bytes int64, host hostPart) (m splitTimes, err error) {
	s, err := newSaver(fsys, path, d, bytes, host.root)
	if err != nil {
		return m, err
	}
	defer s.close()
	var pauses, again []float64
	for i := range 2 * (*rounds + 1) {
		if err := s.fill(i); err != nil {
			return m, err
		}
		begin := time.Now()
		if err := host.change(false); err != nil {
			return m, err
		}
		alone := time.Since(begin).Seconds()
		early := 0.0
		s.then = nil
		if i%2 == 1 {
			s.then = func() error {
				begin := time.Now()
				defer func() { early = time.Since(begin).Seconds() }()
				return host.change(false)
			}
		}
		t, err := s.save(ctx)
		if err != nil {
			return m, err
		}
		switch {
		case i < 2: // the first ones allocate memory
		case i%2 == 1:
			again = append(again, early-alone)
		default:
			pauses = append(pauses, t.pause)
		}
	}
	return splitTimes{median(pauses), median(again)}, nil
}
