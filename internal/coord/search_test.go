package coord

import (
	"fmt"
	"hash/maphash"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// stress reports whether to run the long versions of the tests.
func stress() bool { return os.Getenv("CAIRN_LONG") != "" }

// found is what a search has seen.
type found struct {
	states, ends int
	saves, moves int    // the most in any end
	errs, offs   string // why something was called off, in any end
}

// explore visits every world that can be reached.
func explore(sc *scenario, limit int) (f found, err error) {
	seeds := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	seen := map[[2]uint64]struct{}{}
	var buf []byte
	isNew := func(w *world) bool {
		buf = w.encode(buf[:0])
		key := [2]uint64{maphash.Bytes(seeds[0], buf), maphash.Bytes(seeds[1], buf)}
		_, old := seen[key]
		seen[key] = struct{}{}
		f.states = len(seen)
		return !old
	}
	type frame struct {
		w    *world
		todo []event
		how  event
	}
	first := newWorld(sc)
	isNew(first)
	stack := []frame{{w: first, todo: first.events(nil)}}
	path := func(last event) string {
		var b strings.Builder
		for _, f := range stack[1:] {
			fmt.Fprintf(&b, "%v ", f.how)
		}
		fmt.Fprint(&b, last)
		return b.String()
	}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if len(top.todo) == 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		e := top.todo[0]
		top.todo = top.todo[1:]
		w, err := top.w.apply(e)
		if err != nil {
			return f, fmt.Errorf("%w\nafter %s", err, path(e))
		}
		if !isNew(w) {
			continue
		}
		if f.states > limit {
			return f, fmt.Errorf("more than %d states\nafter %s", limit, path(e))
		}
		todo := w.events(nil)
		if w.isEnd(todo) {
			f.ends++
			f.saves, f.moves = max(f.saves, w.saves), max(f.moves, w.moves())
			f.errs, f.offs = addLetters(f.errs, w.off), addLetters(f.offs, w.offs)
			if err := w.end(); err != nil {
				return f, fmt.Errorf("%w\nafter %s", err, path(e))
			}
		}
		if len(todo) > 0 {
			stack = append(stack, frame{w: w, todo: todo, how: e})
		}
	}
	return f, nil
}

// addLetters returns all letters of both, in order.
func addLetters(a, b string) string {
	list := slices.Sorted(slices.Values([]rune(a + b)))
	return string(slices.Compact(list))
}

// isEnd reports whether nothing more can happen, unless a rank asks for a
// checkpoint or dies.
func (w *world) isEnd(todo []event) bool {
	for _, e := range todo {
		if e.kind != 'a' && e.kind != 'x' {
			return false
		}
	}
	return true
}

