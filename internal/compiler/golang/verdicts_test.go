package golang

import (
	"context"
	"go/ast"
	"go/parser"
	"go/types"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
)

const verdictFrame = `package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

var _ = errors.New
var _ = strconv.Atoi
var _ sync.Mutex
var _ = fmt.Sscan
var _ = rand.IntN
var _ = time.Now
var _ = os.Args

type box struct {
	n    int
	c    *mpi.Comm
	data []float64
	req  *mpi.Request
}

DECLS

func main() {
	run, err := cairn.Open(context.Background(), cairn.Options{})
	if err != nil {
		os.Exit(1)
	}
	c := run.World()
	rank, size := c.Rank(), c.Size()
	right, left := (rank+1)%size, (rank+size-1)%size
	buf, in, ints := make([]float64, 4), make([]float64, 4), make([]int, 4)
	_, _, _, _, _, _, _ = rank, size, right, left, buf, in, ints
	BODY
}
`

// frame loads many programs that import the same.
type frame struct {
	ld *load.Program
}

func newFrame(t *testing.T) *frame {
	name := filepath.Join(t.TempDir(), "main.go")
	text := strings.NewReplacer("DECLS", "", "BODY", "").Replace(verdictFrame)
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	ld, err := load.Load(context.Background(), ".", []string{name}, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &frame{ld}
}

func (f *frame) load(t *testing.T, text string) *lower.Program {
	file, err := parser.ParseFile(f.ld.Fset, "main.go", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ld := *f.ld
	ld.Main = &load.Package{Listed: f.ld.Main.Listed, Files: []*ast.File{file}, Info: &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object),
		Implicits: make(map[ast.Node]types.Object), Selections: make(map[*ast.SelectorExpr]*types.Selection), Scopes: make(map[ast.Node]*types.Scope),
		Instances: make(map[*ast.Ident]types.Instance), FileVersions: make(map[*ast.File]string),
	}}
	ld.Sources = []*load.Package{ld.Main}
	conf := types.Config{Importer: ld.Importer(ld.Main), Sizes: types.SizesFor("gc", runtime.GOARCH)}
	if ld.Main.Types, err = conf.Check("command-line-arguments", ld.Fset, ld.Main.Files, ld.Main.Info); err != nil {
		t.Fatal(err)
	}
	p, err := lower.Lower(&ld, callgraph.Resolve(&ld))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestExplain_OnlySafeCalledSafe: only programs that are safe are called safe.
func TestExplain_OnlySafeCalledSafe(t *testing.T) {
	frame := newFrame(t)
	for _, c := range append(structVerdicts, []verdict{
		{"exchange", "", `
	//cairn:point
	for range 10 {
		var reqs []*mpi.Request
		if rank > 0 {
			reqs = append(reqs, mpi.Irecv(c, in, rank-1, 0), mpi.Isend(c, buf, rank-1, 1))
		}
		if rank < size-1 {
			reqs = append(reqs, mpi.Irecv(c, in, rank+1, 1), mpi.Isend(c, buf, rank+1, 0))
		}
		mpi.WaitAll(reqs...)
	}`, "safe"},
		{"not all waited for", "", `
	var reqs []*mpi.Request
	//cairn:point
	for range 10 {
		a := mpi.Isend(c, buf, right, 0)
		reqs = append(reqs, mpi.Irecv(c, in, left, 0))
		mpi.WaitAll(reqs...)
		_ = a
	}`, "unsafe"},
		{"root sends", "", `
	//cairn:point
	for i := 0; i < 10; i++ {
		if rank == 0 {
			for to := 1; to < size; to++ {
				mpi.Send(c, buf, to, i)
			}
		} else {
			mpi.Recv(c, buf, 0, mpi.AnyTag)
		}
	}`, "safe"},
		{"a round late", "", `
	//cairn:point
	for i := range 10 {
		if i > 0 {
			mpi.Recv(c, in, left, 0)
		}
		mpi.Send(c, buf, right, 0)
	}
	mpi.Recv(c, in, left, 0)`, "unsafe"},
		{"request in a field", "", `
	b := &box{}
	//cairn:point
	for range 10 {
		b.req = mpi.Irecv(c, in, left, 0)
		mpi.Send(c, buf, right, 0)
	}
	b.req.Wait()`, "not safe"},
		{"rounds by rank", "", `
	b := &box{n: rank}
	b2 := b
	//cairn:point
	for i := 0; i < b2.n; i++ {
		c.Barrier()
	}`, "not safe"},
		{"rounds by pointer", "func set(p *int, v int) { *p = v }", `
	n := 3
	set(&n, rank)
	//cairn:point
	for i := 0; i < n; i++ {
		c.Barrier()
	}`, "not safe"},
		{"rounds by generic pointer", "func set[T any](p *T, v T) { *p = v }", `
	n := 3
	set(&n, rank)
	//cairn:point
	for i := 0; i < n; i++ {
		c.Barrier()
	}`, "not safe"},
		{"rounds by field pointer", "func set(p *int, v int) { *p = v }", `
	var b box
	set(&b.n, rank)
	//cairn:point
	for i := 0; i < b.n; i++ {
		c.Barrier()
	}`, "not safe"},
		{"rounds by element", "", `
	other := ints
	ints[0] = rank
	//cairn:point
	for i := 0; i < other[0]; i++ {
		c.Barrier()
	}`, "not safe"},
		{"rounds by pointer to element", "", `
	p := &ints[0]
	*p = rank
	//cairn:point
	for i := 0; i < ints[0]; i++ {
		c.Barrier()
	}`, "not safe"},
		{"rounds by closure", "", `
	n := 3
	f := func() { n = rank }
	f()
	//cairn:point
	for i := 0; i < n; i++ {
		c.Barrier()
	}`, "not safe"},
		{"rounds by message", "", `
	got := make([]int, 1)
	mpi.Sendrecv(c, ints, right, 0, got, left, 0)
	//cairn:point
	for i := 0; i < got[0]; i++ {
		c.Barrier()
	}`, "not safe"},
		{"rounds by reduction", "", `
	sum := []int{rank}
	mpi.Allreduce(c, sum, sum, mpi.Sum)
	//cairn:point
	for i := 0; i < sum[0]; i++ {
		c.Barrier()
	}`, "safe"},
		{"rounds by reduction, changed", "", `
	sum := []int{rank}
	mpi.Allreduce(c, sum, sum, mpi.Sum)
	sum[0] += rank
	//cairn:point
	for i := 0; i < sum[0]; i++ {
		c.Barrier()
	}`, "not safe"},
		{"rounds by a part's reduction", "", `
	part, _ := c.Split(rank%2, rank)
	sum := []int{rank}
	mpi.Allreduce(part, sum, sum, mpi.Sum)
	//cairn:point
	for i := 0; i < sum[0]; i++ {
		c.Barrier()
	}`, "not safe"},
		{"rounds by an argument", "", `
	n, _ := strconv.Atoi(os.Args[1])
	//cairn:point
	for i := 0; i < n; i++ {
		c.Barrier()
	}`, "safe"},
		{"communicator of a part in a field", "", `
	part, _ := c.Split(rank%2, rank)
	b := &box{c: c}
	b.c = part
	//cairn:point
	for range 10 {
		mpi.Sendrecv(b.c, buf, right, 0, in, left, 0)
	}`, "not safe"},
		{"right side of &&", "func recv(c *mpi.Comm, buf []float64) bool { mpi.Recv(c, buf, 0, 0); return true }", `
	//cairn:point
	for range 10 {
		if rank == 0 {
			mpi.Send(c, buf, 1, 0)
		}
		if rank == 1 && recv(c, buf) {
			ints[0]++
		}
	}`, "safe"},
		{"right side of ||", "func recv(c *mpi.Comm, buf []float64) bool { mpi.Recv(c, buf, 0, 0); return true }", `
	//cairn:point
	for range 10 {
		if rank == 0 {
			mpi.Send(c, buf, 1, 0)
		}
		if rank == 1 || recv(c, buf) {
			ints[0]++
		}
	}`, "not safe"},
		{"method value sends", "func (b *box) send() { if b.c.Rank() == 0 { mpi.Send(b.c, b.data, 1, 0) } }", `
	b := &box{c: c, data: buf}
	f := b.send
	//cairn:point
	for range 10 {
		f()
	}`, "not safe"},
		{"rounds by a result", "func get(c *mpi.Comm) (int, error) { return c.Rank(), nil }", `
	n, err := get(c)
	if err != nil {
		return
	}
	//cairn:point
	for range n {
		c.Barrier()
	}`, "not safe"},
		{"rounds by a result that a deferred call sets", "func get(c *mpi.Comm) (n int) { defer func() { n = c.Rank() }(); return 3 }", `
	n := get(c)
	//cairn:point
	for range n {
		c.Barrier()
	}`, "not safe"},
		{"rounds by a global", "var n int; func set(c *mpi.Comm) { n = c.Rank() }", `
	set(c)
	//cairn:point
	for range n {
		c.Barrier()
	}`, "not safe"},
		{"rounds by an interface", "", `
	var x any = rank
	n := x.(int)
	//cairn:point
	for range n {
		c.Barrier()
	}`, "not safe"},
		{"rounds by text", "", `
	n, _ := strconv.Atoi(strconv.Itoa(rank))
	//cairn:point
	for range n {
		c.Barrier()
	}`, "not safe"},
		{"rounds by a scan", "", `
	var n int
	fmt.Sscan(strconv.Itoa(rank), &n)
	//cairn:point
	for range n {
		c.Barrier()
	}`, "not safe"},
		{"rounds by a map", "", `
	m := map[string]int{"n": rank}
	//cairn:point
	for range m["n"] {
		c.Barrier()
	}`, "not safe"},
		{"rounds by a channel", "", `
	ch := make(chan int, 1)
	ch <- rank
	n := <-ch
	//cairn:point
	for range n {
		c.Barrier()
	}`, "not safe"},
		{"rounds by time", "", `
	start := time.Now()
	//cairn:point
	for time.Since(start) < time.Second {
		c.Barrier()
	}`, "not safe"},
		{"rounds by chance", "", `
	//cairn:point
	for rand.IntN(10) > 0 {
		c.Barrier()
	}`, "not safe"},
		{"an initialiser sends", "var started = begin(); func begin() bool { world(nil); return true }; func world(c *mpi.Comm) { if c.Rank() == 0 { mpi.Send(c, []int{1}, 1, 0) } }", `
	//cairn:point
	for range 10 {
		c.Barrier()
	}`, "not safe"},
		{"the condition sends", "func more(c *mpi.Comm, buf []float64) bool { if c.Rank() == 0 { mpi.Send(c, buf, 1, 0) }; return len(buf) > 3 }", `
	//cairn:point
	for more(c, buf) {
		ints[0]++
	}`, "not safe"},
		{"a case sends", "func odd(c *mpi.Comm, buf []float64) bool { if c.Rank() == 0 { mpi.Send(c, buf, 1, 0) }; return true }", `
	//cairn:point
	for i := range 10 {
		switch {
		case i == 3:
		case odd(c, buf):
		}
	}`, "not safe"},
		{"requests in a loop", "", `
	reqs := make([]*mpi.Request, 2*size)
	//cairn:point
	for range 10 {
		for to := range size {
			reqs[2*to] = mpi.Irecv(c, in, to, 0)
			reqs[2*to+1] = mpi.Isend(c, buf, to, 0)
		}
		mpi.WaitAll(reqs...)
	}`, "safe"},
		{"some requests in a loop", "", `
	reqs := make([]*mpi.Request, 2*size)
	//cairn:point
	for range 10 {
		for to := range size {
			reqs[2*to] = mpi.Irecv(c, in, to, 0)
			reqs[2*to+1] = mpi.Isend(c, buf, to, 0)
		}
		mpi.WaitAll(reqs[:1]...)
	}`, "not safe"},
		{"any request", "", `
	//cairn:point
	for range 10 {
		mpi.WaitAny(mpi.Irecv(c, in, left, 0), mpi.Isend(c, buf, right, 0))
	}`, "not safe"},
		{"left by rank", "", `
	//cairn:point
	for i := range 10 {
		if i == rank {
			break
		}
		c.Barrier()
	}`, "not safe"},
		{"reduction in a branch", "", `
	sum := []int{rank}
	if len(os.Args) > 1 {
		mpi.Allreduce(c, sum, sum, mpi.Sum)
	}
	//cairn:point
	for i := 0; i < sum[0]; i++ {
		c.Barrier()
	}`, "not safe"},
		{"reduction too late", "", `
	sum := []int{rank}
	//cairn:point
	for sum[0] < 100 {
		c.Barrier()
		mpi.Allreduce(c, sum, sum, mpi.Sum)
	}`, "not safe"},
		{"communicator by a function value", "func do(f func(c *mpi.Comm), c *mpi.Comm) { f(c) }; func step(c *mpi.Comm) { if c.Rank() == 0 { mpi.Send(c, []int{1}, 1, 0) }; if c.Rank() == 1 { mpi.Recv(c, []int{1}, 0, 0) } }", `
	part, _ := c.Split(rank%2, rank)
	do(step, c)
	//cairn:point
	for range 10 {
		do(step, part)
	}`, "not safe"},
		{"communicator of some ranks", "", `
	color := 0
	if rank > 0 {
		color = mpi.Undefined
	}
	part, _ := c.Split(color, 0)
	//cairn:point
	for range 10 {
		if part != nil {
			c.Barrier()
		}
	}`, "not safe"},
		{"duplicate", "", `
	d, _ := c.Dup()
	//cairn:point
	for range 10 {
		mpi.Sendrecv(d, buf, right, 0, in, left, 0)
	}`, "safe"},
		{"closure of a loop variable", "", `
	var fs []func()
	for i := range 2 {
		fs = append(fs, func() {
			if rank == i {
				mpi.Send(c, buf, 1-i, 0)
			}
			if rank == 1 {
				mpi.Recv(c, in, 0, 0)
			}
		})
	}
	//cairn:point
	for range 10 {
		for _, f := range fs {
			f()
		}
	}`, "not safe"},
		{"shadowed", "", `
	//cairn:point
	for i := 0; i < 3; i++ {
		i := i + rank
		if i == 0 {
			mpi.Send(c, buf, 1, 0)
		}
		if i == 1 && rank == 1 {
			mpi.Recv(c, in, 0, 0)
		}
	}`, "safe"},
		{"goto", "", `
	i := 0
again:
	//cairn:point
	for j := range 3 {
		i += j
		c.Barrier()
	}
	if i < rank {
		goto again
	}`, "not safe"},
		{"fallthrough", "", `
	//cairn:point
	for i := range 10 {
		switch i {
		case 0:
			fallthrough
		case 1:
			if rank == 0 {
				mpi.Send(c, buf, 1, 0)
			}
		}
	}`, "not safe"},
	}...) {
		t.Run(c.name, func(t *testing.T) {
			p := frame.load(t, strings.NewReplacer("DECLS", c.decls, "BODY", c.body).Replace(verdictFrame))
			found := false
			for _, l := range explain.Explain(p, explain.Options{}).Loops {
				if !l.Chosen || !strings.Contains(l.Why, "comment") {
					continue
				}
				found = true
				if l.Messages != c.want && (c.want != "not safe" || l.Messages == "safe") {
					t.Errorf("it is %s, want %s: %v", l.Messages, c.want, l.Reasons)
				}
			}
			if !found {
				t.Error("no loop is chosen")
			}
		})
	}
}
