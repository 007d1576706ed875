package normalize

import (
	"go/types"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/rewritetest"
)

// TestHoistTypes_SameOutput shows that a program prints the same after its
// types are moved, including the names of types.
func TestHoistTypes_SameOutput(t *testing.T) {
	src, err := os.ReadFile("testdata/hoist/types.go")
	if err != nil {
		t.Fatal(err)
	}
	p := rewritetest.Load(t, "main.go", string(src), "go1.26")
	q, err := HoistTypes(p, normalizePath)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, n := range q.Types.Scope().Names() {
		if _, ok := q.Types.Scope().Lookup(n).(*types.TypeName); ok {
			got[n] = true
		}
	}
	want := []string{"bare", "cell", "grid", "held", "inner", "list", "local", "names", "pair", "pairs", "pos", "taken"}
	if list := slices.Sorted(maps.Keys(got)); !slices.Equal(list, want) {
		t.Errorf("at package level: %v, want %v", list, want)
	}
	a, b := runBoth(t, "go1.26", string(src), string(q.Source["main.go"]))
	if a != b {
		t.Errorf("the program prints\n%s\nand after\n%s", a, b)
	}
}
