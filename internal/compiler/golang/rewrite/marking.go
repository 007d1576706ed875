package rewrite

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"go/version"
	"regexp"
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

// ResumablePath finds the marks.
func (p *Package) ResumablePath() ResumablePath {
	s := ResumablePath{Calls: map[*ast.CallExpr]bool{}, Points: map[ast.Stmt]bool{}, Funcs: map[ast.Node]bool{}}
	marks := p.MarksAt()
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

// RangeMark stands after the word range of a loop over a function that is on the
// way to a point.
const RangeMark = "/*cairn:range*/"

// ReceiverMark stands before the closing parenthesis of a call of an interface's
// method whose receiver the compiler copies before it evaluates the arguments: the
// receiver is a local variable that only ever holds values of one type, so the
// compiler asserts that type and calls its method. What closures.Convert makes of the
// variable does not let it do that, so it has to be found before.
const ReceiverMark = "/*cairn:receiver*/"

// LitMark marks func literals that are on the way to points, after the opening
// brace of the body; %d tells them apart.
const LitMark = "/*cairn:lit %d*/"
