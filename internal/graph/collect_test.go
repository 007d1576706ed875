package graph

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// imageText returns everything that a file holds, to compare files.
func imageText(f *file) string {
	var b strings.Builder
	b.Write(f.meta)
	fmt.Fprint(&b, f.regions)
	for _, d := range f.data {
		b.Write(d)
	}
	return b.String()
}

// TestCollect_SameImageTwice collects maps with many kinds of keys repeatedly.
// Unchanged values must give the same bytes; otherwise differential checkpoints
// grow.
func TestCollect_SameImageTwice(t *testing.T) {
	type structKey struct {
		a any
		b int
	}
	pointers := map[*int]int{}
	anys := map[any]int{}
	complexes := map[complex128]int{}
	times := map[time.Time]int{}
	structs := map[structKey]int{}
	var syncInts, syncMixed sync.Map
	for i := range 50 {
		pointers[new(int)] = i
		anys[i] = i
		complexes[complex(float64(i), 0)] = i
		times[time.Unix(int64(i), 0)] = i
		structs[structKey{i, i}] = i
		syncInts.Store(int32(i), i)
		syncMixed.Store(i, i)
		syncMixed.Store(fmt.Sprint(i), i)
	}
	for name, v := range map[string]any{
		"map[*int]int":              &pointers,
		"map[any]int":               &anys,
		"map[complex128]int":        &complexes,
		"map[time.Time]int":         &times,
		"map[structKey]int":         &structs,
		"sync.Map of int32":         &syncInts,
		"sync.Map of int or string": &syncMixed,
	} {
		t.Run(name, func(t *testing.T) {
			first := imageText(save(t, []Root{{"v", v}}, nil))
			for range 5 {
				if imageText(save(t, []Root{{"v", v}}, nil)) != first {
					t.Fatal("two images of the same value differ")
				}
			}
		})
	}
}

// TestCollector_FreesMemory shows that a Collector, which lives as long as the
// run, does not keep memory alive that the program has released.
func TestCollector_FreesMemory(t *testing.T) {
	var c Collector
	freed := make(chan struct{})
	v := new(struct{ p []float64 })
	v.p = make([]float64, 1<<20)
	runtime.SetFinalizer(&v.p[0], func(*float64) { close(freed) })
	if _, err := c.Collect([]Root{{"v", v}}, nil); err != nil {
		t.Fatal(err)
	}
	v.p = nil
	for deadline := time.Now().Add(2 * time.Second); ; {
		runtime.GC()
		select {
		case <-freed:
		case <-time.After(10 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("the Collector keeps memory that the program no longer has")
			}
			continue
		}
		break
	}
	runtime.KeepAlive(&c)
	runtime.KeepAlive(v)
}
