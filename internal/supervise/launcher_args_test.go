//go:build linux

package supervise

import (
	"slices"
	"strings"
	"testing"
)

func TestExported_Variables(t *testing.T) {
	lookup := func(name string) (string, bool) { return "here", name == "SET" }
	got := exported([]string{"--oversubscribe", "-x", "SET", "-x", "UNSET", "--mca", "a", "b", "-x", "A=b=c", "-x"}, lookup)
	if want := []string{"SET=here", "A=b=c"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestElsewhere_Arguments(t *testing.T) {
	got := elsewhere(strings.Fields("--oversubscribe --host a:2,b:2 -n 4 --mca btl tcp -N2 --nodelist=a,b -w c --map-by node -x PATH"))
	if want := "--oversubscribe --mca btl tcp --map-by node -x PATH"; strings.Join(got, " ") != want {
		t.Errorf("%q", got)
	}
}
