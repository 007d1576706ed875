package emit

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// infos describes, for reports, what is saved of a function.
func (w *generator) infos(fn *function) []FrameInfo {
	var out []FrameInfo
	sizes := w.p.Sizes
	if sizes == nil {
		sizes = types.SizesFor("gc", "amd64")
	}
	for _, m := range fn.marks {
		at := w.markLine(m)
		i := FrameInfo{Func: w.reportName(fn), At: m.n, File: at.Filename, Line: at.Line, Call: m.call}
		for _, v := range m.saved {
			if bookkeeping(v.Name()) || strings.TrimRight(v.Name(), "_") == rewrite.EnvName {
				continue
			}
			t := v.Type()
			name, captured := strings.CutPrefix(v.Name(), rewrite.SharedVar)
			if captured {
				t = t.(*types.Pointer).Elem()
			}
			s := SavedVar{Captured: captured, Type: w.reportType(t), Refers: refers(t, map[types.Type]bool{}), Read: w.readAfter(fn, m, v)}
			s.Name, s.What = sourceName(name)
			if _, ok := t.(*types.TypeParam); !ok && !rewrite.HasTypeParam(t) {
				s.Size = sizes.Sizeof(t)
			}
			i.Saved = append(i.Saved, s)
		}
		i.Saved = append(i.Saved, w.captured(fn, m, sizes)...)
		inOrder := func(v, u *types.Var) int { return cmp.Compare(v.Pos(), u.Pos()) }
		for _, v := range slices.SortedFunc(maps.Keys(fn.again), inOrder) {
			if s := fn.again[v]; m.needed[v] && onPath(m, s) {
				i.Again = append(i.Again, Again{"the function literal " + v.Name(), w.p.Fset.Position(s.Pos()).Line})
			}
		}
		for _, st := range m.path {
			for _, s := range st.list[:min(st.i, len(st.list))] {
				ast.Inspect(s, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.FuncLit:
						return false
					case *ast.DeferStmt:
						i.Again = append(i.Again, Again{"a deferred call", w.p.Fset.Position(n.Pos()).Line})
					}
					return true
				})
			}
		}
		out = append(out, i)
	}
	return out
}

// captured returns the variables of functions around a closure that it uses.
// They are saved with it.
func (w *generator) captured(fn *function, m *mark, sizes types.Sizes) (out []SavedVar) {
	for _, v := range environment(w.p.Info, fn) {
		p, ok := v.Type().(*types.Pointer)
		if !ok || bookkeeping(v.Name()) {
			continue
		}
		s := SavedVar{Captured: true, Type: w.reportType(p.Elem()), Refers: refers(p.Elem(), map[types.Type]bool{}), Read: w.readAfter(fn, m, v)}
		if s.Name, s.What = sourceName(v.Name()); !rewrite.HasTypeParam(p.Elem()) {
			s.Size = sizes.Sizeof(p.Elem())
		}
		out = append(out, s)
	}
	return out
}

// environment returns the fields of the record that holds a closure's
// variables.
func environment(info *types.Info, fn *function) (out []*types.Var) {
	if fn.outer == nil {
		return nil
	}
	d, ok := fn.outer.node.(*ast.FuncDecl)
	if !ok || len(d.Type.Params.List) != 1 || len(d.Type.Params.List[0].Names) != 1 || d.Type.Params.List[0].Names[0].Name != rewrite.EnvName {
		return nil
	}
	p, ok := info.TypeOf(d.Type.Params.List[0].Type).(*types.Pointer)
	if !ok {
		return nil
	}
	if s, ok := p.Elem().Underlying().(*types.Struct); ok {
		for f := range s.Fields() {
			out = append(out, f)
		}
	}
	return out
}

var (
	closureNames = regexp.MustCompile("(?i)^" + rewrite.Prefix + `(?:make|func)_(.+?)(?:_\d+)+(?:_func\d+)?$`)
	closureParts = regexp.MustCompile("(?i)^" + rewrite.Prefix + `(?:make|func)_(.+?)((?:_\d+)+)(?:_func\d+)?$`)
	paramNames   = regexp.MustCompile(`\b` + rewrite.Prefix + `\d+ `)
	rangeNames   = regexp.MustCompile("^" + rewrite.Prefix + `(?:state|to)\d+$`)
)

// bookkeeping reports whether a variable exists only for a lowered loop over a
// function. Reports omit it.
func bookkeeping(name string) bool { return rangeNames.MatchString(name) }

// reportName returns a function's name for reports. A closure is named after
// its place.
func (w *generator) reportName(fn *function) string {
	m := closureNames.FindStringSubmatch(fn.name)
	if m == nil {
		return fn.name
	}
	for in := rewrite.Prefix + "func_"; strings.HasPrefix(m[1], in); { // a literal inside another
		m[1] = m[1][len(in):]
	}
	if of, ok := strings.CutPrefix(m[1], rewrite.MethodExprKind); ok {
		return "a method expression in " + of
	}
	for _, v := range environment(w.p.Info, fn) {
		if bookkeeping(v.Name()) {
			return "the body of a loop over a function in " + m[1]
		}
	}
	return "a function literal in " + m[1]
}

