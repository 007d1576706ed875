package rewrite

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"go/version"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Marks that are put into the source before the first pass: a call on the way to
// a point has CallMark after its opening parenthesis, and a loop with a point has
// PointMark after the opening brace of its body; see RangeMark and ReceiverMark too. BlockMark is a
// point between statements.
const (
	CallMark  = "/*cairn:call*/"
	PointMark = "/*cairn:point*/"
	BlockMark = "{" + PointMark + "};"
)

// Mark returns the package with marks at positions of its files. Besides these,
// every statement is told its line, which it keeps wherever it goes: so do
// messages of the program and of the compiler.
func (p *Package) Mark(marks map[token.Pos]string) (*Package, error) {
	text := map[string][]byte{}
	early, err := p.devirtualize(func(lo, hi token.Pos) bool {
		for pos := range marks {
			if lo <= pos && pos <= hi {
				return true
			}
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	marks = maps.Clone(marks)
	if marks == nil {
		marks = map[token.Pos]string{}
	}
	for _, c := range early {
		marks[c.Rparen] += ReceiverMark
	}
	for _, f := range p.Files {
		here := map[token.Pos]string{}
		for pos, m := range marks {
			if f.FileStart <= pos && pos <= f.FileEnd {
				here[pos] = m
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if n == nil || list(n) == nil {
				return true
			}
			for _, s := range *list(n) {
				switch s.(type) {
				case *ast.CaseClause, *ast.CommClause, *ast.EmptyStmt:
					continue
				}
				at := p.Fset.Position(s.Pos())
				if at.Column > 0 {
					here[s.Pos()] += fmt.Sprintf("/*line %s:%d:%d*/", at.Filename, at.Line, at.Column)
				} else { // a directive of the source has none
					here[s.Pos()] += fmt.Sprintf("/*line %s:%d*/", at.Filename, at.Line)
				}
			}
			return true
		})
		if len(here) == 0 {
			continue
		}
		var b strings.Builder
		last := f.FileStart
		for _, pos := range slices.Sorted(maps.Keys(here)) {
			b.WriteString(p.at(last, pos) + here[pos])
			last = pos
		}
		b.WriteString(p.at(last, f.FileEnd))
		text[p.name(f)] = []byte(b.String())
	}
	return p.With(text)
}

// ResumablePath finds the marks.
func (p *Package) ResumablePath() ResumablePath {
	s := ResumablePath{Calls: map[*ast.CallExpr]bool{}, Points: map[ast.Stmt]bool{}, Funcs: map[ast.Node]bool{}}
	marks := p.marksAt()
	at := func(pos token.Pos) bool { return marks[pos] != "" }
	for _, f := range p.Files {
		bodies := map[*ast.BlockStmt]bool{} // of loops
		var in []ast.Node
		var depth []bool // nodes that are functions
		ast.Inspect(f, func(n ast.Node) bool {
			if n == nil {
				if depth[len(depth)-1] {
					in = in[:len(in)-1]
				}
				depth = depth[:len(depth)-1]
				return true
			}
			fn := false
			switch n := n.(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				fn = true
				in = append(in, n)
			case *ast.CallExpr:
				if at(n.Lparen+1) && len(in) > 0 {
					s.Calls[n] = true
					s.Funcs[in[len(in)-1]] = true
				}
			case *ast.ForStmt:
				bodies[n.Body] = true
				if at(n.Body.Lbrace + 1) {
					s.Points[n] = true
					s.Funcs[in[len(in)-1]] = true
				}
			case *ast.RangeStmt:
				bodies[n.Body] = true
				if at(n.Body.Lbrace + 1) {
					s.Points[n] = true
					s.Funcs[in[len(in)-1]] = true
				}
			case *ast.BlockStmt: // an empty one, for a point where there is no loop
				if at(n.Lbrace+1) && len(n.List) == 0 && !bodies[n] {
					s.Points[n] = true
					s.Funcs[in[len(in)-1]] = true
				}
			}
			depth = append(depth, fn)
			return true
		})
	}
	return s
}

// MustConvert says that a func literal or method value may become part of the state, so
// that it has to be converted.
func (p *Package) MustConvert(n ast.Expr) bool {
	lit, ok := n.(*ast.FuncLit)
	if !ok {
		return true
	}
	return p.Escaping(lit) || p.waits(lit)
}

// FuncName is a declared function's name: Grid.sweep.
func FuncName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	return strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*") + "." + d.Name.Name
}

// StripMarks removes marks from text.
func StripMarks(text []byte) []byte { return marksInText.ReplaceAll(text, nil) }

var marksInText = regexp.MustCompile(` ?/\*cairn:(call|point|range|receiver|wait \d+|lit \d+)\*/ ?`)

// JoinLineComments puts what tells statements their lines where it must stand, directly
// before them: formatting may have broken the line between.
func JoinLineComments(text []byte) []byte { return brokenLines.ReplaceAll(text, []byte("\n$2$1")) }

var brokenLines = regexp.MustCompile(`[ \t]*(/\*line [^*]*:\d+\*/)[ \t]*\n([ \t\n]*)`)

// StripLineComments removes from text what tells statements their lines.
func StripLineComments(text []byte) []byte { return linesInText.ReplaceAll(text, nil) }

var linesInText = regexp.MustCompile(`/\*line [^*]*:\d+\*/ ?`)

// RenameInLineComments changes the names of the files whose lines text tells.
func RenameInLineComments(text []byte, name func(file string) string) []byte {
	return toldInText.ReplaceAllFunc(text, func(b []byte) []byte {
		m := toldInText.FindSubmatch(b)
		return fmt.Appendf(nil, "/*line %s%s*/", name(string(m[1])), m[2])
	})
}

var toldInText = regexp.MustCompile(`/\*line ([^*]*?)((?::\d+){1,2})\*/`)

// AllowTypeParams lets a file of a module of old Go use type parameters, as its new parts
// do: a build constraint says so.
func AllowTypeParams(text []byte, goVersion string) []byte {
	if goVersion == "" || version.Compare(goVersion, "go1.18") >= 0 {
		return text
	}
	lines := strings.SplitAfter(string(text), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "package ") {
			break
		}
		if e, ok := strings.CutPrefix(l, "//go:build "); ok {
			lines[i] = "//go:build (" + strings.TrimSpace(e) + ") && go1.18\n"
			return []byte(strings.Join(lines, ""))
		}
	}
	return append([]byte("//go:build go1.18\n\n"), text...)
}
