package rewrite

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// Edit replaces a piece of text.
type Edit struct {
	Lo, Hi token.Pos
	Text   string
}

// Apply applies edits to the text from lo to hi. An edit inside another one is
// dropped; an insertion where another edit begins comes first.
func (p *Package) Apply(lo, hi token.Pos, edits []Edit) string {
	slices.SortStableFunc(edits, func(a, b Edit) int {
		if c := cmp.Compare(a.Lo, b.Lo); c != 0 {
			return c
		}
		if a.Lo == a.Hi || b.Lo == b.Hi {
			return cmp.Compare(a.Hi, b.Hi)
		}
		return cmp.Compare(b.Hi, a.Hi)
	})
	var b strings.Builder
	at := lo
	for _, e := range edits {
		if e.Lo < at || e.Hi > hi {
			continue
		}
		b.WriteString(p.Text(at, e.Lo))
		b.WriteString(e.Text)
		at = e.Hi
	}
	b.WriteString(p.Text(at, hi))
	return b.String()
}

// FileName returns a file's name.
func (p *Package) FileName(f *ast.File) string { return p.Fset.File(f.FileStart).Name() }

// Text returns the text between two positions of one file.
func (p *Package) Text(lo, hi token.Pos) string {
	f := p.Fset.File(lo)
	return string(p.Source[f.Name()][f.Offset(lo):f.Offset(hi)])
}

// NodeText returns a node's text, in which put replaces the nodes for which it
// returns true. put is not called for nodes inside these.
func (p *Package) NodeText(n ast.Node, put func(ast.Node) (string, bool)) string {
	return p.Span(n.Pos(), n.End(), n, put)
}

// Span is NodeText from lo to hi; n must lie between them.
func (p *Package) Span(lo, hi token.Pos, n ast.Node, put func(ast.Node) (string, bool)) string {
	var b strings.Builder
	last := lo
	ast.Inspect(n, func(m ast.Node) bool {
		if m == nil || m.Pos() < lo || m.End() > hi {
			return m != nil
		}
		if put == nil {
			return false
		}
		s, ok := put(m)
		if !ok {
			return true
		}
		b.WriteString(p.Text(last, m.Pos()))
		b.WriteString(s)
		last = m.End()
		return false
	})
	b.WriteString(p.Text(last, hi))
	return b.String()
}

// Qualifier returns how a file of the package names other packages. miss names
// those that the file does not import under a usable name.
func (p *Package) Qualifier(f *ast.File, miss func(*types.Package) string) types.Qualifier {
	names := map[*types.Package]string{}
	for _, s := range f.Imports {
		var o types.Object
		if s.Name != nil {
			o = p.Info.Defs[s.Name]
		} else {
			o = p.Info.Implicits[s]
		}
		if n, ok := o.(*types.PkgName); ok && n.Name() != "_" && n.Name() != "." {
			names[n.Imported()] = n.Name()
		}
	}
	return func(q *types.Package) string {
		if q == p.Types {
			return ""
		}
		if n, ok := names[q]; ok {
			return n
		}
		return miss(q)
	}
}

// Format formats a file's text. Line comments stay before their statements.
func Format(name string, text []byte) ([]byte, error) {
	out, err := format.Source(text)
	if err != nil {
		return nil, fmt.Errorf("%s: rewritten source: %w\n%s", name, err, bytes.TrimSpace(text))
	}
	return JoinLineComments(out), nil
}

// MarksAt returns the positions directly before marks.
func (p *Package) MarksAt() map[token.Pos]string {
	at := map[token.Pos]string{}
	for _, f := range p.Files {
		for _, g := range f.Comments {
			for _, c := range g.List {
				if c.Text == CallMark || c.Text == PointMark || c.Text == RangeMark {
					at[p.AfterText(c.Pos())] = c.Text // formatting may insert a blank in between
				}
			}
		}
	}
	return at
}

// LineComment returns a line comment for a position, empty if the source has no
// such comments.
func (p *Package) LineComment(at token.Pos) string {
	told := p.Fset.Position(at)
	if !bytes.Contains(p.Source[p.Fset.File(at).Name()], []byte("/*line ")) {
		return ""
	}
	if told.Column > 0 {
		return fmt.Sprintf("/*line %s:%d:%d*/", told.Filename, told.Line, told.Column)
	}
	return fmt.Sprintf("/*line %s:%d*/", told.Filename, told.Line)
}

// AfterText returns the end of the text before a position, without blanks.
func (p *Package) AfterText(at token.Pos) token.Pos {
	f := p.Fset.File(at)
	text := p.Source[f.Name()][:f.Offset(at)]
	return at - token.Pos(len(text)-len(bytes.TrimRight(text, " \t\r\n")))
}
