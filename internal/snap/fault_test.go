package snap

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/faulty"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/zeebo/xxh3"
)

// TestEngine_Faults makes every call of the device fail, in all ways. Results
// without an error must be right, errors must say what happened, nothing may
// hang, and all memory of the device must be freed.
func TestEngine_Faults(t *testing.T) {
	for _, kind := range []faulty.Kind{faulty.Lost, faulty.Memory, faulty.Late} {
		for n := 1; ; n++ {
			under := host.New(host.Options{Discrete: true, Memory: 64 << 20})
			f := &faulty.Fault{At: n, Kind: kind}
			what := func() string { return fmt.Sprintf("%v at call %d, %s", kind, n, f.Name(n)) }
			err, wrong := checkpoint(faulty.Wrap(under, f))
			if wrong != nil {
				t.Fatalf("%s: %v", what(), wrong)
			}
			if left, ferr := under.FreeMemory(); ferr != nil || left != 64<<20 {
				t.Fatalf("%s: %d bytes were not given back (%v)", what(), 64<<20-left, ferr)
			}
			under.Close()
			if !f.Fired() {
				if err != nil {
					t.Fatalf("without a fault: %v", err)
				}
				if kind != faulty.Memory || n > f.Calls() {
					break
				}
				continue
			}
			switch {
			case kind == faulty.Memory && err != nil && !errors.Is(err, mem.ErrNoRoom) && !errors.Is(err, errProgram),
				kind == faulty.Lost && err == nil && n < f.Calls(),
				kind != faulty.Memory && err != nil && !errors.Is(err, driver.ErrLost):
				t.Fatalf("%s: %v", what(), err)
			}
		}
	}
}

var errProgram = errors.New("the program's own memory")

// checkpoint does what a checkpoint does, several times. wrong is set if bytes
// or digests are wrong although there was no error.
func checkpoint(dev driver.Device) (err, wrong error) {
	var cleanups []func() error
	defer func() {
		for i := len(cleanups) - 1; i >= 0; i-- {
			if cerr := cleanups[i](); err == nil {
				err = cerr
			}
		}
	}()
	later := func(f func() error) { cleanups = append(cleanups, f) }

	q, err := dev.NewQueue()
	if err != nil {
		return err, nil
	}
	later(q.Close)
	e, err := New(dev, q)
	if err != nil {
		return err, nil
	}
	later(e.Close)
	later(q.Finish)
	data := random(320<<10+100, 11)
	b, err := dev.Alloc(int64(len(data)))
	if err != nil {
		return fmt.Errorf("%w: %w", errProgram, err), nil
	}
	later(b.Free)
	if err := q.CopyIn(b, 0, data); err != nil {
		return err, nil
	}
	staging := mem.Aligned(256 << 10)
	if err := e.Pin(staging); err != nil {
		return err, nil
	}
	all := map[driver.Buffer][]byte{b: data}
	check := func(got []xxh3.Uint128, at []mem.Extent) error {
		for i, d := range want(all, at) {
			if i >= len(got) || got[i] != d {
				return fmt.Errorf("digest of block %d of %v", i, at)
			}
		}
		return nil
	}
	one := []mem.Extent{{Buffer: b, Len: int64(len(data)), Block: 64 << 10}}
	many := []mem.Extent{
		{Buffer: b, Off: 16, Len: 70_000, Block: 64 << 10}, {Buffer: b, Off: 200_000, Len: 64 << 10, Block: 64 << 10},
		{Buffer: b, Off: 7, Len: 1000, Block: 64 << 10}, {Buffer: b, Off: 100, Len: 100, Block: 64 << 10},
	}
	e.Reserve(200_000)
	var first error
	note := func(err error) bool { // reports whether to continue with the same object
		if first == nil {
			first = err
		}
		return err == nil
	}
	for _, at := range [][]mem.Extent{one, many} {
		if sums, err := digests(e, at); note(err) {
			if wrong := check(sums, at); wrong != nil {
				return nil, wrong
			}
		}
		if wrong := diffing(e, at[0], data, staging, note); wrong != nil {
			return nil, wrong
		}
		for _, open := range []func([]mem.Extent) (mem.Frozen, error){e.Freeze, e.Live} {
			f, err := open(at)
			if !note(err) {
				continue
			}
			for i, x := range at {
				sums, err := f.Digests(i, 0, x.Blocks())
				if note(err) {
					if wrong := check(sums, at[i:i+1]); wrong != nil {
						f.Close()
						return nil, wrong
					}
				}
				n := min(x.Len, 256<<10)
				if !note(f.Read(staging[:n], i, x.Len-n)) {
					continue
				}
				wait, err := f.Mark()
				if note(err) && note(wait()) && !bytes.Equal(staging[:n], data[x.Off+x.Len-n:][:n]) {
					f.Close()
					return nil, fmt.Errorf("bytes of extent %d of %v", i, at)
				}
			}
			f.Close()
		}
	}
	return first, nil
}

// diffing diffs an extent, without a short last block. Some of its blocks have
// changed.
func diffing(e *Engine, at mem.Extent, data, staging []byte, note func(error) bool) (wrong error) {
	at.Len -= at.Len % at.Block
	for changed := range 4 {
		v, err := e.Diff(at, 2)
		if !note(err) {
			continue
		}
		sums := want(map[driver.Buffer][]byte{at.Buffer.(driver.Buffer): data}, []mem.Extent{at})
		expect := v.Expect()
		copy(expect, sums)
		for i := range min(changed, len(expect)) {
			expect[len(expect)-1-i].Hi++
		}
		if changed == 1 && len(expect) > 1 {
			v.Close()
			continue
		}
		if !note(v.Start()) {
			continue
		}
		list, f, err := v.Wait()
		if len(expect) > 2 && changed > 2 && errors.Is(err, mem.ErrNoRoom) {
			continue
		}
		if !note(err) {
			continue
		}
		if len(list) != min(changed, len(expect)) || (f == nil) != (len(list) == 0) {
			return fmt.Errorf("%d blocks of %d came through the diff, not %d", len(list), len(expect), changed)
		}
		for n, b := range list {
			p := staging[:at.Block]
			if b.Digest != sums[b.Block] {
				return fmt.Errorf("digest of block %d", b.Block)
			}
			if !note(f.Read(p, 0, int64(n)*at.Block)) {
				break
			}
			wait, err := f.Mark()
			if !note(err) || !note(wait()) {
				break
			}
			if !bytes.Equal(p, data[at.Off+int64(b.Block)*at.Block:][:at.Block]) {
				return fmt.Errorf("bytes of block %d", b.Block)
			}
		}
		if f != nil {
			f.Close()
		}
	}
	return nil
}
