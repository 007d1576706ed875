package commcheck_test

import (
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"math"
	"math/bits"
	"math/rand"
	"sort"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// machine runs a program on n ranks, one step at a time in any order. It
// records what is needed to find out afterwards which messages crossed which
// places.
type machine struct {
	p       *ir.Program
	n       int
	rng     *rand.Rand
	uniform bool
	seed    int64

	ranks []*rankRun
	msgs  []*message
	colls map[string]*collective
	comms []map[int][]int // by communicator: the members of each rank's group
	left  int             // steps until it is stopped
}

const never = math.MaxInt

// message and the types below have the times, by each rank's own clock, between
// which they are in flight.
type message struct {
	src, dst, comm, tag int
	sent, got           int
	taken               bool
}

type posted struct {
	src, comm, tag int // -1: any
	m              *message
}

type span struct {
	rank, from, to int
}

type collective struct {
	members []int
	at      map[int]int
	colour  map[int][2]int
	made    int
}

type request struct {
	p  *posted // nil for a send
	at *span
}

type rankRun struct {
	m      *machine
	rank   int
	clock  int
	posts  []*posted
	spans  []*span
	visits map[any][]int
	order  map[string]int // number of collectives in each communicator so far
	shared map[*ir.Var]int
	reqs   map[*ir.Var]*request
	loose  map[int][]*request // requests without a variable, by communicator
	works  map[*ir.Var][]*span
	yield  func(bool) bool
	ended  bool // it ended at the program's end, not by force
	early  bool // it ended before its last statement
	draws  int
	void   bool           // a condition was not what the analysis assumes
	objs   map[int]*thing // objects by reference
	made   map[ir.Pos]int // number of objects by place of creation
	depth  int
	proc   *ir.Proc
}

// thing is an object.
type thing struct{ fields map[slot]int }

type slot struct {
	f *ir.Var
	i int
}

// object returns the object that a reference leads to. If there is none, the
// rank ends.
func (k *rankRun) object(ref int) *thing {
	o := k.objs[ref]
	if o == nil {
		panic(stop{})
	}
	return o
}

// stop is panicked with to end a rank at once.
type stop struct{}

type place struct {
	s    any
	body bool
}

func run(p *ir.Program, n int, seed int64, uniform bool) *machine {
	m := &machine{p: p, n: n, rng: rand.New(rand.NewSource(seed)), seed: seed, uniform: uniform,
		colls: map[string]*collective{}, left: 3000 * n}
	world := map[int][]int{}
	for r := 0; r < n; r++ {
		for q := 0; q < n; q++ {
			world[r] = append(world[r], q)
		}
	}
	m.comms = []map[int][]int{world}
	next := make([]func() (bool, bool), n)
	for r := 0; r < n; r++ {
		k := &rankRun{m: m, rank: r, visits: map[any][]int{}, order: map[string]int{}, shared: map[*ir.Var]int{},
			reqs: map[*ir.Var]*request{}, loose: map[int][]*request{}, works: map[*ir.Var][]*span{},
			objs: map[int]*thing{}, made: map[ir.Pos]int{}}
		m.ranks = append(m.ranks, k)
		nx, end := iter.Pull(func(yield func(bool) bool) {
			defer func() {
				if e := recover(); e != nil {
					if _, ok := e.(stop); !ok {
						panic(e)
					}
				}
			}()
			k.yield = yield
			k.call(p.Main, nil)
			k.ended = true
		})
		defer end()
		next[r] = nx
	}
	live := make([]int, n)
	for i := range live {
		live[i] = i
	}
	// Prefer some ranks for a while, so that they run ahead.
	fav, stuck := 0, 0
	for len(live) > 0 && stuck < 20*n && m.left > 0 {
		i := m.rng.Intn(len(live))
		if m.rng.Intn(8) == 0 {
			fav = m.rng.Intn(n)
		}
		for j, r := range live {
			if r == fav && m.rng.Intn(3) > 0 {
				i = j
			}
		}
		moved, ok := next[live[i]]()
		if !ok {
			live = append(live[:i], live[i+1:]...)
			stuck = 0
			continue
		}
		if moved {
			stuck = 0
		} else {
			stuck++
			fav = m.rng.Intn(n)
		}
	}
	return m
}

// pause lets other ranks run. moved says whether this rank has done something
// since the last pause.
func (k *rankRun) pause(moved bool) {
	k.m.left--
	if k.m.left <= 0 || !k.yield(moved) {
		panic(stop{})
	}
}

func (k *rankRun) tick() int { k.clock++; return k.clock }

func (k *rankRun) visit(p place) { k.visits[p] = append(k.visits[p], k.tick()) }

type flow struct {
	kind  ir.JumpKind
	label string
}

func (k *rankRun) call(p *ir.Proc, args []int) []int {
	k.depth++
	if k.depth > 50 {
		panic(stop{})
	}
	old := k.proc
	k.proc = p
	env := map[*ir.Var]int{}
	for i, v := range p.Params {
		k.set(env, v, args[i])
	}
	k.list(p.Body, env)
	out := make([]int, len(p.Results))
	for i, v := range p.Results {
		out[i] = k.get(env, v)
	}
	k.proc = old
	k.depth--
	return out
}

func (k *rankRun) get(env map[*ir.Var]int, v *ir.Var) int {
	if v.Global {
		return k.shared[v]
	}
	return env[v]
}

func (k *rankRun) set(env map[*ir.Var]int, v *ir.Var, x int) {
	if v == nil {
		return
	}
	if v.Global {
		k.shared[v] = x
	} else {
		env[v] = x
	}
}

func (k *rankRun) list(l []ir.Stmt, env map[*ir.Var]int) flow {
	for _, s := range l {
		if f := k.stmt(s, env); f.kind != 0 {
			return f
		}
	}
	return flow{}
}

func (k *rankRun) stmt(s ir.Stmt, env map[*ir.Var]int) flow {
	k.visit(place{s: s})
	if k.m.rng.Intn(4) == 0 {
		k.pause(true)
	}
	switch s := s.(type) {
	case *ir.Assign:
		vals := make([]int, len(s.Dst))
		for i, e := range s.Src {
			vals[i] = k.eval(e, env)
		}
		for i, d := range s.Dst {
			k.set(env, d, vals[i])
		}
	case *ir.Call:
		args := make([]int, len(s.Args))
		for i, e := range s.Args {
			args[i] = k.eval(e, env)
		}
		var out []int
		switch len(s.Procs) {
		case 0:
			for range s.Results {
				out = append(out, k.draw(s.Pos, args))
			}
		default:
			p := s.Procs[k.draw(s.Pos, nil)%len(s.Procs)]
			out = k.call(p, args)
		}
		for i, v := range s.Results {
			k.set(env, v, out[i])
		}
	case *ir.New:
		o := &thing{map[slot]int{}}
		if s.From != nil {
			maps.Copy(o.fields, k.object(k.eval(s.From, env)).fields)
		}
		k.made[s.Pos]++
		ref := 1000*s.Pos.Line + 100 + k.made[s.Pos]
		k.objs[ref] = o
		k.set(env, s.Dst, ref)
	case *ir.Put:
		o, x := k.object(k.eval(s.Of, env)), slot{f: s.Field}
		if s.Index != nil {
			x.i = k.eval(s.Index, env)
		}
		o.fields[x] = k.eval(s.Src, env)
	case *ir.If:
		yes := k.eval(s.Cond, env) != 0
		if s.Assume != 0 && yes != (s.Assume > 0) {
			for _, x := range k.m.ranks {
				x.void = true
			}
			panic(stop{})
		}
		if yes {
			return k.list(s.Then, env)
		}
		return k.list(s.Else, env)
	case *ir.Switch:
		tag := k.eval(s.Tag, env)
		body := []ir.Stmt(nil)
		found := false
		for _, c := range s.Cases {
			for _, v := range c.Values {
				if !found && k.eval(v, env) == tag {
					body, found = c.Body, true
				}
			}
		}
		for _, c := range s.Cases {
			if c.Values == nil && !found {
				body = c.Body
			}
		}
		f := k.list(body, env)
		if f.kind == ir.Break && f.label == "" {
			return flow{}
		}
		return f
	case *ir.Loop:
		k.list(s.Init, env)
		for first := true; ; first = false {
			if !(s.AtEnd && first) && s.Cond != nil && k.eval(s.Cond, env) == 0 {
				return flow{}
			}
			k.pause(true)
			k.visit(place{s: s, body: true})
			f := k.list(s.Body, env)
			mine := f.label == "" || f.label == s.Label
			switch {
			case f.kind == ir.Break && mine:
				return flow{}
			case f.kind == ir.Continue && mine, f.kind == 0:
			default:
				return f
			}
			k.list(s.Post, env)
		}
	case *ir.Jump:
		switch s.Kind {
		case ir.Exit:
			panic(stop{})
		case ir.Return:
			k.early = k.early || k.depth == 1
			vals := make([]int, len(s.Results))
			for i, e := range s.Results {
				vals[i] = k.eval(e, env)
			}
			for i := range vals {
				k.set(env, k.proc.Results[i], vals[i])
			}
		}
		return flow{s.Kind, s.Label}
	case *ir.Comm:
		k.comm(s, env)
	case *ir.Launch:
		w := &span{k.rank, k.tick(), never}
		k.spans = append(k.spans, w)
		k.works[s.Group] = append(k.works[s.Group], w)
	case *ir.Join:
		if s.Group != nil {
			for _, w := range k.works[s.Group] {
				w.to = k.tick()
			}
			k.works[s.Group] = nil
		}
	}
	return flow{}
}

func (k *rankRun) comm(c *ir.Comm, env map[*ir.Var]int) {
	m := k.m
	comm := 0
	if c.Group != nil {
		comm = k.eval(c.Group, env)
	}
	if comm < 0 || comm >= len(m.comms) {
		panic(stop{})
	}
	group := m.comms[comm][k.rank]
	peer := func(any bool) int {
		if c.Peer == nil {
			return -1
		}
		p := k.eval(c.Peer, env)
		if p == -1 && any {
			return -1
		}
		if p < 0 || p >= len(group) {
			panic(stop{})
		}
		return group[p]
	}
	tag := -1
	if c.Tag != nil {
		tag = k.eval(c.Tag, env)
	}
	k.pause(true)
	switch c.Kind {
	case ir.Send, ir.StartSend, ir.Sendrecv:
		dst := peer(false)
		if dst < 0 {
			panic(stop{})
		}
		x := &message{src: k.rank, dst: dst, comm: comm, tag: max(tag, 0), sent: k.tick(), got: never}
		m.msgs = append(m.msgs, x)
		for i, p := range m.ranks[dst].posts {
			if p.fits(x) {
				p.m, x.taken = x, true
				m.ranks[dst].posts = append(m.ranks[dst].posts[:i:i], m.ranks[dst].posts[i+1:]...)
				break
			}
		}
		if c.Kind == ir.StartSend {
			k.begin(c.Request, comm, nil)
		}
	case ir.Recv, ir.StartRecv:
		p := &posted{src: peer(true), comm: comm, tag: tag}
		k.post(p)
		if c.Kind == ir.StartRecv {
			k.begin(c.Request, comm, p)
			break
		}
		for p.m == nil {
			k.pause(false)
		}
		p.m.got = k.tick()
	case ir.Wait:
		var wait []*request
		if c.Request != nil {
			if q := k.reqs[c.Request]; q != nil {
				wait = append(wait, q)
			}
			delete(k.reqs, c.Request)
		} else {
			wait = k.loose[comm]
			k.loose[comm] = nil
		}
		for _, q := range wait {
			for q.p != nil && q.p.m == nil {
				k.pause(false)
			}
			q.at.to = k.tick()
			if q.p != nil {
				q.p.m.got = q.at.to
			}
		}
	case ir.Probe:
	case ir.Collective:
		k.collective(c, comm, group, env)
		return
	}
	for _, v := range c.Status {
		k.set(env, v, m.rng.Intn(3))
	}
}

func (k *rankRun) collective(c *ir.Comm, comm int, group []int, env map[*ir.Var]int) {
	m := k.m
	if len(group) == 0 {
		panic(stop{})
	}
	name := fmt.Sprint(comm, group)
	at := fmt.Sprint(name, k.order[name])
	k.order[name]++
	g := m.colls[at]
	if g == nil {
		g = &collective{members: group, at: map[int]int{}, colour: map[int][2]int{}}
		m.colls[at] = g
	}
	g.at[k.rank] = k.tick()
	if strings.Contains(c.Name, "split") {
		x := [2]int{k.eval(c.Peer, env), 0}
		if c.Tag != nil {
			x[1] = k.eval(c.Tag, env)
		}
		g.colour[k.rank] = x
	}
	// The root of a broadcast continues at once. The others wait for all ranks,
	// which MPI allows.
	if c.Name == "bcast" && c.Peer != nil && k.eval(c.Peer, env) == k.rank {
		return
	}
	for len(g.at) < len(group) {
		k.pause(false)
	}
	if len(c.Status) == 0 {
		return
	}
	switch c.Name {
	case "split", "dup":
		if g.made == 0 {
			members := map[int][]int{}
			for _, r := range group {
				for _, q := range group {
					if c.Name == "dup" || g.colour[r][0] >= 0 && g.colour[r][0] == g.colour[q][0] {
						members[r] = append(members[r], q)
					}
				}
				l := members[r]
				sort.SliceStable(l, func(i, j int) bool { return g.colour[l[i]][1] < g.colour[l[j]][1] })
			}
			m.comms = append(m.comms, members)
			g.made = len(m.comms) - 1
		}
		k.set(env, c.Status[0], g.made)
	case "allreduce":
		h := fnv.New32()
		fmt.Fprint(h, at, m.seed)
		k.set(env, c.Status[0], int(h.Sum32()%3))
	default:
		k.set(env, c.Status[0], m.rng.Intn(3))
	}
}

func (k *rankRun) begin(v *ir.Var, comm int, p *posted) {
	q := &request{p, &span{k.rank, k.clock, never}}
	k.spans = append(k.spans, q.at)
	if v != nil {
		k.reqs[v] = q
	} else {
		k.loose[comm] = append(k.loose[comm], q)
	}
}

func (p *posted) fits(x *message) bool {
	return x.comm == p.comm && (p.src < 0 || p.src == x.src) && (p.tag < 0 || p.tag == x.tag)
}

// post posts a receive, or takes a message that is there, from any permitted
// source.
func (k *rankRun) post(p *posted) {
	k.tick()
	var can []*message
	seen := map[int]bool{}
	for _, x := range k.m.msgs {
		if x.dst == k.rank && !x.taken && p.fits(x) && !seen[x.src] {
			seen[x.src] = true
			can = append(can, x)
		}
	}
	if len(can) == 0 {
		k.posts = append(k.posts, p)
		return
	}
	p.m = can[k.m.rng.Intn(len(can))]
	p.m.taken = true
}

// draw returns a value that the program cannot know. It is a function of where
// it is made, of its inputs and, unless all ranks have the same, of the rank.
func (k *rankRun) draw(at ir.Pos, of []int) int {
	h := fnv.New32()
	fmt.Fprint(h, at.Line, " ", of, k.m.seed)
	if !k.m.uniform {
		k.draws++
		fmt.Fprint(h, " ", k.rank, k.draws, k.m.seed%3 == 0 && k.rank > 0)
	}
	return int(h.Sum32()>>3) % 3
}

func (k *rankRun) eval(e ir.Expr, env map[*ir.Var]int) int {
	b := func(x bool) int {
		if x {
			return 1
		}
		return 0
	}
	switch e := e.(type) {
	case ir.Const:
		return int(e.Value)
	case ir.Ref:
		return k.get(env, e.Var)
	case ir.Rank, ir.Size:
		var g ir.Expr
		r, isRank := e.(ir.Rank)
		if isRank {
			g = r.Group
		} else {
			g = e.(ir.Size).Group
		}
		c := 0
		if g != nil {
			c = k.eval(g, env)
		}
		if c < 0 || c >= len(k.m.comms) {
			panic(stop{})
		}
		members := k.m.comms[c][k.rank]
		if !isRank {
			return len(members)
		}
		for i, q := range members {
			if q == k.rank {
				return i
			}
		}
		panic(stop{})
	case ir.Unknown:
		var of []int
		for _, v := range e.Vars {
			of = append(of, min(k.get(env, v), 100)) // all references count as the same value
		}
		return k.draw(ir.Pos{}, of)
	case ir.Field:
		o, x := k.object(k.eval(e.Of, env)), slot{f: e.Var}
		if e.Index != nil {
			x.i = k.eval(e.Index, env)
		}
		return o.fields[x]
	case ir.Unary:
		x := k.eval(e.X, env)
		switch e.Op {
		case ir.Len:
			return bits.Len64(uint64(x))
		case ir.Not:
			return b(x == 0)
		case ir.Neg:
			return -x
		}
		return ^x
	case ir.Binary:
		x := k.eval(e.X, env)
		if e.Op == ir.AndAlso && x == 0 {
			return 0
		}
		if e.Op == ir.OrElse && x != 0 {
			return 1
		}
		y := k.eval(e.Y, env)
		switch e.Op {
		case ir.Add:
			return x + y
		case ir.Sub:
			return x - y
		case ir.Mul:
			return x * y
		case ir.Div, ir.Rem:
			if y == 0 {
				panic(stop{})
			}
			if e.Op == ir.Div {
				return x / y
			}
			return x % y
		case ir.And:
			return x & y
		case ir.Or:
			return x | y
		case ir.Xor:
			return x ^ y
		case ir.Eq:
			return b(x == y)
		case ir.Ne:
			return b(x != y)
		case ir.Lt:
			return b(x < y)
		case ir.Le:
			return b(x <= y)
		case ir.Gt:
			return b(x > y)
		case ir.Ge:
			return b(x >= y)
		case ir.AndAlso, ir.OrElse:
			return b(y != 0)
		case ir.Wrap: // integers of 2 bits, unsigned or signed
			if y > 0 {
				return x & 3
			}
			return (x&3 ^ 2) - 2
		}
	}
	panic(fmt.Sprintf("no value of %T", e))
}

// crossed returns what is in flight when all ranks pass p for the k-th time,
// and whether they do pass it.
func (m *machine) crossed(p place, k int) (what string, all bool) {
	cut := make([]int, m.n)
	for r, x := range m.ranks {
		if k >= len(x.visits[p]) {
			return "", false
		}
		cut[r] = x.visits[p][k]
	}
	for _, x := range m.msgs {
		if (x.sent < cut[x.src]) != (x.got < cut[x.dst]) {
			return fmt.Sprintf("a message from %d to %d with tag %d", x.src, x.dst, x.tag), true
		}
	}
	for _, x := range m.ranks {
		for _, s := range x.spans {
			if s.from < cut[s.rank] && s.to > cut[s.rank] {
				return fmt.Sprintf("a request or work on rank %d", s.rank), true
			}
		}
	}
	for _, g := range m.colls {
		in := 0
		for _, r := range g.members {
			if t, ok := g.at[r]; ok && t < cut[r] {
				in++
			}
		}
		if in != 0 && in != len(g.members) {
			return "a collective", true
		}
	}
	return "", true
}
