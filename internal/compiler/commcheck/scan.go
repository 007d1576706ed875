package commcheck

import (
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// info is the result of scan for a program. It does not depend on the number of
// ranks.
type info struct {
	places  map[any]int          // number of each place: a statement, or bodyOf a loop
	stmts   []ir.Pos             // position of each place
	index   map[*ir.Var]int      // variables whose values matter
	shared  map[*ir.Var]bool     // variables whose value is never known
	varied  map[*ir.Var]bool     // variables in shared that may depend on ranks or messages
	owner   map[*ir.Var]*ir.Proc // procedure of a variable in index
	globals int                  // how many variables in index belong to the program
	size    map[*ir.Proc]int     // how many variables in index a procedure has
	procs   map[*ir.Proc]*procInfo
	decide  map[*ir.Var]bool // variables that communications depend on
	decides map[ir.Stmt]bool // conditionals and loops that communications depend on
	work    int              // see Result.Work

	types  map[string]bool      // types of objects that are followed
	fields map[string][]*ir.Var // fields of these types that matter
	raced  map[string]bool      // types whose objects concurrent work makes or writes to
}

// procInfo describes a procedure and all its callees.
type procInfo struct {
	acts   bool // it communicates, launches or joins, or its source is unknown
	talks  bool // it communicates, or may communicate
	gotos  bool // it has a goto, or a jump whose target is not a loop or switch
	writes map[*ir.Var]bool
	calls  map[*ir.Proc]bool
	puts   map[*ir.Var]bool // fields that it writes to
	news   map[string]bool  // types of objects that it makes
	looks  map[*ir.Var]look // how the procedure itself uses its parameters
}

func vars(e ir.Expr, f func(*ir.Var)) { ir.Vars(e, f) }

func conds(s ir.Stmt) []ir.Expr {
	switch s := s.(type) {
	case *ir.If:
		return []ir.Expr{s.Cond}
	case *ir.Loop:
		return []ir.Expr{s.Cond}
	case *ir.Switch:
		out := []ir.Expr{s.Tag}
		for _, c := range s.Cases {
			out = append(out, c.Values...)
		}
		return out
	}
	return nil
}

func scan(p *ir.Program) *info {
	in := &info{places: map[any]int{}, index: map[*ir.Var]int{}, shared: map[*ir.Var]bool{}, varied: map[*ir.Var]bool{},
		owner: map[*ir.Var]*ir.Proc{}, size: map[*ir.Proc]int{}, procs: map[*ir.Proc]*procInfo{}, decide: map[*ir.Var]bool{}, decides: map[ir.Stmt]bool{},
		types: map[string]bool{}, fields: map[string][]*ir.Var{}, raced: map[string]bool{}}
	procs := p.Procs
	if p.Main != nil {
		procs = append([]*ir.Proc{p.Main}, procs...)
	}
	var launched []*ir.Proc
	var add func(pr *ir.Proc)
	var order, after []*ir.Proc // in the order of the first visit, and in that of completion
	add = func(pr *ir.Proc) {
		if pr == nil || in.procs[pr] != nil {
			return
		}
		pi := &procInfo{writes: map[*ir.Var]bool{}, calls: map[*ir.Proc]bool{}, puts: map[*ir.Var]bool{}, news: map[string]bool{}, looks: map[*ir.Var]look{}}
		in.procs[pr] = pi
		order = append(order, pr)
		defer func() { after = append(after, pr) }()
		if !known(pr) {
			pi.acts, pi.talks = true, true
			return
		}
		pi.gotos = irregular(pr.Body, nil, 0)
		ir.Each(pr.Body, func(s ir.Stmt) {
			in.place(s, s.At())
			for _, v := range writes(s) {
				pi.writes[v] = true
			}
			switch s := s.(type) {
			case *ir.Loop:
				in.place(bodyOf{s}, s.Pos)
			case *ir.Call:
				for _, q := range s.Procs {
					pi.calls[q] = true
					add(q)
				}
			case *ir.Comm:
				pi.acts, pi.talks = true, true
			case *ir.Launch:
				pi.acts = true
				launched = append(launched, s.Proc)
				if s.Proc == nil {
					pi.talks = true
				} else {
					add(s.Proc)
				}
			case *ir.Join:
				pi.acts = true
			case *ir.New:
				pi.news[s.Type] = true
			case *ir.Put:
				pi.puts[s.Field] = true
			}
		})
	}
	for _, pr := range procs {
		add(pr)
	}
	// Callees come before callers, so that one pass is enough without
	// recursion.
	for again := true; again; {
		again = false
		for _, pr := range after {
			pi := in.procs[pr]
			for q := range pi.calls {
				in.work++
				qi := in.procs[q]
				if qi.acts && !pi.acts || qi.talks && !pi.talks {
					pi.acts, pi.talks, again = pi.acts || qi.acts, pi.talks || qi.talks, true
				}
				in.work += len(qi.writes) + len(qi.puts) + len(qi.news)
				again = spread(qi.writes, pi.writes) || again
				again = spread(qi.puts, pi.puts) || again
				again = spread(qi.news, pi.news) || again
			}
		}
	}
	for _, pr := range launched {
		if pr != nil {
			for v := range in.procs[pr].writes {
				if v.Global {
					in.shared[v] = true
				}
			}
			for t := range in.procs[pr].news {
				in.raced[t] = true
			}
			for f := range in.procs[pr].puts {
				in.raced[f.Type] = true
			}
		}
	}
	in.relevant(order)
	in.look(order)
	in.taint(order)
	return in
}

// spread adds the elements of from to to, and reports whether any was new.
func spread[K comparable](from, to map[K]bool) (more bool) {
	for k := range from {
		if !to[k] {
			to[k], more = true, true
		}
	}
	return more
}

func known(pr *ir.Proc) bool { return pr.Known || pr.Body != nil }

func (in *info) place(key any, at ir.Pos) {
	if _, ok := in.places[key]; !ok {
		in.places[key] = len(in.stmts)
		in.stmts = append(in.stmts, at)
	}
}

// writes returns the variables that s itself may change.
func writes(s ir.Stmt) (out []*ir.Var) {
	add := func(vs []*ir.Var) {
		for _, v := range vs {
			if v != nil {
				out = append(out, v)
			}
		}
	}
	switch s := s.(type) {
	case *ir.Decl:
		add(s.Vars)
	case *ir.Assign:
		add(s.Dst)
	case *ir.Call:
		add(s.Results)
		for _, p := range s.Procs {
			add(p.Params)
			add(p.Results)
		}
	case *ir.Comm:
		add(s.Status)
		add([]*ir.Var{s.Request})
	case *ir.New:
		add([]*ir.Var{s.Dst})
	case *ir.Put:
		add([]*ir.Var{s.Field})
	}
	return out
}

// irregular reports whether list has a goto, or a jump whose target is not a
// loop or switch around it.
func irregular(list []ir.Stmt, labels []string, depth int) bool {
	for _, s := range list {
		switch s := s.(type) {
		case *ir.If:
			if irregular(s.Then, labels, depth) || irregular(s.Else, labels, depth) {
				return true
			}
		case *ir.Switch:
			for _, c := range s.Cases {
				if irregular(c.Body, labels, depth+1) {
					return true
				}
			}
		case *ir.Loop:
			if irregular(s.Init, labels, depth) || irregular(s.Post, labels, depth) ||
				irregular(s.Body, append(labels[:len(labels):len(labels)], s.Label), depth+1) {
				return true
			}
		case *ir.Jump:
			switch s.Kind {
			case ir.Goto:
				return true
			case ir.Break, ir.Continue:
				if s.Label == "" {
					if depth == 0 || s.Kind == ir.Continue && len(labels) == 0 {
						return true
					}
					continue
				}
				found := false
				for _, l := range labels {
					found = found || l == s.Label
				}
				if !found {
					return true
				}
			case ir.Return, ir.Exit:
			default:
				return true
			}
		}
	}
	return false
}

// relevant finds the variables whose values matter: those from which
// conditions, peers, tags and communicators are computed. It also finds those
// that communications depend on, by value or by a condition, for decide.
func (in *info) relevant(procs []*ir.Proc) {
	want := in.wanted(procs)
	var globals []*ir.Var
	locals := map[*ir.Proc][]*ir.Var{}
	defer func() {
		// Variables of different procedures have the same numbers, because a
		// state holds the variables of one procedure only, and those of the
		// program.
		for i, v := range globals {
			in.index[v] = i
		}
		in.globals = len(globals)
		for _, pr := range procs {
			for _, v := range locals[pr] {
				if !in.shared[v] {
					in.index[v] = in.size[pr]
					in.size[pr]++
				}
			}
		}
	}()
	for _, pr := range procs {
		mine := func(v *ir.Var) {
			if v == nil || in.shared[v] && !v.Shared {
				return
			}
			if v.Shared {
				if v.Type != "" && want[v] && !slices.Contains(in.fields[v.Type], v) {
					in.types[v.Type] = true
					in.fields[v.Type] = append(in.fields[v.Type], v)
				}
				in.shared[v] = true
				return
			}
			if !want[v] {
				return
			}
			switch owner := in.owner[v]; {
			case owner == pr || owner != nil && v.Global:
			case owner != nil: // it is used by several procedures
				in.shared[v] = true
			default:
				in.owner[v] = pr
				if v.Global {
					globals = append(globals, v)
				} else {
					locals[pr] = append(locals[pr], v)
				}
			}
		}
		seen := map[*ir.Var]bool{}
		once := func(list ...*ir.Var) {
			for _, v := range list {
				if !seen[v] {
					seen[v] = true
					mine(v)
				}
			}
		}
		read := func(list ...ir.Expr) {
			for _, e := range list {
				vars(e, func(v *ir.Var) { once(v) })
			}
		}
		once(pr.Params...)
		once(pr.Results...)
		ir.Each(pr.Body, func(s ir.Stmt) {
			read(conds(s)...)
			switch s := s.(type) {
			case *ir.Decl:
				once(s.Vars...)
			case *ir.Assign:
				once(s.Dst...)
				read(s.Src...)
			case *ir.Call:
				once(s.Results...)
				read(s.Args...)
			case *ir.Jump:
				read(s.Results...)
			case *ir.Comm:
				once(s.Status...)
				once(s.Request)
				read(s.Peer, s.Tag, s.Group)
			case *ir.New:
				once(s.Dst)
				read(s.From)
			case *ir.Put:
				once(s.Field)
				read(s.Of, s.Index, s.Src)
			case *ir.Launch:
				once(s.Group)
			case *ir.Join:
				once(s.Group)
			}
		})
	}
}

// actsSelf reports whether s, without nested statements, may communicate,
// launch or join.
func (in *info) actsSelf(s ir.Stmt) bool {
	switch s := s.(type) {
	case *ir.Comm, *ir.Launch, *ir.Join:
		return true
	case *ir.Call:
		return slices.ContainsFunc(s.Procs, func(p *ir.Proc) bool { return in.procs[p].acts })
	}
	return false
}

// acts reports the same for a list with all nested statements.
func (in *info) acts(list []ir.Stmt) (yes bool) {
	ir.Each(list, func(s ir.Stmt) { in.work++; yes = yes || in.actsSelf(s) })
	return yes
}

// written returns the variables that list and its callees may change.
func (in *info) written(list []ir.Stmt) map[*ir.Var]bool {
	m := map[*ir.Var]bool{}
	ir.Each(list, func(s ir.Stmt) {
		in.work++
		for _, v := range writes(s) {
			m[v] = true
		}
		if c, ok := s.(*ir.Call); ok {
			for _, p := range c.Procs {
				for v := range in.procs[p].writes {
					m[v] = true
				}
			}
		}
	})
	return m
}
