package graph

import (
	"cmp"
	"slices"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// claimed is the memory that Copies has copied. Nothing that is collected later
// may refer to it.
type claimed struct {
	claims claims
	far    []farClaim
	keep   []unsafe.Pointer // keeps the memory: nothing else gets its address
	fresh  []claim          // of the Add in progress; see add
	last   []farClaim       // …
}

// claim is memory that belongs to a root.
type claim struct {
	lo, hi uintptr
	root   int // index in Copies.roots
}

// farClaim is a claim on memory elsewhere. If the memory was freed, another one
// may have its address.
type farClaim struct {
	claim
	memory mem.Remote
}

// check returns a SharedError if what c has found overlaps memory that was
// claimed before. If c collects for Add, it notes what c has found.
func (m *claimed) check(c *Collector) error {
	m.fresh, m.last = m.fresh[:0], m.last[:0]
	for i, it := range c.items.S {
		p := c.plan(it)
		if it.alone() || it.via() == viaString || p.size == 0 || isStdError(it.addr, p) {
			continue
		}
		if err := m.see(c, i, it.addr, c.end(it), p.base.remote); err != nil {
			return err
		}
	}
	for _, s := range c.made.slots { // maps and channels are not pieces, only their stand-ins are
		if s.id == 0 {
			continue
		}
		if v := c.items.S[s.val].via(); v == viaMap || v == viaChan {
			if err := m.see(c, int(s.val), s.addr, s.addr+1, false); err != nil {
				return err
			}
		}
	}
	for i := range c.cells.pages.S { // an Add has no cells
		r := &c.cells.pages.S[i]
		if r.n == 0 || r.id&1 != 0 {
			continue
		}
		var err error
		size := c.cells.kinds[r.kind].p.size
		c.cells.each(r, func(_ int, addr uintptr) {
			if o := m.claims.find(addr, addr+size); o != nil {
				err = c.shared(-1, o)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// see checks and notes the memory of item i.
func (m *claimed) see(c *Collector, i int, lo, hi uintptr, remote bool) error {
	if !remote {
		if o := m.claims.find(lo, hi); o != nil {
			return c.shared(i, o)
		}
		if c.early {
			m.fresh = append(m.fresh, claim{lo, hi, c.copyRoot(i)})
		}
		return nil
	}
	r, _ := mem.FindRemote(address(lo))
	for n := range m.far {
		if o := &m.far[n]; o.memory == r && o.lo < hi && lo < o.hi {
			return c.shared(i, &o.claim)
		}
	}
	if c.early {
		m.last = append(m.last, farClaim{claim{lo, hi, c.copyRoot(i)}, r})
	}
	return nil
}

// add claims what the last check has noted.
func (m *claimed) add() {
	for _, c := range m.fresh {
		m.keep = append(m.keep, address(c.lo))
	}
	m.claims.add(m.fresh)
	m.far = append(m.far, m.last...)
	m.fresh, m.last = nil, nil
}

// copyRoot returns the index in Copies.roots of the root that leads to item i.
func (c *Collector) copyRoot(i int) int { return c.copies.index[c.roots[c.rootOf(i)].Name] }

// shared returns the error for item i, which overlaps o.
func (c *Collector) shared(i int, o *claim) error {
	if !c.trace { // collect again, to find the path; nothing is a cell then
		c.needsTrace = true
		return &SharedError{}
	}
	names := c.copies.roots
	return &SharedError{names[c.copyRoot(i)].Name, c.itemPath(int32(i)), names[o.root].Name}
}

// claims finds claims by their addresses. It has levels, each sorted and
// without overlaps, so that it may grow by one at a time.
type claims struct{ levels [][]claim }

// add adds a list of claims. They overlap none that are there, but perhaps each
// other. The list belongs to claims then.
func (s *claims) add(list []claim) {
	slices.SortFunc(list, func(a, b claim) int { return cmp.Compare(a.lo, b.lo) })
	n := 0
	for _, c := range list {
		if n > 0 && (c.lo < list[n-1].hi || c.lo == list[n-1].hi && c.root == list[n-1].root) {
			list[n-1].hi = max(list[n-1].hi, c.hi)
			continue
		}
		list[n] = c
		n++
	}
	if n == 0 {
		return
	}
	list = list[:n]
	for k := len(s.levels) - 1; k >= 0 && len(s.levels[k]) <= 2*len(list); k-- {
		list = mergeClaims(s.levels[k], list)
		s.levels = s.levels[:k]
	}
	s.levels = append(s.levels, list)
}

func mergeClaims(a, b []claim) []claim {
	out := make([]claim, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].lo < b[0].lo {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// find returns a claim that overlaps the memory from lo to hi, or nil.
func (s *claims) find(lo, hi uintptr) *claim {
	for _, level := range s.levels {
		i, _ := slices.BinarySearchFunc(level, lo, func(c claim, lo uintptr) int {
			if c.hi <= lo {
				return -1
			}
			return 1
		})
		if i < len(level) && level[i].lo < hi {
			return &level[i]
		}
	}
	return nil
}

// isStdError reports whether the value of p at addr is one that stdVars names.
func isStdError(addr uintptr, p *plan) bool {
	s := stdErrorSet()
	return addr >= s.lo && addr < s.hi && s.at[addr] == p
}

type stdErrorTable struct {
	span
	at map[uintptr]*plan
}

var stdErrorSet = sync.OnceValue(func() *stdErrorTable {
	s := &stdErrorTable{span{^uintptr(0), 0}, make(map[uintptr]*plan)}
	for i := range stdErrors {
		if r, ok := stdVarAt(i); ok {
			at := uintptr(r.ptr)
			s.lo, s.hi, s.at[at] = min(s.lo, at), max(s.hi, at+1), r.p
		}
	}
	return s
})
