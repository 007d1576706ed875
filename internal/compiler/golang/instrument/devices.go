package instrument

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/divide"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// notRestorable are functions of package device whose results a restarted
// program would have to make again, and why.
var notRestorable = map[string]string{
	"Raw": "device.Raw makes an array of memory that a restarted program must provide again",
}

// checkDevices returns an error if a restart cannot restore the program's
// devices.
func (in *instrumenter) checkDevices() error {
	live := callgraph.Reach([]*callgraph.Function{in.Calls.Main}, callgraph.PlainCall, callgraph.DeferCall, callgraph.GoCall, callgraph.SyncCallback, callgraph.AsyncCallback)
	for _, fn := range in.Calls.All {
		if !live[fn] {
			continue
		}
		var err error
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || err != nil {
				return err == nil
			}
			f, ok := fn.Pkg.Info.Uses[id].(*types.Func)
			if !ok || f.Pkg() == nil || f.Pkg().Path() != load.DevicePath || f.Signature().Recv() != nil {
				return true
			}
			if why := notRestorable[f.Name()]; why != "" {
				err = fmt.Errorf("%w: %s: %s; use arrays of device.New and devices of device.Devices, or protect its state by hand (docs/devices.md)", ErrRefused, in.p.At(id.Pos()), why)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// divisionFunctions returns the functions that divide the program's work anew
// after a restart on another number of devices. They have no points, so that no
// checkpoint is taken meanwhile.
func (in *instrumenter) divisionFunctions() map[ast.Node]bool {
	out := map[ast.Node]bool{}
	if in.explained.Division != nil {
		for _, p := range in.explained.Division.Plans {
			for _, fn := range p.Calls {
				out[fn.Node] = true
			}
		}
	}
	return out
}

// markOverwritten returns the mark for a point at the beginning of a loop's
// body, after code that says which arrays need not be saved there. path is the
// resumable path.
func (in *instrumenter) markOverwritten(fn *callgraph.Function, loop ast.Stmt, path map[*callgraph.Function]bool) string {
	if in.explained.Devices == nil || in.Several() {
		return rewrite.PointMark
	}
	w, ok := in.overwritten[loop]
	if !ok {
		w = divide.FindOverwritten(in.p.Source, in.Calls, fn, loop)
		if in.overwritten == nil {
			in.overwritten = map[ast.Stmt]*divide.Overwritten{}
		}
		in.overwritten[loop] = w
	}
	if w == nil {
		return rewrite.PointMark
	}
	// A dry run must not come to a point. And a division for other devices may
	// launch in another order.
	w = w.Without(func(r *divide.DryRun) bool {
		return slices.ContainsFunc(r.Functions, func(fn *callgraph.Function) bool { return path[fn] }) || in.divides(loop, r.Type)
	})
	if in.leftOut == nil {
		in.leftOut = map[ast.Stmt]*divide.Overwritten{}
	}
	in.leftOut[loop] = w
	if code := w.Code(in.p.Source.Fset); code != "" {
		return code + rewrite.BlockMark
	}
	return rewrite.PointMark
}

// divides reports whether the work of a loop is divided anew on other devices,
// if it is of a type.
func (in *instrumenter) divides(loop ast.Stmt, work *types.TypeName) bool {
	return in.explained.Division != nil && slices.ContainsFunc(in.explained.Division.Plans, func(p *divide.Plan) bool {
		return p.Loop.Pos() == loop.Pos() && (p.Variant == nil || work == nil || slices.ContainsFunc(p.Types, func(t *types.TypeName) bool { return t.Pos() == work.Pos() }))
	})
}

// explainOverwritten adds to the explanation which arrays are left out.
func (in *instrumenter) explainOverwritten() {
	if in.explained.Devices == nil {
		return
	}
	in.explained.Devices.LeftOut = nil
	for _, n := range in.Points {
		w := in.leftOut[n]
		if w == nil {
			continue
		}
		at := in.p.At(n.Pos())
		if w.Why != nil {
			in.explained.Devices.LeftOut = append(in.explained.Devices.LeftOut, explain.LeftOutInfo{
				File: at.File, Line: at.Line, Why: fmt.Sprintf("%s (%s)", w.Why.Text, in.p.At(w.Why.At))})
		}
		for _, k := range w.Cases {
			for _, a := range k.Arrays {
				x := explain.LeftOutInfo{File: at.File, Line: at.Line, Array: a.Name, Overwritten: in.p.At(a.At).String(), If: k.If}
				if k.Type != nil {
					x.Type = k.Type.Name()
				}
				in.explained.Devices.LeftOut = append(in.explained.Devices.LeftOut, x)
			}
		}
		for _, r := range w.DryRuns {
			for _, a := range r.Arrays {
				x := explain.LeftOutInfo{File: at.File, Line: at.Line, Array: a.Name, DryRun: in.p.At(a.At).String()}
				if r.Type != nil {
					x.Type = r.Type.Name()
				}
				in.explained.Devices.LeftOut = append(in.explained.Devices.LeftOut, x)
			}
		}
	}
}

// markDivision adds code that divides the program's work anew if a restart
// finds another number of devices. path is the resumable path.
func (in *instrumenter) markDivision(path map[*callgraph.Function]bool, mark func(s *load.Package, at token.Pos, text string)) error {
	if in.explained.Division == nil {
		return nil
	}
	fset := in.p.Source.Fset
	for _, p := range in.explained.Division.Plans {
		on := func(fn *callgraph.Function) bool { return path[in.Calls.ByNode[fn.Node]] } // explain has a graph of its own
		if !on(p.Fn) || slices.ContainsFunc(p.Calls, on) {
			continue
		}
		text, err := os.ReadFile(fset.Position(p.Loop.Pos()).Filename)
		if err != nil {
			return err
		}
		mark(p.Fn.Pkg, p.Body.Lbrace+1, p.Code(fset, text))
	}
	return nil
}
