package rewrite

import (
	"bytes"
	"go/ast"
	"go/token"
	"go/types"
	"go/version"
	"strings"
)

// Marks that normalize.Mark puts into the source: a call that leads to a point
// has CallMark after its opening parenthesis, and a loop with a point has
// PointMark after the opening brace of its body. BlockMark is a point between
// statements. See also RangeMark, ReceiverMark and LitMark.
const (
	CallMark  = "/*cairn:call*/"
	PointMark = "/*cairn:point*/"
	BlockMark = "{" + PointMark + "};"
)

// ResumablePath returns the calls, points and functions that have marks.
func (p *Package) ResumablePath() ResumablePath {
	s := ResumablePath{Calls: map[*ast.CallExpr]bool{}, Points: map[ast.Stmt]bool{}, Funcs: map[ast.Node]bool{}}
	marks := p.MarksAt()
	at := func(pos token.Pos) bool { return marks[pos] != "" }
	for _, f := range p.Files {
		bodies := map[*ast.BlockStmt]bool{} // bodies of loops
		var in []ast.Node
		var depth []bool // whether each node on the stack is a function
		loop := func(n ast.Stmt, body *ast.BlockStmt) {
			bodies[body] = true
			if at(body.Lbrace + 1) {
				s.Points[n], s.Funcs[in[len(in)-1]] = true, true
			}
		}
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
				loop(n, n.Body)
			case *ast.RangeStmt:
				loop(n, n.Body)
			case *ast.BlockStmt: // an empty block, for a point where there is no loop
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

// MustConvert reports whether a func literal or method value may become part of
// the state, so that it has to be converted.
func (p *Package) MustConvert(n ast.Expr) bool {
	lit, ok := n.(*ast.FuncLit)
	if !ok {
		return true
	}
	return p.Escaping(lit) || p.waits(lit)
}

// FuncName returns a declared function's name: Grid.sweep.
func FuncName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	return strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*") + "." + d.Name.Name
}

// StripMarks removes marks from text, each with one blank on both sides.
func StripMarks(text []byte) []byte {
	return replaceComments(text, "/*cairn:", isMark, func(out, before, comment, after []byte) ([]byte, int) {
		out = append(out, bytes.TrimSuffix(before, []byte(" "))...)
		return out, len(after) - len(bytes.TrimPrefix(after, []byte(" ")))
	})
}

// isMark reports whether a comment is a mark.
func isMark(comment []byte) bool {
	name, number, numbered := strings.Cut(string(comment[len("/*cairn:"):len(comment)-len("*/")]), " ")
	switch name {
	case "call", "point", "range", "receiver", "park", "go", "gopoints", "background":
		return !numbered
	case "wait", "lit":
		return isNumber(number)
	}
	return false
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// JoinLineComments puts line comments directly before their statements, where
// formatting has broken the line between them.
func JoinLineComments(text []byte) []byte {
	return replaceComments(text, lineComment, isLineComment, func(out, before, comment, after []byte) ([]byte, int) {
		rest := bytes.TrimLeft(after, " \t")
		if len(rest) == 0 || rest[0] != '\n' {
			return append(append(out, before...), comment...), 0
		}
		statement := bytes.TrimLeft(rest, " \t\n")
		out = append(out, bytes.TrimRight(before, " \t")...)
		out = append(append(out, '\n'), rest[1:len(rest)-len(statement)]...)
		return append(out, comment...), len(after) - len(statement)
	})
}

// StripLineComments removes line comments from text, each with a blank after
// it.
func StripLineComments(text []byte) []byte {
	return replaceComments(text, lineComment, isLineComment, func(out, before, comment, after []byte) ([]byte, int) {
		return append(out, before...), len(after) - len(bytes.TrimPrefix(after, []byte(" ")))
	})
}

const lineComment = "/*line "

// isLineComment reports whether a comment is a line comment: it ends with a
// number after a colon.
func isLineComment(comment []byte) bool {
	inside := comment[len(lineComment) : len(comment)-len("*/")]
	i := bytes.LastIndexByte(inside, ':')
	return i >= 0 && isNumber(string(inside[i+1:]))
}

// replaceComments replaces the comments of a text that begin with prefix, have
// no asterisk inside and satisfy is. put gets the text between the previous
// comment and this one, and the text after it; it appends to out and returns
// how much of after is replaced too. These functions see megabytes of text
// again and again; regular expressions take ten times as long.
func replaceComments(text []byte, prefix string, is func(comment []byte) bool, put func(out, before, comment, after []byte) ([]byte, int)) []byte {
	out := make([]byte, 0, len(text))
	done := 0 // text before it is in out
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte(prefix))
		if i < 0 {
			return append(out, text[done:]...)
		}
		begin := at + i
		at = begin + len(prefix)
		star := bytes.IndexByte(text[at:], '*')
		if star < 0 || !bytes.HasPrefix(text[at+star:], []byte("*/")) {
			continue
		}
		end := at + star + len("*/")
		if !is(text[begin:end]) {
			continue
		}
		var n int
		out, n = put(out, text[done:begin], text[begin:end], text[end:])
		done = end + n
		at = done
	}
}

// TypeParams is the oldest version of Go that has type parameters, which the
// new parts of a file use.
const TypeParams = "go1.18"

// AllowTypeParams adds a build constraint to a file of a module for an old Go
// version, so that its new parts can use type parameters.
func AllowTypeParams(text []byte, goVersion string) []byte {
	if goVersion == "" || version.Compare(goVersion, TypeParams) >= 0 {
		return text
	}
	lines := strings.SplitAfter(string(text), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "package ") {
			break
		}
		if e, ok := strings.CutPrefix(l, "//go:build "); ok {
			lines[i] = "//go:build (" + strings.TrimSpace(e) + ") && " + TypeParams + "\n"
			return []byte(strings.Join(lines, ""))
		}
	}
	return append([]byte("//go:build "+TypeParams+"\n\n"), text...)
}

// RangeMark stands after the word range of a loop over a function that is on
// the way to a point.
const RangeMark = "/*cairn:range*/"

// ReceiverMark stands before the closing parenthesis of a call of an
// interface's method that the Go compiler devirtualizes: the receiver is a
// local variable that holds values of one type only, so the compiler copies it
// before it evaluates the arguments. closures.Convert changes the variable so
// that the compiler cannot; so such calls are found before.
const ReceiverMark = "/*cairn:receiver*/"

// LitMark stands after the opening brace of a func literal on the resumable
// path; %d is its number.
const LitMark = "/*cairn:lit %d*/"
