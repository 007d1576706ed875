package instrument

import (
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// ErrOwnCheckpoints says that a program takes checkpoints by itself.
var ErrOwnCheckpoints = errors.New("the program takes its own checkpoints")

// ownCalls are the functions of package cairn that such a program calls.
var ownCalls = map[string]bool{
	"Protect": true, "(*Run).Restore": true, "(*Run).Point": true, "(*Run).Checkpoint": true, "(*Run).Rollback": true,
}

// ownCheckpoints returns an error if the program takes checkpoints by itself.
func ownCheckpoints(p *lower.Program) error {
	for _, s := range p.Source.Sources {
		for _, f := range s.Files {
			for n := range ast.Preorder(f) {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					continue
				}
				fn, ok := s.Info.Uses[sel.Sel].(*types.Func)
				if !ok || fn.Pkg() == nil || fn.Pkg().Path() != load.CairnPath {
					continue
				}
				name := fn.Name()
				if fn.Signature().Recv() != nil {
					name = "(*Run)." + name
				}
				if ownCalls[name] {
					return fmt.Errorf("%w: it calls cairn's %s at %s; remove such calls to have points placed", ErrOwnCheckpoints, strings.TrimPrefix(name, "(*Run)."), p.At(sel.Pos()))
				}
			}
		}
	}
	return nil
}

// safeRanks returns the numbers of ranks for which no message crosses any
// point.
func (in *instrumenter) safeRanks() []int {
	for _, n := range in.Points {
		at, ok := in.p.At(n.Pos()), false
		for _, l := range in.explained.Loops {
			ok = ok || l.File == at.File && l.Line == at.Line && l.Chosen && l.Messages == "safe"
		}
		if !ok {
			return nil
		}
	}
	return in.explained.Ranks
}

// runCalls returns the calls that tell the run time that the program opens a
// run by itself, or reads stdin.
func (in *instrumenter) runCalls(s *load.Package) (text string) {
	if s != in.p.Source.Main {
		return ""
	}
	if in.readsInput() {
		text = fmt.Sprintf("%s.ReadsInput()\n", rewrite.Prefix)
	}
	if in.p.Source.ByPath[load.CairnPath] != nil {
		ranks := strings.Trim(fmt.Sprint(in.safeRanks()), "[]")
		text += fmt.Sprintf("%s.OpensRun(%s)\n", rewrite.Prefix, strings.ReplaceAll(ranks, " ", ", "))
	}
	return text
}
