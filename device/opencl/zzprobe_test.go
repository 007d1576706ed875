package opencl

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/device/driver"
	"github.com/cairnrun/cairn/internal/dl"
)

func TestZZProbe(t *testing.T) {
	if os.Getenv("PROBE") == "" {
		var wg sync.WaitGroup
		sem := make(chan bool, 8)
		for _, opts := range []string{
			"base", "finish", "finish,sleep", "finisheach", "noodd", "noodd,finish", "noeven", "finish,sorted", "sorted", "finish,reset", "reset", "finish,relaunch", "finish,closeprogram", "closeprogram",
			"finish,closequeue", "one", "one,finish", "one,noodd", "few", "few,finish", "few,finish,reset", "oddlow", "oddlow,finish", "oddread", "oddread,finish", "nolaunchodd", "nolaunchodd,finish",
			"distinct", "distinct,finish", "bycreate", "bycreate,finish", "byrev", "byrev,finish", "keeptemp", "keeptemp,finish", "keeptemp,finish,reset", "big", "big,finish", "finishodd", "finisheven",
			"noleven", "nocopyback", "nocopyback,finish", "free", "free,finish", "free,closeprogram,finish", "queryrefs,finish", "evenfirst", "evenfirst,finish", "nosubuse", "nosubuse,finish",
		} {
			for try := range 2 {
				c := exec.Command(os.Args[0], "-test.run=^TestZZProbe$")
				c.Env = append(os.Environ(), "PROBE="+opts)
				wg.Go(func() {
					sem <- true
					out, err := c.CombinedOutput()
					<-sem
					s, last := "", ""
					for _, l := range strings.Split(string(out), "\n") {
						if strings.HasPrefix(l, "@") {
							last = l
						}
						if err != nil && (strings.Contains(l, "opencl/") || strings.HasPrefix(l, "SIG") || strings.HasPrefix(l, "PC=") || strings.Contains(l, "_test.go")) && len(s) < 400 {
							s += strings.TrimSpace(l) + " | "
						}
					}
					fmt.Printf("PROBE %-28s %d %v %s %s\n", opts, try, err, last, s)
				})
			}
		}
		wg.Wait()
		return
	}
	o := os.Getenv("PROBE")
	has := func(s string) bool { return strings.Contains(","+o+",", ","+s+",") }
	lib := must(dl.Open(libraries...))(t)
	memInfo := must(lib.Lookup("clGetMemObjectInfo"))(t)
	refs := func(m uintptr) uint64 { return number(memInfo, 0x1105, m) }
	b := newBench(t, false)
	q := b.q.(*queue)
	api := b.d.a
	n := 512
	if has("big") {
		n = 1 << 16
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	a := b.ints(make([]int32, n)...)
	m := a.(*buffer)
	m.users++ // no tidy
	seen := map[region]int{}
	rounds := 170
	if has("few") {
		rounds = 20
	}
	if has("one") {
		rounds = 3
	}
	k := must(b.p.Kernel("add"))(t).(*kernel)
	var temps []uintptr
	release := api.releaseMem
	step := func(round int) {
		lo := rnd.IntN(512)
		if round%2 == 0 {
			lo = lo / 128 * 128
		}
		hi := lo + 1 + rnd.IntN(512-lo)
		v := rnd.Int32N(1000)
		_ = v
		even := round%2 == 0
		switch {
		case !even && has("noodd"), even && has("noeven"):
			return
		case !even && has("oddlow"):
			lo, hi = 1, 5
		case !even && has("oddread"):
			check(t, b.q.CopyOut(make([]byte, 4*(hi-lo)), a, int64(4*lo)))
			return
		case even && has("distinct"):
			lo = (1 + round/2%3) * 128
			hi = lo + 1 + round/2
		case even && has("one"):
			lo, hi = 128, 200
		case even && has("noleven") && lo == 0:
			return
		}
		r := region{int64(4 * lo), int64(4 * (hi - lo))}
		if even && lo > 0 && seen[r] == 0 {
			seen[r] = len(seen) + 1
		}
		if even && lo > 0 && has("nosubuse") {
			m.part("x", r)
			return
		}
		if !even && (has("nolaunchodd") || has("nocopyback") || has("keeptemp")) && lo%128 != 0 {
			mem, err := b.d.alloc("x", r.n)
			check(t, err)
			check(t, q.copyBuffer("x", mem, 0, m.mem, r.off, r.n))
			if !has("nolaunchodd") {
				x, n := mem, int32(hi-lo)
				dl.Call(api.setArg, k.h, 0, 8, uintptr(unsafe.Pointer(&x)))
				dl.Call(api.setArg, k.h, 1, 4, uintptr(unsafe.Pointer(&n)))
				dl.Call(api.setArg, k.h, 2, 4, uintptr(unsafe.Pointer(&n)))
				g, l := uintptr(roundUp(int(n), 8)), uintptr(8)
				if c := int32(dl.Call(api.enqueueKernel, q.h, k.h, 1, 0, uintptr(unsafe.Pointer(&g)), uintptr(unsafe.Pointer(&l)), 0, 0, 0)); c != 0 {
					t.Fatal("launch", c)
				}
			}
			if !has("nocopyback") {
				check(t, q.copyBuffer("x", m.mem, r.off, mem, 0, r.n))
			}
			if has("keeptemp") {
				temps = append(temps, mem)
			} else {
				dl.Call(release, mem)
			}
			dl.Call(api.flush, q.h)
		} else {
			b.launch("add", hi-lo, 0, part(a, r.off, r.n), value(v), value(int32(hi-lo)))
		}
		if has("finisheach") || has("finishodd") && !even || has("finisheven") && even {
			check(t, b.q.Finish())
		}
	}
	if has("evenfirst") {
		for i := 0; i < rounds; i += 2 {
			step(i)
		}
		for i := 1; i < rounds; i += 2 {
			step(i)
		}
	} else {
		for i := range rounds {
			step(i)
		}
	}
	set := func(mem uintptr) {
		dl.Call(api.setArg, k.h, 0, 8, uintptr(unsafe.Pointer(&mem)))
	}
	if has("finish") {
		check(t, b.q.Finish())
	}
	if has("sleep") {
		time.Sleep(200 * time.Millisecond)
	}
	if has("reset") {
		set(m.mem)
	}
	if has("relaunch") {
		b.launch("add", 1, 1, whole(a), value(int32(1)), value(int32(1)))
		check(t, b.q.Finish())
	}
	if has("closeprogram") {
		check(t, b.p.Close())
	}
	if has("closequeue") {
		check(t, b.q.Close())
	}
	type one struct {
		r   region
		mem uintptr
	}
	var list []one
	for r, p := range m.parts {
		list = append(list, one{r, p})
	}
	switch {
	case has("sorted"):
		sort.Slice(list, func(i, j int) bool { return list[i].mem < list[j].mem })
	case has("bycreate"):
		sort.Slice(list, func(i, j int) bool { return seen[list[i].r] < seen[list[j].r] })
	case has("byrev"):
		sort.Slice(list, func(i, j int) bool { return seen[list[i].r] > seen[list[j].r] })
	}
	m.users--
	if !has("free") {
		m.parts = nil
		println("@ parent", refs(m.mem), len(list), "parts")
		for i, p := range list {
			if has("queryrefs") {
				println("@ part", refs(p.mem), refs(m.mem))
			}
			println("@ release", i, "of", len(list), "off", p.r.off, "n", p.r.n, "created", seen[p.r])
			if c := int32(dl.Call(release, p.mem)); c != 0 {
				t.Fatal("release", i, c)
			}
		}
		println("@ released, parent", refs(m.mem))
	}
	for _, x := range temps {
		dl.Call(release, x)
	}
	println("@ end")
	_ = driver.ErrLost
}