var scenarios = []scenario{
	{name: "alone", scripts: []string{"p p"}, asks: []string{"0", "0!"}, saves: 2, errs: "F"},
	{name: "silent pair", scripts: []string{"p p p", "p p p"}, asks: []string{"1"}, saves: 1, errs: "F"},
	{name: "halo 2", scripts: []string{"p s1 r1 p s1 r1 p", "p s0 r0 p s0 r0 p"}, asks: []string{"1"}, saves: 1, errs: "F"},
	{name: "pipeline 2", scripts: []string{"p s1 p s1 p s1 p", "r0 p r0 p r0 p p"}, asks: []string{"1"}, saves: 1, errs: "F"},
	{name: "shifted", scripts: []string{"p s1 p s1 p s1 p", "p r0 p r0 p r0 p"}, asks: []string{"0"}, saves: 1, errs: "F"},
	{name: "shifted, from the other side", scripts: []string{"p r1 p r1 p p", "p s0 p s0 p p"}, asks: []string{"1"}, saves: 1, errs: "F"},
	{name: "wildcard", scripts: []string{"a p a p p", "p s0 p s0 p"}, asks: []string{"1"}, saves: 1, errs: "F"},
	{name: "false alarms", scripts: []string{"p s1 p r1 p p", "r0 p s0 p p p"}, cfg: Config{trustWaves: true}, asks: []string{"1"}, saves: 1, errs: "CF"},
	{name: "shifted by one", scripts: []string{"p s1 p s1 p s1", "r0 p r0 p r0 p"}, asks: []string{"1"}, saves: 1, errs: "F"},
	{name: "never together", scripts: []string{"p s1 r1 p s1 r1 p s1 r1", "r0 p s0 r0 p s0 r0 p s0"},
		cfg: Config{MaxReleases: 2}, asks: []string{"0"}, errs: "CF"},
	{name: "stop 2", scripts: []string{"p s1 p r1 p", "s0 p r0 p p"}, asks: []string{"0!"}, saves: 1, errs: "F"},
	{name: "two asks", scripts: []string{"p s1 p p", "p r0 p p"}, asks: []string{"0", "1!"}, saves: 2, errs: "F"},
	{name: "two rounds", scripts: []string{"p p p p", "p p p p"}, asks: []string{"0", "1"}, saves: 2, errs: "F"},
	{name: "failing disk", scripts: []string{"p p", "p p"}, asks: []string{"1"}, fail: "0:1", saves: 1, errs: "F"},
	{name: "failing stop", scripts: []string{"p p", "p p"}, asks: []string{"1!"}, fail: "0:0", saves: 1, errs: "F"},
	{name: "unequal ends", scripts: []string{"p p p p", "p"}, asks: []string{"0"}, saves: 1, errs: "F"},
	{name: "own deadlock", scripts: []string{"p r1 p", "p r0 p"}, asks: []string{"0"}, stuck: true, saves: 1, errs: "C"},
	{name: "periodic 2", scripts: []string{"p s1 p r1 p p", "p s0 p r0 p p"}, cfg: Config{Every: 2}, saves: 2},
	{name: "periodic shifted", scripts: []string{"p s1 p s1 p s1", "r0 p r0 p r0 p"}, cfg: Config{Every: 2}, saves: 1},
	{name: "periodic shifted, other side", scripts: []string{"r1 p r1 p r1 p", "p s0 p s0 p s0"}, cfg: Config{Every: 2}, saves: 1},
	{name: "periodic, never together", scripts: []string{"p s1 r1 p s1 r1 p s1 r1", "r0 p s0 r0 p s0 r0 p s0"},
		cfg: Config{Every: 1, MaxReleases: 1}, errs: "C"},
	{name: "periodic and ask", scripts: []string{"p s1 p p p", "p r0 p p p"}, cfg: Config{Every: 2}, asks: []string{"1"}, saves: 3, errs: "F"},
	{name: "periodic, ask to stop", scripts: []string{"p p p", "p p p"}, cfg: Config{Every: 2}, asks: []string{"1!"}, saves: 2, errs: "F"},
	{name: "periodic, unequal ends", scripts: []string{"p p p p", "p p p"}, cfg: Config{Every: 2}, saves: 1, errs: "F"},
	{name: "spatial 2", scripts: []string{"s1 p r1 p", "s0 p r0 p"}, cfg: Config{Every: 1, Spatial: true}, saves: 2},
	{name: "spatial and ask", scripts: []string{"p p p", "p p p"}, cfg: Config{Every: 2, Spatial: true}, asks: []string{"1"}, saves: 2, errs: "F"},
	{name: "spatial, shifted ask", scripts: []string{"p s1 p s1 p s1", "r0 p r0 p r0 p"},
		cfg: Config{Every: 2, Spatial: true, MaxReleases: 9}, asks: []string{"1"}, saves: 1, errs: "F"},
	{name: "death 2", scripts: []string{"p s1 p", "p r0 p"}, asks: []string{"1"}, deaths: 1, saves: 1, errs: "FL"},
	{name: "periodic death", scripts: []string{"p p", "p p"}, cfg: Config{Every: 1}, deaths: 1, saves: 2, errs: "L"},
	{name: "periodic chain 3", scripts: []string{"p s1 p s1 p", "r0 p s2 r0 p s2 p", "r1 p r1 p"}, cfg: Config{Every: 2}, saves: 1},
	{name: "deep tree", scripts: []string{"p p", "p p", "p p"}, cfg: Config{Arity: 1}, asks: []string{"2!"}, saves: 1, errs: "F"},
}

