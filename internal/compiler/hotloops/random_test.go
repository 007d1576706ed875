package hotloops

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// maker makes random programs from bytes. Zeros follow after the last byte.
type maker struct {
	data      []byte
	procs     []*ir.Proc
	line      int
	recursive bool // procedures may call earlier ones
	plain     bool // no conditionals and no dynamic calls
}

func (m *maker) pick(n int) int {
	if len(m.data) == 0 {
		return 0
	}
	b := int(m.data[0])
	m.data = m.data[1:]
	return b % n
}

func makeProgram(data []byte, recursive, plain bool) *ir.Program {
	m := &maker{data: data, recursive: recursive, plain: plain}
	n := 1 + m.pick(6)
	for i := range n {
		m.procs = append(m.procs, &ir.Proc{Name: fmt.Sprint("p", i), Known: i == 0 || m.pick(8) != 7})
	}
	for i, p := range m.procs {
		if p.Known {
			p.Body = m.body(i, 0)
		}
	}
	return &ir.Program{Procs: m.procs, Main: m.procs[0]}
}

func (m *maker) callee(from int) *ir.Proc {
	if m.recursive {
		return m.procs[m.pick(len(m.procs))]
	}
	if from == len(m.procs)-1 {
		return nil
	}
	return m.procs[from+1+m.pick(len(m.procs)-from-1)]
}

func (m *maker) body(from, depth int) (body []ir.Stmt) {
	for n := m.pick(5); n > 0 && m.line < 300; n-- {
		m.line++
		at := ir.Pos{File: "r", Line: m.line}
		reads := make([]*ir.Var, m.pick(4))
		for i := range reads {
			reads[i] = &ir.Var{Name: "x"}
		}
		kind := m.pick(12)
		if depth > 5 {
			kind = 0
		}
		switch kind {
		default:
			body = append(body, &ir.Assign{Pos: at, Reads: reads, Dst: []*ir.Var{nil}, Src: []ir.Expr{ir.Unknown{}}})
		case 1, 2, 3:
			l := &ir.Loop{Pos: at, Reads: reads, Trip: m.pick(6) - 1, AtEnd: m.pick(4) == 3, Cond: ir.Unknown{}}
			if !l.AtEnd {
				l.Reads = nil
			}
			l.Body = m.body(from, depth+1)
			body = append(body, l)
		case 4, 5:
			c := &ir.Call{Pos: at, Name: "lib", Reads: reads}
			if p := m.callee(from); p != nil {
				c.Name, c.Procs = p.Name, []*ir.Proc{p}
			}
			body = append(body, c)
		case 6:
			c := &ir.Call{Pos: at, Name: "dyn", Reads: reads}
			for n := 1 + m.pick(3); n > 0 && !m.plain; n-- {
				if p := m.callee(from); p != nil {
					c.Procs = append(c.Procs, p)
				}
			}
			body = append(body, c)
		case 7:
			if !m.plain {
				body = append(body, &ir.If{Pos: at, Cond: ir.Unknown{}, Then: m.body(from, depth+1), Else: m.body(from, depth+1)})
			}
		case 8:
			s := &ir.Switch{Pos: at}
			for n := m.pick(3); n > 0; n-- {
				s.Cases = append(s.Cases, ir.Case{Values: []ir.Expr{ir.Const{Value: int64(n)}}, Body: m.body(from, depth+1)})
			}
			body = append(body, s)
		case 9:
			body = append(body, &ir.Comm{Pos: at, Kind: ir.Send, Name: "send", Reads: reads})
		case 10:
			body = append(body, &ir.Kernel{Pos: at, Reads: reads})
		case 11:
			body = append(body, &ir.Jump{Pos: at, Kind: ir.Break}, &ir.Decl{Pos: at})
		}
	}
	return body
}

// oracle counts by following every call, and finds the population by walking
// every path. It works for programs without recursion.
type oracle struct {
	s, a            map[*ir.Loop]int
	reached, inside map[*ir.Loop]bool
}

