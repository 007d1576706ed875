package commcheck

import (
	"fmt"
	"maps"
	"math/bits"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// set is a set of ranks. A set in a state is never changed, only replaced.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func fullSet(n int) set {
	s := newSet(n)
	for i := 0; i < n; i++ {
		s[i/64] |= 1 << (i % 64)
	}
	return s
}

func (s set) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s set) with(i int) set {
	t := append(set(nil), s...)
	t[i/64] |= 1 << (i % 64)
	return t
}
func (s set) empty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}
func (s set) count() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}
func (s set) zip(t set, f func(a, b uint64) uint64) set {
	u := make(set, len(s))
	for i := range s {
		u[i] = f(s[i], t[i])
	}
	return u
}
func (s set) or(t set) set  { return s.zip(t, func(a, b uint64) uint64 { return a | b }) }
func (s set) sub(t set) set { return s.zip(t, func(a, b uint64) uint64 { return a &^ b }) }
func (s set) is(t set) bool { return s.sub(t).empty() && t.sub(s).empty() }
func (s set) list() (l []int) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			l = append(l, i*64+bits.TrailingZeros64(w))
		}
	}
	return l
}
func (s set) String() string {
	l := s.list()
	b := make([]string, len(l))
	for i, r := range l {
		b[i] = fmt.Sprint(r)
	}
	if len(b) > 8 {
		b = append(b[:8], "…")
	}
	if len(b) == 1 {
		return "rank " + b[0]
	}
	return "ranks " + strings.Join(b, ", ")
}

// places is a persistent set of places: with returns a new one that shares most
// of the old.
type places []*[placesPart / 64]uint64

const placesPart = 1024

func (s places) has(i int) bool {
	return i/placesPart < len(s) && s[i/placesPart] != nil && s[i/placesPart][i%placesPart/64]>>(i%64)&1 != 0
}

func (s places) with(i int) places {
	if s.has(i) {
		return s
	}
	t := make(places, max(len(s), i/placesPart+1))
	copy(t, s)
	var part [placesPart / 64]uint64
	if old := t[i/placesPart]; old != nil {
		part = *old
	}
	part[i%placesPart/64] |= 1 << (i % 64)
	t[i/placesPart] = &part
	return t
}

// or returns the union. It is s itself if t adds nothing.
func (s places) or(t places) places {
	out, own := s, false
	for i, y := range t {
		if y == nil || i < len(s) && s[i] == y {
			continue
		}
		var part [placesPart / 64]uint64
		more := false
		if i < len(s) && s[i] != nil {
			part = *s[i]
		}
		for k, w := range y {
			more = more || w&^part[k] != 0
			part[k] |= w
		}
		if !more {
			continue
		}
		if !own {
			out, own = make(places, max(len(s), len(t))), true
			copy(out, s)
		}
		out[i] = &part
	}
	return out
}

// is reports whether t equals s. t must be s or a union with it.
func (s places) is(t places) bool {
	return len(s) == len(t) && (len(s) == 0 || &s[0] == &t[0])
}

func (s places) list() (l []int) {
	for p, part := range s {
		if part == nil {
			continue
		}
		for i, w := range part {
			for ; w != 0; w &= w - 1 {
				l = append(l, p*placesPart+i*64+bits.TrailingZeros64(w))
			}
		}
	}
	return l
}

// jump is the target of a rank that has jumped and is not live.
type jump struct {
	kind  ir.JumpKind // 0: no target; it waits at the end of a branch
	to    any         // the *ir.Loop or *ir.Switch that it leaves or continues
	depth int         // depth of calls
}

// msg is a send or a receive that is not matched. Sends are stored with their
// source, receives with their destination, in that rank's order.
type msg struct {
	src, dst int // src is -1 for a receive from any rank
	comm     int
	tag      entry
	anyTag   bool
	by       *ir.Comm
}

// req is a request that was not waited for. Without a variable, it is one of
// many. A lost request cannot be waited for any more.
type req struct {
	rank int
	v    *ir.Var
	comm int
	recv bool
	lost bool
	by   *ir.Comm
}

// coll is a collective that some ranks of a group have called.
type coll struct {
	comm, first int // first is the first member of the group
	by          *ir.Comm
	root        entry
	came        set
}

// work is concurrent work.
type work struct {
	group *ir.Var
	ranks set
	by    *ir.Launch
}

// open is a receive from any rank that was matched, although a later send might
// match it, too. since are the places passed after it. They are not safe if
// there is such a send.
type open struct {
	dst, comm int
	tag       entry
	anyTag    bool
	srcs      set
	since     places
	by        *ir.Comm
}

// state is what holds at a place: where the ranks are, the values of variables,
// and the messages in flight. Its slices are replaced, never changed.
type state struct {
	live   set
	jumps  []jump
	env    []vec           // variables of the current procedure
	shared globals         // variables of the program
	facts  map[int32]int64 // symbols that are known to be 0 or 1 on this path; replaced, never changed
	sends  [][]msg         // by source
	recvs  [][]msg         // by destination
	reqs   []req
	colls  []coll
	works  []work
	opens  []open
	heap   pool
	poison *Reason // why nothing can be known any more; all other fields are invalid then
	entry  int32   // for a cached state: the first symbol made in the call
}

func (a *analyzer) clone(s *state) *state {
	a.work += len(s.jumps) + len(s.env) + len(s.sends) + len(s.recvs)
	t := *s
	t.jumps = append([]jump(nil), s.jumps...)
	t.env = append([]vec(nil), s.env...)
	t.sends = append([][]msg(nil), s.sends...)
	t.recvs = append([][]msg(nil), s.recvs...)
	return &t
}

