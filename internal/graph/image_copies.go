package graph

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// Copies makes an image of roots that are ready at different times. Add copies
// some of them as they are. Image joins the copies with the other roots, as
// these are then.
//
// The roots of one Add keep their aliasing. Memory that the roots of two Adds
// lead to, or those of an Add and the others, would be in the image twice, as
// it was at two times: Add and Image return a SharedError for it. Only memory
// that never changes is in the image twice: strings, and values in interfaces.
// An error of the standard library is in it once (see binary_stdvars.go).
//
// The zero value is ready. One goroutine at a time may use it.
type Copies struct {
	roots   []Root
	plans   []*plan // of the roots
	index   map[string]int
	added   []bool // by root
	list    []copied
	claimed claimed

	// What a copy needs to know of those before it.
	regions uint32             // how many they have
	dyn     []*plan            // their dynamic types
	std     map[uintptr]uint32 // errors of the standard library → their regions

	c       Collector
	buffers map[bufferKey][]byte // used again
}

// copied is the image of some roots.
type copied struct {
	img   *Image
	roots []int  // their indices in Copies.roots
	base  uint32 // the number of its first region in the joined image
}

type bufferKey struct {
	root string
	nth  int // which of the root's pools
}

// SharedError reports memory that a root shares with one that Add has copied.
type SharedError struct {
	Name    string // the root
	Path    string // the reference to the memory, beginning with Name
	Earlier string // the root that was added before
}

func (e *SharedError) Error() string {
	via := ""
	if e.Path != e.Name {
		via = fmt.Sprintf(", through %s", e.Path)
	}
	return fmt.Sprintf("variable %q shares memory with variable %q%s, and %q was copied earlier: a checkpoint would hold that memory as it was at two different times; add the two in one call of Add", e.Name, e.Earlier, via, e.Earlier)
}

// Begin forgets all copies. The next image is one of these roots.
func (k *Copies) Begin(roots []Root) error {
	k.Drop()
	ps, err := rootPlans(roots)
	if err != nil {
		return err
	}
	k.roots, k.plans, k.added = roots, ps, make([]bool, len(roots))
	k.index = make(map[string]int, len(roots))
	for i, r := range roots {
		k.index[r.Name] = i
	}
	return nil
}

// Drop forgets all copies. It keeps their memory for the next ones.
func (k *Copies) Drop() {
	k.roots, k.plans, k.index, k.added, k.list = nil, nil, nil, nil, nil
	k.regions, k.dyn, k.std, k.claimed = 0, nil, nil, claimed{}
}

// Add copies roots. After an error nothing of them is copied. The images that
// were made before the last Begin become invalid.
func (k *Copies) Add(names []string, env *Env) error {
	var which []int
	for _, name := range names {
		i, ok := k.index[name]
		switch {
		case !ok:
			return fmt.Errorf("no variable %.100q is protected", name)
		case k.added[i] || slices.Contains(which, i):
			return fmt.Errorf("variable %.100q was added already", name)
		}
		which = append(which, i)
	}
	slices.Sort(which)
	k.c.early = true
	img, err := k.c.collect(k.pick(which), env, k)
	if err != nil {
		return err
	}
	total := uint64(k.regions)
	for _, r := range img.Regions {
		total += uint64(r.Repeat)
	}
	if total >= noObject {
		return fmt.Errorf("the state has more than %d regions", uint32(noObject))
	}
	if err := k.copyPools(img); err != nil {
		return err
	}
	for _, v := range img.Vars[len(which):] {
		if r, ok := stdVar(v.Name); ok && r.ptr != nil {
			if k.std == nil {
				k.std = make(map[uintptr]uint32)
			}
			k.std[uintptr(r.ptr)] = k.regions + uint32(v.Region)
		}
	}
	k.list = append(k.list, copied{img, which, k.regions})
	k.regions = uint32(total)
	k.dyn = slices.Clone(k.c.dyn)
	k.claimed.add()
	for _, i := range which {
		k.added[i] = true
	}
	return nil
}

func (k *Copies) pick(which []int) []Root {
	out := make([]Root, len(which))
	for n, i := range which {
		out[n] = k.roots[i]
	}
	return out
}

