package commcheck

import "slices"

import "github.com/cairnrun/cairn/internal/compiler/ir"

// flows holds the data flows of a program: from which variables a variable is
// computed, anywhere. It reads the program once, and follows every flow once.
type flows struct {
	in    *info
	from  map[*ir.Var][]ir.Expr // expressions that are assigned to a variable
	of    map[*ir.Var][]*ir.Var // results of procedures that become a variable's value by a call
	under map[*ir.Var][]ir.Stmt // innermost conditionals in which the variable is written
	outer map[ir.Stmt]ir.Stmt   // the conditional around a conditional
	conds map[ir.Stmt][]ir.Expr // the conditions of a conditional
	acts  map[ir.Stmt]bool      // it contains a statement that communicates, launches or joins
	seeds map[bool][]ir.Expr    // expressions in conditions (false) and in communications (true)
}

// wanted returns the variables that conditions and communications depend on. It
// adds the variables that communications depend on to decide, and the
// conditionals to decides.
func (in *info) wanted(procs []*ir.Proc) map[*ir.Var]bool {
	f := &flows{in: in, from: map[*ir.Var][]ir.Expr{}, of: map[*ir.Var][]*ir.Var{}, under: map[*ir.Var][]ir.Stmt{},
		outer: map[ir.Stmt]ir.Stmt{}, conds: map[ir.Stmt][]ir.Expr{}, acts: map[ir.Stmt]bool{}, seeds: map[bool][]ir.Expr{}}
	for _, pr := range procs {
		f.read(pr, pr.Body, nil)
	}
	want := map[*ir.Var]bool{}
	f.follow(want, append(f.seeds[false], f.seeds[true]...), false)
	f.follow(in.decide, f.seeds[true], true)
	return want
}

// read records the flows in list. around is the innermost conditional that
// contains list.
func (f *flows) read(pr *ir.Proc, list []ir.Stmt, around ir.Stmt) {
	f.in.work += len(list)
	assigned := func(v *ir.Var, e ir.Expr) {
		if v != nil && e != nil {
			f.from[v] = append(f.from[v], e)
		}
	}
	for _, s := range list {
		inside := around
		if c := conds(s); len(c) > 0 {
			f.outer[s], f.conds[s] = around, c
			f.seeds[false] = append(f.seeds[false], c...)
			inside = s
		}
		if inside != nil {
			if f.in.actsSelf(s) {
				f.acts[inside] = true
			}
			for _, v := range writes(s) {
				if l := f.under[v]; len(l) == 0 || l[len(l)-1] != inside {
					f.under[v] = append(l, inside)
				}
			}
		}
		switch s := s.(type) {
		case *ir.If:
			f.read(pr, s.Then, s)
			f.read(pr, s.Else, s)
		case *ir.Switch:
			for _, c := range s.Cases {
				f.read(pr, c.Body, s)
			}
		case *ir.Loop:
			f.read(pr, s.Init, s)
			f.read(pr, s.Body, s)
			f.read(pr, s.Post, s)
		case *ir.Assign:
			for i, d := range s.Dst {
				if i < len(s.Src) {
					assigned(d, s.Src[i])
				}
			}
		case *ir.Call:
			for _, q := range s.Procs {
				for i, v := range q.Params {
					if i < len(s.Args) {
						assigned(v, s.Args[i])
					}
				}
				for i, v := range s.Results {
					if v != nil && i < len(q.Results) {
						f.of[v] = append(f.of[v], q.Results[i])
					}
				}
			}
			if len(s.Procs) == 0 {
				for _, v := range s.Results {
					for _, e := range s.Args {
						assigned(v, e)
					}
				}
			}
		case *ir.Jump:
			if s.Kind == ir.Return {
				for i, e := range s.Results {
					if i < len(pr.Results) {
						assigned(pr.Results[i], e)
					}
				}
			}
		case *ir.New:
			assigned(s.Dst, s.From)
		case *ir.Put:
			for _, e := range []ir.Expr{s.Of, s.Index, s.Src} {
				assigned(s.Field, e)
			}
		case *ir.Comm:
			f.seeds[true] = append(f.seeds[true], s.Peer, s.Tag, s.Group)
		}
	}
}

// follow adds to found all variables from which those in seeds are computed.
// With deciding set, it also adds the variables of conditions under which
// something communicates or a found variable is written.
func (f *flows) follow(found map[*ir.Var]bool, seeds []ir.Expr, deciding bool) {
	var todo []*ir.Var
	add := func(v *ir.Var) {
		if v != nil && !found[v] {
			found[v] = true
			todo = append(todo, v)
		}
	}
	decides := func(s ir.Stmt) {
		for ; s != nil && !f.in.decides[s]; s = f.outer[s] {
			f.in.decides[s] = true
			for _, e := range f.conds[s] {
				vars(e, add)
			}
		}
	}
	for _, e := range seeds {
		vars(e, add)
	}
	if deciding {
		for s := range f.acts {
			decides(s)
		}
	}
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		f.in.work += 1 + len(f.from[v]) + len(f.of[v]) + len(f.under[v])
		for _, e := range f.from[v] {
			vars(e, add)
		}
		for _, w := range f.of[v] {
			add(w)
		}
		if deciding {
			for _, s := range f.under[v] {
				decides(s)
			}
		}
	}
}