func (o *oracle) walk(body []ir.Stmt, inLoop bool) (s, a int) {
	for _, x := range body {
		switch x := x.(type) {
		case *ir.Assign:
			s, a = s+1, a+len(x.Reads)
		case *ir.Comm:
			s, a = s+1, a+len(x.Reads)
		case *ir.Kernel:
			s, a = s+1, a+len(x.Reads)
		case *ir.If:
			s1, a1 := o.walk(x.Then, inLoop)
			s2, a2 := o.walk(x.Else, inLoop)
			s, a = s+(s1+s2)/2, a+(a1+a2)/2
		case *ir.Switch:
			for _, c := range x.Cases {
				s1, a1 := o.walk(c.Body, inLoop)
				s, a = s+s1+1, a+a1
			}
		case *ir.Call:
			bs, ba := 1, len(x.Reads)
			for i, p := range x.Procs {
				s1, a1 := 1, len(x.Reads)
				if p.Known {
					s1, a1 = o.walk(p.Body, inLoop)
				}
				if i == 0 || s1*a1 > bs*ba || s1*a1 == bs*ba && (s1 > bs || s1 == bs && a1 > ba) {
					bs, ba = s1, a1
				}
			}
			s, a = s+bs, a+ba
		case *ir.Loop:
			o.reached[x] = true
			o.inside[x] = o.inside[x] || inLoop
			if x.Trip == 0 && !x.AtEnd {
				s++
				continue
			}
			s1, a1 := o.walk(x.Body, inLoop || x.Trip < 0 || x.Trip > 1)
			if x.AtEnd {
				a1 += len(x.Reads)
			}
			s, a = s+s1+1, a+a1
			o.s[x], o.a[x] = s1+1, a1
		}
	}
	return s, a
}

// facts returns the results that must not depend on the order of procedures.
func facts(r *Report) map[string]string {
	f := map[string]string{"": fmt.Sprint(r.S, r.A, r.Comm, r.Kernels, r.Population)}
	for _, v := range r.Choose(Options{}).Loops {
		f[v.Pos.String()] = fmt.Sprint(v.S, v.A, v.H, v.Comm, v.Kernels, v.Out, v.Chosen, v.Why)
	}
	return f
}

func checkRandom(t *testing.T, data []byte) {
	// Programs without recursion are compared with the oracle.
	p := makeProgram(data, false, false)
	o := &oracle{map[*ir.Loop]int{}, map[*ir.Loop]int{}, map[*ir.Loop]bool{}, map[*ir.Loop]bool{}}
	s, a := o.walk(p.Main.Body, false)
	r := Measure(p)
	if int(r.S) != s || int(r.A) != a {
		t.Fatalf("s %v and a %v, not %d and %d: program %x", r.S, r.A, s, a, data)
	}
	if len(r.Loops) != len(o.reached) {
		t.Fatalf("%d loops are reached, not %d: program %x", len(r.Loops), len(o.reached), data)
	}
	for _, l := range r.Loops {
		in := o.reached[l.Stmt] && !o.inside[l.Stmt] && o.a[l.Stmt] > 0 && (l.Stmt.Trip < 0 || l.Stmt.Trip > 1)
		if in != (l.Out == "") {
			t.Fatalf("line %d: %q: program %x", l.Line, l.Out, data)
		}
		if o.s[l.Stmt] > 0 && (int(l.S) != o.s[l.Stmt] || int(l.A) != o.a[l.Stmt]) {
			t.Fatalf("line %d has s %v and a %v: program %x", l.Line, l.S, l.A, data)
		}
	}

	for _, plain := range []bool{false, true} {
		p = makeProgram(data, true, plain)
		r = Measure(p)
		before := facts(r)
		c := r.Choose(Options{})
		if len(c.Ranked) > 0 && (c.Kept < 1 || c.Kept > c.Candidates || c.Candidates > len(c.Ranked)) {
			t.Fatalf("%d and %d of %d", c.Kept, c.Candidates, len(c.Ranked))
		}
		if !slices.IsSortedFunc(c.Ranked, func(a, b *Loop) int { return cmp.Compare(a.H, b.H) }) {
			t.Fatal("not sorted")
		}
		if k := c.Kept; k > 0 && k < len(c.Ranked) && c.Ranked[k].H == c.Ranked[k-1].H {
			t.Fatalf("of loops that are alike only some are chosen:\n%s", c.Curve())
		}
		for _, l := range r.Loops {
			if l.Out == "" && math.IsInf(l.H, 0) {
				t.Fatalf("line %d has infinite h: program %x", l.Line, data)
			}
			if plain && (l.S > r.S || l.A > r.A || l.H < 0 || l.Comm > r.Comm || l.Kernels > r.Kernels) || math.IsNaN(l.H) {
				t.Fatalf("line %d has more than the program: %+v: program %x", l.Line, l, data)
			}
			if l.Outer != nil && (l.S > l.Outer.S && plain || l.Out == "" && l.Outer.real) {
				t.Fatalf("line %d has more than the loop around it: program %x", l.Line, data)
			}
		}
		shuffle(p, rand.New(rand.NewPCG(1, uint64(len(data)))))
		if after := facts(Measure(p)); !maps.Equal(before, after) {
			t.Fatalf("another order makes other results:\n%v\n%v\nprogram %x", before, after, data)
		}
	}
}