// Image collects the roots that were not added, with c, and joins them with the
// copies. The pools of copies are valid until the first Add after the next
// Begin, the others until c collects again.
func (k *Copies) Image(c *Collector, env *Env) (*Image, error) {
	var rest []int
	for i, added := range k.added {
		if !added {
			rest = append(rest, i)
		}
	}
	img, err := c.collect(k.pick(rest), env, k)
	if err != nil {
		return nil, err
	}
	out := &Image{Vars: make([]Var, len(k.roots)), Types: img.Types}
	all := append(slices.Clone(k.list), copied{img, rest, k.regions})
	type origin struct{ copy, pool int }
	var from []origin
	for n, p := range all {
		for i, v := range p.img.Vars {
			v.Region += uint64(p.base)
			if v.Data > 0 {
				v.Data += uint64(p.base)
			}
			if i < len(p.roots) {
				out.Vars[p.roots[i]] = v
			} else {
				out.Vars = append(out.Vars, v) // see stdVars
			}
		}
		for i := range p.img.Pools {
			from = append(from, origin{n, i})
		}
	}
	// The order does not depend on that of the calls of Add.
	root := func(o origin) int { return all[o.copy].roots[all[o.copy].img.Pools[o.pool].Var] }
	slices.SortStableFunc(from, func(a, b origin) int { return root(a) - root(b) })
	at := make(map[origin]int32, len(from))
	for n, o := range from {
		pool := all[o.copy].img.Pools[o.pool]
		pool.Var = root(o)
		if pool.Owner >= 0 {
			pool.Owner = all[o.copy].roots[pool.Owner]
		}
		out.Pools = append(out.Pools, pool)
		at[o] = int32(n)
	}
	for n, p := range all {
		for _, r := range p.img.Regions {
			if r.Pool >= 0 {
				r.Pool = at[origin{n, int(r.Pool)}]
			}
			out.Regions = append(out.Regions, r)
		}
		for _, v := range p.img.Names {
			v.Pool = int(at[origin{n, v.Pool}])
			out.Names = append(out.Names, v)
		}
	}
	return out, nil
}

// copyPools copies the bytes of all pools, with several goroutines.
func (k *Copies) copyPools(img *Image) error {
	const step = 4 << 20
	type job struct{ dst, src []byte }
	var jobs []job
	nth := make(map[int]int)
	for i := range img.Pools {
		pool := &img.Pools[i]
		nth[pool.Var]++
		if pool.Form.Size == 0 {
			continue
		}
		if pool.Pointers { // encoded into memory of its own
			pool.Copy = pool.Pieces[0]
			continue
		}
		pool.Copy = k.buffer(bufferKey{img.Vars[pool.Var].Name, nth[pool.Var]}, int(pool.Bytes()))
		free := pool.Copy
		for n, src := range pool.Pieces {
			if pool.Remote {
				var err error
				if src, err = hostBytes(src); err != nil {
					return fmt.Errorf("%s: %w", img.Vars[pool.Var].Name, err)
				}
			}
			dst := free[:len(src):len(src)]
			free = free[len(src):]
			pool.Pieces[n] = dst
			for len(src) > 0 {
				n := min(step, len(src))
				jobs = append(jobs, job{dst[:n], src[:n]})
				dst, src = dst[n:], src[n:]
			}
		}
	}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	work := func() {
		err := mem.Readable(func() error {
			for n := int(next.Add(1)) - 1; n < len(jobs); n = int(next.Add(1)) - 1 {
				mem.Copy(jobs[n].dst, jobs[n].src)
			}
			return nil
		})
		if err != nil {
			failed.Store(&err)
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 8, len(jobs)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	if p := failed.Load(); p != nil {
		return *p
	}
	return nil
}

// hostBytes returns the bytes that p, addresses of a mem.Remote, stands for.
func hostBytes(p []byte) ([]byte, error) {
	r, at := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(p)))
	if r == nil {
		return nil, errors.New("its memory is gone: it was freed")
	}
	return r.Host(at, at+int64(len(p)))
}

// buffer returns memory for a copy: that of the last one, if it is large
// enough.
func (k *Copies) buffer(key bufferKey, n int) []byte {
	buf := k.buffers[key]
	if cap(buf) < n {
		buf = mem.Aligned(n)
		if k.buffers == nil {
			k.buffers = make(map[bufferKey][]byte)
		}
		k.buffers[key] = buf
	}
	return buf[:n]
}

// tooEarly returns why an Add must not copy what refers to the file at ptr, or
// "".
func (c *Collector) tooEarly(ptr unsafe.Pointer) string {
	if f := *(*osFile)(ptr); !c.early || f == nil || f == os.Stderr {
		return ""
	}
	return "Commit saves the position of the file, which may not fit what is buffered for it now: do not add the variable, Commit copies it"
}