// taint finds the variables that may depend on a rank or a message, through an
// assignment or through the condition around one.
func (in *info) taint(procs []*ir.Proc) {
	t := &tainting{in: in, uses: map[*ir.Var][]use{}, lists: map[ir.Stmt]bool{}, procs: map[*ir.Proc]bool{}}
	for _, pr := range procs {
		ir.Each(pr.Body, func(s ir.Stmt) {
			in.work++
			u := use{s, pr}
			note := func(v *ir.Var) {
				if l := t.uses[v]; v != nil && (len(l) == 0 || l[len(l)-1] != u) {
					t.uses[v] = append(l, u)
				}
			}
			for _, e := range exprs(s) {
				vars(e, note)
			}
			if c, ok := s.(*ir.Call); ok {
				for _, q := range c.Procs {
					for _, v := range q.Results {
						note(v)
					}
				}
			}
			t.look(u)
		})
	}
	for len(t.todo) > 0 {
		v := t.todo[len(t.todo)-1]
		t.todo = t.todo[:len(t.todo)-1]
		in.work += 1 + len(t.uses[v])
		for _, u := range t.uses[v] {
			t.look(u)
		}
	}
}

// tainting is the state of taint.
type tainting struct {
	in    *info
	uses  map[*ir.Var][]use
	todo  []*ir.Var         // varied variables whose uses must still be examined
	lists map[ir.Stmt]bool  // conditionals in which everything that is written is varied
	procs map[*ir.Proc]bool // procedures in which everything that is written is varied
}

// use is a statement, with its procedure.
type use struct {
	s  ir.Stmt
	pr *ir.Proc
}

func (t *tainting) mark(v *ir.Var) {
	if v != nil && !t.in.varied[v] {
		t.in.varied[v] = true
		t.todo = append(t.todo, v)
	}
}

func (t *tainting) bad(e ir.Expr) bool {
	b := ir.Ranked(e)
	vars(e, func(v *ir.Var) { b = b || t.in.varied[v] })
	return b
}

// all marks everything that list and its callees write.
func (t *tainting) all(list []ir.Stmt) {
	ir.Each(list, func(s ir.Stmt) {
		t.in.work++
		if t.lists[s] {
			return
		}
		t.lists[s] = true
		for _, v := range writes(s) {
			t.mark(v)
		}
		if c, ok := s.(*ir.Call); ok {
			for _, q := range c.Procs {
				if !t.procs[q] {
					t.procs[q] = true
					t.all(q.Body)
				}
			}
		}
	})
}

// look marks the variables that one statement computes from marked ones.
func (t *tainting) look(u use) {
	if !t.lists[u.s] {
		if slices.ContainsFunc(conds(u.s), t.bad) {
			t.all([]ir.Stmt{u.s})
		}
	}
	switch s := u.s.(type) {
	case *ir.Assign:
		for i, d := range s.Dst {
			if i < len(s.Src) && t.bad(s.Src[i]) {
				t.mark(d)
			}
		}
	case *ir.Call:
		t.lookCall(s)
	case *ir.New:
		if t.bad(s.From) {
			t.mark(s.Dst)
		}
	case *ir.Put:
		if t.bad(s.Src) || t.bad(s.Of) || t.bad(s.Index) {
			t.mark(s.Field)
		}
	case *ir.Jump:
		for i, e := range s.Results {
			if s.Kind == ir.Return && i < len(u.pr.Results) && t.bad(e) {
				t.mark(u.pr.Results[i])
			}
		}
	case *ir.Comm:
		for _, v := range s.Status {
			t.mark(v)
		}
		// Data is received into variables that are read here, or whose address
		// is taken here. All of them may differ between ranks.
		for _, v := range s.Reads {
			if v != nil && (v.Shared || t.in.shared[v]) {
				t.mark(v)
			}
		}
	}
}

func (t *tainting) lookCall(s *ir.Call) {
	any := false
	for i, e := range s.Args {
		if !t.bad(e) {
			continue
		}
		any = true
		for _, q := range s.Procs {
			if i < len(q.Params) {
				t.mark(q.Params[i])
			}
		}
		// A library may write to variables whose address it gets.
		if u, ok := e.(ir.Unknown); ok {
			for _, v := range u.Vars {
				t.mark(v)
			}
		}
	}
	for i, v := range s.Results {
		if len(s.Procs) == 0 && any {
			t.mark(v)
		}
		for _, q := range s.Procs {
			if i < len(q.Results) && t.in.varied[q.Results[i]] {
				t.mark(v)
			}
		}
	}
}
