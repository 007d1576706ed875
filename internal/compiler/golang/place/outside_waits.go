package place

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/types/typeutil"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
)

// outsideWaits are functions that wait for something outside the program, for
// as long as it likes. A goroutine that waits there cannot be saved.
var outsideWaits = map[string][]string{
	"the network": {
		"(net.Listener).Accept", "(*net.TCPListener).Accept", "(*net.TCPListener).AcceptTCP", "(*net.UnixListener).Accept",
		"(net.Conn).Read", "(*net.TCPConn).Read", "(*net.UnixConn).Read", "(net.PacketConn).ReadFrom", "(*net.UDPConn).ReadFrom", "(*net.UDPConn).ReadFromUDP",
		"net/http.ListenAndServe", "net/http.ListenAndServeTLS", "net/http.Serve",
		"(*net/http.Server).ListenAndServe", "(*net/http.Server).ListenAndServeTLS", "(*net/http.Server).Serve", "net/rpc.Accept", "(*net/rpc.Server).Accept",
	},
	"a child process": {"(*os/exec.Cmd).Wait", "(*os.Process).Wait"},
}

// OutsideWaits warns of goroutines that wait for something outside the program:
// no checkpoint is taken meanwhile.
func (pl *Placement) OutsideWaits() (warnings []string) {
	for _, l := range pl.Launches {
		if l.Site == nil || l.Background {
			continue
		}
		reach := callgraph.Reach(l.Site.Callees, callgraph.PlainCall)
		if at, call, what := pl.outsideWait(reach); what != "" {
			warnings = append(warnings, fmt.Sprintf("the goroutine that is started at %s waits for %s at %s (%s); while it waits, no checkpoint can be taken; if it does not matter for the result, put //cairn:background before the go statement",
				pl.p.At(l.At), what, pl.p.At(at), call))
		}
	}
	slices.Sort(warnings)
	return slices.Compact(warnings)
}

// outsideWait returns the first call in some functions, in the order of the
// source, that waits for something outside the program.
func (pl *Placement) outsideWait(in map[*callgraph.Function]bool) (at token.Pos, call, what string) {
	for _, fn := range pl.Calls.All {
		if !in[fn] || what != "" {
			continue
		}
		fn.Walk(fn.Body, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok || what != "" {
				return what == ""
			}
			if f, ok := typeutil.Callee(fn.Pkg.Info, c).(*types.Func); ok {
				for outside, list := range outsideWaits {
					if slices.Contains(list, f.FullName()) {
						at, call, what = c.Pos(), types.ExprString(c.Fun), outside
					}
				}
			}
			return true
		})
	}
	return at, call, what
}