func (s *state) fact(e entry) entry {
	if e.sym > 0 {
		if v, ok := s.facts[e.sym]; ok {
			return num(v)
		}
	}
	return e
}

func (s *state) setFact(sym int32, v int64) {
	m := make(map[int32]int64, len(s.facts)+1)
	maps.Copy(m, s.facts)
	m[sym] = v
	s.facts = m
}

// key returns a text that differs between states that must not be merged. It
// contains everything but values, facts, and the places of open receives.
func (a *analyzer) key(s *state) string {
	if s.poison != nil {
		return "poison"
	}
	var b []byte
	p := func(x ...int) {
		for _, v := range x {
			b = append(strconv.AppendInt(b, int64(v), 10), ',')
		}
	}
	ranks := func(t set) {
		for _, w := range t {
			b = append(strconv.AppendUint(b, w, 16), ';')
		}
	}
	defer func() { a.work += len(b) / 8 }()
	ranks(s.live)
	for r, j := range s.jumps {
		if !s.live.has(r) {
			p(int(j.kind), a.id(j.to), j.depth)
		}
	}
	for _, l := range [][][]msg{s.sends, s.recvs} {
		for r, ms := range l {
			a.steps += len(ms) / 4
			for _, m := range ms {
				p(r, m.src, m.dst, m.comm, int(m.tag.sym), int(m.tag.v), int(truth(m.anyTag).v), a.id(m.by))
			}
		}
		b = append(b, '|')
	}
	a.steps += (len(s.reqs) + len(s.colls) + len(s.opens)) / 4
	for _, q := range s.reqs {
		p(q.rank, a.id(q.v), q.comm, int(truth(q.lost).v), a.id(q.by))
	}
	b = append(b, '|')
	for _, c := range s.colls {
		p(c.comm, c.first, a.id(c.by))
		ranks(c.came)
	}
	b = append(b, '|')
	for _, w := range s.works {
		p(a.id(w.group), a.id(w.by))
		ranks(w.ranks)
	}
	b = append(b, '|')
	for _, o := range s.opens {
		p(o.dst, o.comm, int(o.tag.sym), int(o.tag.v), int(truth(o.anyTag).v), a.id(o.by))
		ranks(o.srcs)
	}
	return string(b)
}

// id numbers objects for keys. Communications on different paths that are equal
// in all that matters must have the same number, so a Comm is numbered by its
// kind, name and group.
func (a *analyzer) id(x any) int {
	switch y := x.(type) {
	case nil:
		return 0
	case *ir.Var:
		if y == nil {
			return 0
		}
	case *ir.Comm:
		x = commClass{y.Kind, y.Name}
	}
	if i, ok := a.ids[x]; ok {
		return i
	}
	a.ids[x] = len(a.ids) + 1
	return len(a.ids)
}

type commClass struct {
	kind ir.CommKind
	name string
}

// mergeVec joins two values. Equal entries stay, and ranks that have the same
// entry on both sides have the same entry in the result.
func (a *analyzer) mergeVec(x, y vec) vec {
	if x == nil || y == nil {
		return nil
	}
	var out vec
	var names map[[2]entry]entry
	for i := range x {
		if x[i] == y[i] {
			continue
		}
		if out == nil {
			out = append(vec(nil), x...)
			names = map[[2]entry]entry{}
		}
		if x[i].isAny() || y[i].isAny() {
			out[i] = anything
			continue
		}
		k := [2]entry{x[i], y[i]}
		f, ok := names[k]
		if !ok {
			f = a.fresh(a.isAssumed(x[i]) || a.isAssumed(y[i]))
			names[k] = f
		}
		out[i] = f
	}
	if out == nil {
		return x
	}
	return out
}

func (a *analyzer) isAssumed(e entry) bool { return e.sym > 0 && a.assumed[e.sym] }

// mergeInto joins t, which has the same key, into s.
func (a *analyzer) mergeInto(s, t *state) {
	if s.poison != nil {
		return
	}
	a.work += len(s.env)
	for i := range s.env {
		s.env[i] = a.mergeVec(s.env[i], t.env[i])
	}
	s.shared = a.globals.join(s.shared, t.shared, func(_ int, x, y vec) vec { return a.mergeVec(x, y) }, &a.work)
	s.facts = commonFacts(s.facts, t.facts)
	s.opens = mergeOpens(s.opens, t.opens)
	a.joinHeap(s, t, false)
}

func commonFacts(x, y map[int32]int64) map[int32]int64 {
	var m map[int32]int64
	for k, v := range x {
		if w, ok := y[k]; ok && v == w {
			if m == nil {
				m = map[int32]int64{}
			}
			m[k] = v
		}
	}
	return m
}

func mergeOpens(x, y []open) []open {
	out := append([]open(nil), x...)
	for i := range out {
		out[i].since = out[i].since.or(y[i].since)
	}
	return out
}

// merge joins states with the same messages in flight. This is the ⨿ of the
// paper: equal communications on different paths count once.
func (a *analyzer) merge(in []*state, at ir.Pos) []*state {
	if len(in) < 2 {
		return in
	}
	var out []*state
	by := map[string]*state{}
	for _, s := range in {
		k := a.key(s)
		if t, ok := by[k]; ok {
			a.mergeInto(t, s)
			continue
		}
		by[k] = s
		out = append(out, s)
	}
	if len(out) > maxStates {
		for _, s := range out {
			a.giveUp(s, Reason{at, "", fmt.Sprintf("is reached in too many different states of communication (%d)", len(out))})
		}
		out = out[:1]
	}
	return out
}

// maxStates is the maximum number of separate states at one place.
const maxStates = 16
