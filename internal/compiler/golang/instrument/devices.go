package instrument

import (
	"fmt"
	"go/ast"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
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