// sourceFunction returns the name that a function has in a checkpoint:
// main.run, main.(*T).run, or main.run.func1 for a literal in it.
func (w *generator) sourceFunction(fn *function) string {
	pkg := w.p.Path
	if w.p.Types.Name() == "main" {
		pkg = "main"
	}
	top := fn
	for top.outer != nil {
		top = top.outer
	}
	name := top.name
	if m := closureParts.FindStringSubmatch(name); m != nil {
		of := m[1]
		for in := rewrite.Prefix + "func_"; strings.HasPrefix(of, in); {
			of = of[len(in):]
		}
		of = strings.TrimPrefix(of, rewrite.MethodExprKind)
		name = of + ".func" + strings.ReplaceAll(m[2][1:], "_", ".")
	} else if d, ok := top.node.(*ast.FuncDecl); ok && d.Recv != nil {
		recv, method, _ := strings.Cut(name, "_")
		if _, ok := d.Recv.List[0].Type.(*ast.StarExpr); ok {
			recv = "(*" + recv + ")"
		}
		name = recv + "." + method
	}
	if top != fn {
		name += "." + fn.name[len(top.name)+1:]
	}
	return pkg + "." + name
}

// fieldTag is the tag of a field of a frame whose name is not that of a
// variable of the source; see graph.Frames.
func fieldTag(f *field) string {
	name := strings.TrimPrefix(f.v.Name(), rewrite.SharedVar)
	if strings.TrimRight(name, "_") == rewrite.EnvName {
		return nameTag(".")
	}
	source, _ := sourceName(name)
	switch source {
	case f.name:
		return ""
	case "":
		return nameTag("-")
	}
	return nameTag(source)
}

// nameTag is a tag with a name, and more.
func nameTag(name string, more ...string) string {
	return " `" + strings.TrimSpace("cairn:"+strconv.Quote(name)+" "+strings.Join(more, " ")) + "`"
}

// reportType returns a type for reports. Types that cannot be found in the
// source are records.
func (w *generator) reportType(t types.Type) string {
	s := paramNames.ReplaceAllString(types.TypeString(t, w.qual), "")
	if !strings.Contains(s, rewrite.Prefix) {
		return s
	}
	switch t := t.(type) {
	case *types.Pointer:
		return "*" + w.reportType(t.Elem())
	case *types.Slice:
		return "[]" + w.reportType(t.Elem())
	}
	return "record"
}

// markLine returns the position of a mark in the source. If the statement after
// a point is not of the source, it is that of one that is, or of the loop.
func (w *generator) markLine(m *mark) token.Position {
	if s := m.stmt(); s != nil && (m.call || w.fromSource(s)) {
		return w.p.Fset.Position(s.Pos())
	}
	for _, st := range slices.Backward(m.path) {
		for _, s := range st.list[min(st.i, len(st.list)):] {
			if w.fromSource(s) {
				return w.p.Fset.Position(s.Pos())
			}
			if s.Pos() < m.comment.Pos() { // it contains the mark
				break
			}
		}
	}
	return w.p.Fset.Position(m.comment.Pos())
}

// fromSource reports whether a line comment precedes a statement, or whether
// the source has none.
func (w *generator) fromSource(s ast.Stmt) bool {
	f := w.p.Fset.File(s.Pos())
	before := bytes.TrimSpace(w.p.Source[f.Name()][:f.Offset(s.Pos())])
	at := bytes.LastIndex(before, []byte("/*line "))
	return w.p.LineComment(s.Pos()) == "" || at >= 0 && bytes.Index(before[at:], []byte("*/")) == len(before)-at-2
}

// readAfter returns the line of a use of a variable after a mark. In a loop
// that may be an earlier line.
func (w *generator) readAfter(fn *function, m *mark, v *types.Var) int {
	first, after := token.NoPos, token.NoPos
	ast.Inspect(fn.body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && w.p.Info.Uses[id] == types.Object(v) {
			if first == token.NoPos {
				first = id.Pos()
			}
			if after == token.NoPos && id.Pos() > m.comment.Pos() {
				after = id.Pos()
			}
		}
		return true
	})
	if after == token.NoPos {
		after = first
	}
	if after == token.NoPos {
		return 0
	}
	return w.p.Fset.Position(after).Line
}

var (
	ownNames     = regexp.MustCompile("^" + rewrite.Prefix + `([a-z]+)\d+$`)
	renamedNames = regexp.MustCompile("^" + rewrite.Prefix + `[gh]\d+_(.*)$`)
)

// sourceName returns a variable's name in the source, or a description of it.
func sourceName(name string) (string, string) {
	if m := renamedNames.FindStringSubmatch(name); m != nil {
		return m[1], ""
	}
	m := ownNames.FindStringSubmatch(name)
	if m == nil {
		if strings.HasPrefix(name, rewrite.Prefix+"env_") {
			return "", "what a function literal captures"
		}
		if strings.HasPrefix(name, rewrite.Prefix) {
			return "", "made by cairn"
		}
		return name, ""
	}
	switch m[1] {
	case "r":
		return "", "what the loop ranges over"
	case "i":
		return "", "how far the loop is"
	case "q":
		return "", "the function that the loop ranges over"
	case "late":
		return "", "what is deferred in the loop"
	case "k":
		return "", "the keys that the loop ranges over"
	case "d":
		return "", "whether a deferred call is pending"
	}
	return "", "what the statement has computed before the call"
}

// refers reports whether a value of a type may refer to others.
func refers(t types.Type, seen map[types.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t := t.Underlying().(type) {
	case *types.Basic:
		return t.Info()&types.IsString != 0 || t.Kind() == types.UnsafePointer
	case *types.Array:
		return refers(t.Elem(), seen)
	case *types.Struct:
		for f := range t.Fields() {
			if refers(f.Type(), seen) {
				return true
			}
		}
		return false
	}
	return true
}