// larger are scenarios that take longer, some of them minutes.
var larger = []scenario{
	{name: "released with two messages", scripts: []string{"p s1 s2 p", "r0 p", "p r0"}, cfg: Config{Every: 1}, saves: 1},
	{name: "false alarms 3", scripts: []string{"s2 p", "r2 p", "p s1 p r0"}, cfg: Config{Every: 1, trustWaves: true}, saves: 1, errs: "F"},
	{name: "periodic ring 3", scripts: []string{"p s1 r2 p", "p s2 r0 p", "p s0 r1 p"}, cfg: Config{Every: 2}, saves: 1},
	{name: "spatial, root behind", scripts: []string{"r1 p p p p", "p p p p s0 p"},
		cfg: Config{Every: 2, Spatial: true, MaxReleases: 9}, asks: []string{"1"}, saves: 2, errs: "F"},
	{name: "spatial, called off", scripts: []string{"r1 p p p", "p p s0 p"},
		cfg: Config{Every: 1, Spatial: true, MaxReleases: -1}, asks: []string{"1"}, saves: 3, errs: "CF"},
	{name: "spatial and ask, longer", scripts: []string{"p p p p", "p p p p"}, cfg: Config{Every: 2, Spatial: true}, asks: []string{"1"}, saves: 3, errs: "F"},
	{name: "spatial 2, longer", scripts: []string{"s1 p r1 p p", "s0 p r0 p p"}, cfg: Config{Every: 1, Spatial: true}, saves: 3},
	{name: "silent rank 3", scripts: []string{"p s1 p", "p r0 p", "p p"}, asks: []string{"2"}, saves: 1, errs: "F"},
	{name: "death in a chain", scripts: []string{"p", "p", "p"}, cfg: Config{Arity: 1, Every: 1}, deaths: 1, saves: 1, errs: "L"},
	{name: "ring 3", scripts: []string{"p s1 r2 p", "p s2 r0 p", "p s0 r1 p"}, asks: []string{"1"}, saves: 1, errs: "F"},
	{name: "chain 3", scripts: []string{"p s1 p s1 p", "r0 p s2 r0 p s2 p", "r1 p r1 p"}, asks: []string{"0"}, saves: 1, errs: "F"},
	{name: "master and workers", scripts: []string{"p a a s1 s2 p", "s0 p r0 p", "s0 p r0 p"}, asks: []string{"0"}, saves: 1, errs: "F"},
	{name: "wildcard behind a point", scripts: []string{"p a p a p", "p s0 p", "p s0 p"}, asks: []string{"1"}, saves: 1, errs: "F"},
	{name: "death 3", scripts: []string{"p p", "p p", "p p"}, asks: []string{"2"}, deaths: 1, saves: 1, errs: "FL"},
	{name: "two deaths 3", scripts: []string{"p", "p", "p"}, cfg: Config{Arity: 1, Every: 1}, deaths: 2, saves: 1, errs: "L"},
	{name: "all to all 3", scripts: []string{"s1 s2 p r1 r2", "s0 s2 p r0 r2", "s0 s1 p r0 r1"}, cfg: Config{Every: 1}, saves: 1},
	{name: "four", scripts: []string{"p s3 p", "p p", "p p", "p r0 p"}, cfg: Config{Arity: 2}, asks: []string{"3"}, saves: 1, errs: "F"},
}

// TestSearch_Checkpoints visits every order of events of small worlds that take
// checkpoints.
func TestSearch_Checkpoints(t *testing.T) {
	list := scenarios
	if stress() {
		list = append(slices.Clip(list), larger...)
	}
	search(t, list)
}

func search(t *testing.T, list []scenario) {
	for i := range list {
		sc := &list[i]
		t.Run(sc.name, func(t *testing.T) {
			limit := 400_000
			if stress() {
				limit = 20_000_000
			}
			f, err := explore(sc, limit)
			t.Logf("%+v", f)
			if err != nil {
				t.Fatal(err)
			}
			if f.saves != sc.saves || f.errs != sc.errs || f.moves != sc.moves || f.offs != sc.offs {
				t.Fatalf("wanted ends with %d checkpoints, %d moves, and with errors %q and %q", sc.saves, sc.moves, sc.errs, sc.offs)
			}
		})
	}
}

// TestEncode_AllFields fails when a field is added to Node, as a reminder to
// encode it.
func TestEncode_AllFields(t *testing.T) {
	if n := reflect.TypeFor[Node]().NumField(); n != 61 {
		t.Errorf("Node has %d fields: look at rank.encode and rank.clone", n)
	}
	if n := reflect.TypeFor[rootState]().NumField(); n != 11 {
		t.Errorf("rootState has %d fields: look at rank.encode and rank.clone", n)
	}
}