// shuffle changes the order of procedures and of the callees of dynamic calls.
func shuffle(p *ir.Program, r *rand.Rand) {
	swap := reflect.Swapper(p.Procs)
	r.Shuffle(len(p.Procs), swap)
	var walk func(body []ir.Stmt)
	walk = func(body []ir.Stmt) {
		for _, s := range body {
			switch s := s.(type) {
			case *ir.Call:
				r.Shuffle(len(s.Procs), reflect.Swapper(s.Procs))
			case *ir.If:
				walk(s.Then)
				walk(s.Else)
			case *ir.Loop:
				walk(s.Body)
			case *ir.Switch:
				for _, c := range s.Cases {
					walk(c.Body)
				}
			}
		}
	}
	for _, q := range p.Procs {
		walk(q.Body)
	}
}

// TestMeasure_RandomPrograms does what FuzzMeasure does, with fixed random
// programs.
func TestMeasure_RandomPrograms(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		data := make([]byte, 20+r.IntN(400))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		checkRandom(t, data)
	}
}

// FuzzMeasure measures random programs and checks the result.
func FuzzMeasure(f *testing.F) {
	f.Add([]byte("some bytes of which a program is made; the more the better, as it ends with zeros"))
	f.Fuzz(checkRandom)
}

// FuzzThresholds gives arbitrary curves to Triangle and Cluster. What they keep
// is within the curve, and does not depend on its scale.
func FuzzThresholds(f *testing.F) {
	f.Add([]byte{1, 200, 3, 3, 50})
	f.Fuzz(func(t *testing.T, data []byte) {
		var curve []float64
		sum := 0.0
		for _, b := range data {
			sum += float64(b) / 64
			curve = append(curve, sum)
		}
		n := Triangle(curve) + 1
		if n > len(curve) || n < 1 && len(curve) > 0 {
			t.Fatalf("knee %d of %v", n, curve)
		}
		keep, share := Cluster(curve[:n])
		if keep > n || keep < 1 && n > 0 || share < 0 || share > 1 {
			t.Fatalf("%d and %v of %v", keep, share, curve)
		}
		if keep < n && curve[keep] == curve[keep-1] {
			t.Fatalf("the gap is between equals: %d of %v", keep, curve)
		}
		// Scale and offset must not matter.
		for i := range curve {
			curve[i] = curve[i]*4 + 8
		}
		if again, _ := Cluster(curve[:n]); again != keep || Triangle(curve)+1 != n {
			t.Fatalf("%d and %d, not %d and %d, of a scaled curve", again, Triangle(curve)+1, keep, n)
		}
	})
}

// TestMeasure_LinearTime measures large programs, in which following calls
// would take forever, and checks how often statements are visited.
func TestMeasure_LinearTime(t *testing.T) {
	const n = 4000 // procedures of 5 statements
	shapes := map[string]func(i int) []int{
		"deep":      func(i int) []int { return []int{i + 1, i + 1} },
		"wide":      func(i int) []int { return []int{2*i + 1, 2*i + 2} },
		"tangled":   func(i int) []int { return []int{i + 1, i + 1 + i*7919%n} },
		"recursive": func(i int) []int { return []int{(i + 1) % n, i * 7919 % n} },
	}
	for name, shape := range shapes {
		procs := make([]*ir.Proc, n)
		for i := range procs {
			procs[i] = &ir.Proc{Name: fmt.Sprint("p", i), Known: true}
		}
		stmts := 0
		for i, p := range procs {
			x := []*ir.Var{{Name: "x"}}
			at := func(k int) ir.Pos { return ir.Pos{File: "l", Line: 10*i + k} }
			call := func(k, to int) ir.Stmt {
				stmts++
				if to >= n {
					return &ir.Assign{Pos: at(k), Reads: x}
				}
				return &ir.Call{Pos: at(k), Procs: procs[to : to+1], Reads: x}
			}
			to := shape(i)
			p.Body = []ir.Stmt{
				&ir.Loop{Pos: at(1), Trip: -1, Body: []ir.Stmt{&ir.Assign{Pos: at(2), Reads: x}}},
				&ir.If{Pos: at(3), Then: []ir.Stmt{call(4, to[0])}},
				call(5, to[1]),
			}
			stmts += 3
		}
		r := Measure(&ir.Program{Procs: procs, Main: procs[0]})
		if r.visits > 2*stmts {
			t.Errorf("%s: %d statements are looked at %d times", name, stmts, r.visits)
		}
		c := r.Choose(Options{})
		if stmts != 5*n || len(r.Loops) != n || r.Population != n || len(c.Chosen()) == 0 || math.IsNaN(r.S) || math.IsInf(r.S, 0) {
			t.Errorf("%s: %d of %d loops, %d chosen, s %v", name, r.Population, len(r.Loops), len(c.Chosen()), r.S)
		}
		for _, l := range r.Loops {
			if math.IsNaN(l.H) || math.IsInf(l.H, 0) {
				t.Errorf("%s: h is %v", name, l.H)
				break
			}
		}
	}
}
