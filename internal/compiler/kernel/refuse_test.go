package kernel_test

import (
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/kernel"
)

// TestTranslate_Refuses shows that what is outside of the subset is an error
// with the line, and names what to do.
func TestTranslate_Refuses(t *testing.T) {
	export := exports(t, "github.com/cairnrun/cairn/device", "strings")
	const head = `package p
import (
	"math"
	"strings"
	"github.com/cairnrun/cairn/device"
)
var _ = math.Pi
var _ = strings.ToUpper
var global float64
type T struct{ A, B float64; N int }
type U struct{ T }
type I interface{ M() }
func (t *T) ptr() float64 { return t.A }
func generic[X any](x X) X { return x }
func recursive(n int) int { if n > 0 { return recursive(n-1) }; return 0 }
func store(v []float64, i int) float64 { v[i] = 1; return 2 }
func first(v []float64) int { return int(v[0]) }
func takesWork(w *device.Work) {}
func variadic(x ...float64) {}
var k = device.KernelOf(f)
func f(w *device.Work) {
	x, y, l := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.LocalSlice[float64](w, 2)
	lo, hi := w.Range(0)
	_, _, _, _, _ = x, y, l, lo, hi
`
	line := strings.Count(head, "\n") + 1
	items := func(body string) string { return "for i := lo; i < hi; i++ {\n" + body + "\n}" }
	for _, c := range []struct {
		name, body string
		at         int // the line after the head
		want       string
	}{
		{"package variable", items("x[i] = global"), 1, "package variable global: make it a constant, or an argument"},
		{"closure", items("g := func() float64 { return 1 }; x[i] = g()"), 1, "declare a function"},
		{"make", items("v := make([]float64, 3); x[i] = v[0]"), 1, "a slice in a kernel is an argument"},
		{"append", items("x[i] = float64(len(append(y, 1)))"), 1, "a slice in a kernel"},
		{"map", items("m := map[int]int{}; x[i] = float64(m[1])"), 1, "literal of type map[int]int"},
		{"string", items("s := \"a\"; x[i] = float64(len(s))"), 1, "constants of type string"},
		{"pointer", items("p := &x[i]; *p = 1"), 1, "pointers: pass values"},
		{"method of a pointer", items("var t T; x[i] = t.ptr()"), 1, "use a value as receiver"},
		{"interface", items("var v I; _ = v"), 1, "values of type p.I"},
		{"goroutine", items("go takesWork(w)"), 1, "goroutines: work items run in parallel"},
		{"defer", items("defer takesWork(w)"), 1, "defer"},
		{"channel", items("c := make(chan int); c <- 1"), 1, "allocate memory"},
		{"goto", items("goto a\na:\nx[i] = 1"), 1, "cannot use goto: use if and for"},
		{"fallthrough", items("switch i {\ncase 0:\nfallthrough\ncase 1:\n}"), 3, "fallthrough"},
		{"generic", items("x[i] = generic(1.0)"), 1, "generic function generic: write one for each type"},
		{"recursion", items("x[i] = float64(recursive(i))"), -5, "recursion: recursive calls itself"},
		{"effect in an expression", items("x[i] = 1 + store(y, i)"), 1, "assign its result to a variable first"},
		{"work passed on", items("takesWork(w)"), 1, "the *device.Work can only be used for its methods"},
		{"variadic", items("variadic(1, 2)"), 1, "any number of arguments"},
		{"other package", items("x[i] = float64(strings.Count(\"a\", \"b\"))"), 1, "strings.Count: it can call functions of its own package, and of math"},
		{"math", items("x[i] = math.Gamma(x[i])"), 1, "math.Gamma: docs/devices.md lists"},
		{"math.Min", items("x[i] = math.Min(x[i], 1)"), 1, "use min"},
		{"panic", items("panic(1)"), 1, "write a value that the program checks"},
		{"copy", items("copy(x, y)"), 1, "assign the elements in a loop"},
		{"int in memory", "z := device.Slice[int](w, 3)\n" + items("z[i] = 1"), -2, "size differs between machines: use int32 or int64"},
		{"int in a struct", "z := device.Slice[T](w, 3)\n" + items("z[i].A = 1"), -2, "the field N of p.T cannot be of type int"},
		{"embedded", items("var u U; x[i] = u.A"), 1, "give the field a name"},
		{"struct compared", items("var a, b T; if a == b { x[i] = 1 }"), 1, "compare their fields"},
		{"array copied", items("var a, b [3]float64; a = b; x[i] = a[0]"), 1, "copy its elements in a loop"},
		{"slice assigned", items("v := x[i:]\nv = y\nv[0] = 1"), 1, "declare another variable, or use an index"},
		{"type declared", items("type Z float64; x[i] = 1"), 1, "declare Z outside"},
		{"carried value", "s := 0.0\n" + items("s += y[i]\nx[i] = s"), 2, "declared outside of the loop: items run in parallel"},
		{"write outside of items", "x[0] = 1\n" + items("x[i] = 1"), 0, "under an if for one item"},
		{"write in a row", "ylo, yhi := w.Range(1)\nfor j := ylo; j < yhi; j++ {\nx[j] = 1\n" + items("y[i] = 1") + "}", 2, "all its 2 dimensions"},
		{"written array read outside", "s := x[0]\n" + items("x[i] = s"), 0, "move this into a loop over items"},
		{"break", items("if i > 3 { break }"), 1, "use continue and a condition"},
		{"return", items("if i > 3 { return }"), 1, "use continue or if"},
		{"continue of an outer loop", "ylo, yhi := w.Range(1)\na:\nfor j := ylo; j < yhi; j++ {\n" + items("if i > 3 { continue a }") + "}", 4, "cannot leave a loop over work items"},
		{"loop from elsewhere", "for i := lo + 1; i < hi; i++ {\nx[i] = 1\n}", 0, "write a loop over items as"},
		{"loop with a step", "for i := lo; i < hi; i += 2 {\nx[i] = 1\n}", 0, "write a loop over items as"},
		{"item changed", items("i++\nx[i] = 1"), 0, "leave x unchanged"},
		{"same dimension twice", items("for j := lo; j < hi; j++ { x[j] = 1 }"), 1, "inside of another one over the same dimension"},
		{"dependent loops", items("x[i] = 1") + "\n" + items("y[i] = x[i+1]"), 3, "use two kernels, or groups"},
		{"value of another type", "n := device.Value[int8](w, 3)\n_ = n", 0, "cannot be a int8: pass an int32"},
		{"part in groups", "for g := range w.Groups() {\na, b := w.Range(0)\nfor i := a; i < b; i++ { x[i] = 1 }\n_ = g\n}", 1, "use the group's"},
		{"items of the part in groups", "for g := range w.Groups() {\nn := w.Items(0)\nfor i := range n { x[i] = 1 }\n_ = g\n}", 1, "use the group's"},
		{"range of the part before groups", "n := w.Items(0)\nfor g := range w.Groups() {\na, _ := g.Range(0)\nfor i := lo; i < hi; i++ { x[i] += float64(a+n) }\n}", -2, "use the group's"},
		{"dependent loops in a row", "ylo, yhi := w.Range(1)\nfor j := ylo; j < yhi; j++ {\n" + items("x[j*9+i] = 1") + "\n" + items("y[j*9+i] = x[j*9+8-i]") + "}", 6, "this depends on line"},
		{"dependent loops in a row of a group", "for g := range w.Groups() {\na, b := g.Items(0), g.Items(1)\nfor j := range b {\nfor i := range a { l[j*a+i] = 1 }\nfor i := range a { y[j*9+i] = l[j*a] }\n}\n}", 4, "this depends on line"},
		{"loop over a loop in a row", "ylo, yhi := w.Range(1)\nfor j := ylo; j < yhi; j++ {\nfor range 3 {\n" + items("x[j*9+i] += x[j*9+i+1]") + "}\n}", 4, "this depends on line"},
		{"written array read after a row", "ylo, yhi := w.Range(1)\nfor j := ylo; j < yhi; j++ {\n" + items("x[j*9+i] = 1") + "\ns := x[j*9]\n" + items("y[j*9+i] -= s") + "}", 5, "this depends on line"},
		{"value carried by groups", "for s := 0; s < 1; s++ {\n}\nc := 0\nfor g := range w.Groups() {\nc++\na := g.Items(0)\nfor i := range a { x[i] = float64(c) }\n}", 4, "groups run in parallel"},
		{"local memory read in the bounds in a row", "for g := range w.Groups() {\na, b := g.Items(0), g.Items(1)\nfor j := range b {\nfor i := range min(a, first(l[j*a:])) { l[j*a+i] = 1 }\n}\n}", 3, "this depends on line"},
		{"items from 1", "n := w.Items(0)\nfor i := 1; i < n; i++ {\nx[lo+i] = 1\n}", 1, "write a loop over items as"},
		{"items and range", "n := w.Items(0)\nfor i := lo; i < n; i++ {\nx[i] = 1\n}", 1, "write a loop over items as"},
		{"item of a range changed", "n := w.Items(0)\nfor i := range n {\ni++\nx[lo] = 1\n}", 1, "leave x unchanged"},
		{"number of items changed", "n := w.Items(0)\nn++\nfor i := range n {\nx[lo+i] = 1\n}", 0, "cannot assign to n"},
		{"bound changed in the loop", "n, m := w.Items(0), 3\nfor i := range min(n, m) {\nm = i\nx[lo+i] = 1\n}", 1, "changes m, which is in its bounds"},
		{"items inside of items", "n := w.Items(0)\nfor i := range n {\nfor j := range n {\nx[lo+i+j] = 1\n}\n}", 2, "inside of another one over the same dimension"},
		{"dependent loops over items", "n := w.Items(0)\nfor i := range n {\nx[lo+i] = 1\n}\nfor i := range n {\ny[lo+i] = x[lo+i+1]\n}", 4, "use two kernels, or groups"},
		{"return of a group", "for g := range w.Groups() {\na, b := g.Range(0)\nif a > 3 { return }\nfor i := a; i < b; i++ { x[i] = 1 }\n}", 2, "use continue or if"},
		{"local memory outside of items", "for g := range w.Groups() {\na, b := g.Range(0)\nfor i := a; i < b; i++ { l[i-a] = 1 }\ns := l[0]\nfor i := a; i < b; i++ { x[i] = s }\n}", 3, "move this into a loop over items"},
	} {
		t.Run(c.name, func(t *testing.T) {
			head := head
			if strings.HasPrefix(c.body, "for g") || strings.HasPrefix(c.body, "for s") {
				head = strings.Replace(head, "w.Range(0)", "0, 0", 1)
			}
			s := source(t, export, "p.go", head+c.body+"\n}\n")
			_, err := kernel.Translate(s)
			if err == nil {
				t.Fatal("translated")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\ndoes not say %q", err, c.want)
			}
			if at, ok := strings.CutPrefix(err.Error(), "p.go:"); !ok || c.at >= 0 && !strings.HasPrefix(at, itoa(line+c.at)+":") {
				t.Errorf("%v\nis not at line %d", err, line+c.at)
			}
		})
	}
}

func itoa(n int) string {
	return string([]byte{byte('0' + n/10), byte('0' + n%10)})
}
