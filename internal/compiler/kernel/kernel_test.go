package kernel_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/compiler/kernel"
)

// exports returns the export data files of packages and of what they import.
func exports(t testing.TB, packages ...string) func(string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) string { return files[path] }
}

// source type-checks a file; src is as in parser.ParseFile.
func source(t testing.TB, export func(string) string, name string, src any) *kernel.Source {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	s, err := kernel.Check(fset, "p", "", []*ast.File{f}, export)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func translation(source string, k *kernel.Kernel) device.Translation {
	t := device.Translation{Source: source, Entry: k.Entry, Dims: k.Dims, Groups: k.Groups, Most: k.Most, AnyGroup: k.AnyGroup}
	for _, p := range k.Params {
		t.Params = append(t.Params, device.Param(p))
	}
	return t
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// array makes an array with the bytes of values.
func array[T any](t *testing.T, values []T) *device.Array[T] {
	a := device.New[T](len(values))
	must(t, a.Update(func(v []T) { copy(v, values) }))
	return a
}

func ints() []int64 {
	special := []int64{0, 1, -1, 2, -2, 7, math.MaxInt64, math.MinInt64, math.MaxInt32, math.MinInt32, 1 << 32, 255, -128, 65535}
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]int64, 2*featureItems)
	for i := range list {
		switch {
		case i < len(special)*len(special)*2 && i%2 == 0:
			list[i] = special[i/2%len(special)]
		case i < len(special)*len(special)*2:
			list[i] = special[i/2/len(special)%len(special)]
		default:
			list[i] = int64(r.Uint64()) >> r.IntN(64)
		}
	}
	return list
}

func floats() []float64 {
	r := rand.New(rand.NewPCG(3, 4))
	list := make([]float64, 2*featureItems)
	for i := range list {
		list[i] = math.Ldexp(r.Float64()-0.5, r.IntN(20)-8)
	}
	copy(list, []float64{0, 1, -1, 0.5, 2.5, -2.5, 1.5, -0.5, 3, 1e-310, -7, 0.1})
	return list
}

// translated translates the kernels of features_test.go. CAIRN_TRANSLATED names
// a file that keeps the translation, for a machine with devices and without Go.
func translated(t *testing.T) (list []*kernel.Kernel) {
	keep := os.Getenv("CAIRN_TRANSLATED")
	if text, err := os.ReadFile(keep); err == nil {
		must(t, json.Unmarshal(text, &list))
		return list
	}
	s := source(t, exports(t, "github.com/cairnrun/cairn/device", "math/bits"), "features_test.go", nil)
	list, err := kernel.Translate(s)
	must(t, err)
	if keep != "" {
		for _, k := range list {
			k.Decls = nil
		}
		text, err := json.Marshal(list)
		must(t, err)
		must(t, os.WriteFile(keep, text, 0o666))
	}
	return list
}

// TestFeatures runs small kernels, each with a feature of the language, on the
// host and on OpenCL and CUDA devices, and compares the bytes.
func TestFeatures(t *testing.T) {
	list := translated(t)
	byName := make(map[string]*kernel.Kernel)
	for _, k := range list {
		byName[k.Name] = k
	}
	all := kernel.Join(list) // compiled once
	register := func(source string) {
		for _, f := range []func(*device.Work){k_ints, k_narrow, k_minint, k_shifts, k_float64, k_float32, k_signs, k_convert,
			k_control, k_shadow, k_structs, k_arrays, k_helpers, k_bits, k_consts, k_values, k_complex, k_bools, k_sum, k_own, k_rows, k_blocks,
			k_index, k_tile, k_items, k_part, k_complete} {
			device.Register(f, translation(source, byName[device.KernelOf(f).String()]))
		}
	}
	register(all)
	lists := []string{"host", "discrete"}
	for _, backend := range []string{"opencl", "cuda"} {
		if _, err := device.Open(backend); err == nil {
			lists = append(lists, backend)
		} else {
			t.Logf("no %s device: %v", backend, err)
		}
	}
	t.Logf("compared: %v", lists)
	results := make(map[string][]byte)
	for _, k := range features() {
		t.Run(k.String(), func(t *testing.T) {
			first := results[k.String()]
			for _, name := range lists {
				devs, err := device.Open(name)
				must(t, err)
				got := runFeature(t, devs[0], k)
				if first == nil {
					first = got
					results[k.String()] = first
				}
				if i := differ(first, got); i >= 0 {
					t.Errorf("%s: byte %d differs: %x and %x\n%s", name, i, first[i/8*8:min(i/8*8+8, len(first))], got[i/8*8:min(i/8*8+8, len(got))], byName[k.String()].Source)
				}
			}
			if bytes.Count(first, []byte{0}) == len(first) {
				t.Error("the result is zero")
			}
		})
	}
	// The same with indexes of 32 bits, as in small launches on GPUs, and
	// of 64, as in others.
	some := []*kernel.Kernel{byName["k_index"], byName["k_tile"], byName["k_rows"], byName["k_helpers"], byName["k_items"], byName["k_part"]}
	for _, index := range []string{"int", "long"} {
		register("#undef CAIRN_INDEX\n#define CAIRN_INDEX " + index + "\n" + kernel.Join(some))
		for _, k := range some {
			t.Run(k.Name+" "+index, func(t *testing.T) {
				for _, name := range lists {
					devs, err := device.Open(name)
					must(t, err)
					for _, f := range features() {
						if f.String() == k.Name && differ(results[k.Name], runFeature(t, devs[0], f)) >= 0 {
							t.Errorf("%s: other bytes", name)
						}
					}
				}
			})
		}
	}
}

// TestFeatures_LargeIndexes uses elements and items whose numbers need 32 bits
// or more.
func TestFeatures_LargeIndexes(t *testing.T) {
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("allocates 2 GiB: set CAIRN_LONG")
	}
	list := translated(t)
	for _, k := range list {
		if k.Name == "k_far" {
			device.Register(k_far, translation(kernel.Join(list), k))
		}
	}
	for _, name := range []string{"host", "discrete", "opencl", "cuda"} {
		devs, err := device.Open(name)
		if err != nil {
			t.Logf("no %s device: %v", name, err)
			continue
		}
		const n, count = 1<<31 + 1000, 500
		if i := devs[0].Info(); name == "opencl" && i.MaxAlloc < n {
			t.Logf("%s has no room", name)
			continue
		}
		out := device.New[uint8](n)
		run := func(size, first, mark int64) {
			must(t, devs[0].Launch(far, device.Size{int(size)}, device.Out(out), first, mark))
			v, err := out.Rows(int(first), int(first)+count).Read()
			must(t, err)
			for i, x := range v {
				if x != uint8(7*i+1) {
					t.Fatalf("%s: element %d is %d", name, first+int64(i), x)
				}
			}
		}
		run(count, n-count, 0)
		run(count, 1<<31-count/2, 0)
		if name == "cuda" { // others take long
			run(1<<31+count, 100, 1<<31)
			run(1<<31+count, n-count, 1<<31)
		}
		out.Free()
		t.Logf("ran on %s", name)
	}
}

// TestTranslate_LocalMemoryPerItem shows which local memory becomes a variable
// of each item, and for which groups.
func TestTranslate_LocalMemoryPerItem(t *testing.T) {
	export := exports(t, "github.com/cairnrun/cairn/device")
	for _, c := range []struct {
		index, other string // the second one in another loop
		own          bool
		most         [3]int
	}{
		{index: "(y-y0)*8+x-x0", own: true, most: [3]int{8}},
		{index: "x-x0+8*(y-y0)", own: true, most: [3]int{8}},
		{index: "(y-y0)*(x1-x0)+x-x0", own: true},
		{index: "(y-y0)*wide+x-x0", own: true},
		{index: "(y-y0)*g.Local[0]+x-x0", own: true},
		{index: "(y-y0)*16+2*(x-x0)", own: true, most: [3]int{8}},
		{index: "(y-y0)*3+2*(x-x0)", own: true, most: [3]int{1}},
		{index: "(y-y0)*(y1-y0)+x-x0"},
		{index: "x-x0"},
		{index: "(y-y0)*0+x-x0"},
		{index: "(y0-y)*8+x-x0"},
		{index: "(y-y0)*8+x-x0", other: "(y-y0)*9+x-x0"},
		{index: "(y-y0)*wide+x-x0", other: "(y-y0)*(x1-x0)+x-x0"},
	} {
		if c.other == "" {
			c.other = c.index
		}
		loops := func(body string) string {
			return "for y := y0; y < y1; y++ {\nfor x := x0; x < x1; x++ {\n" + body + "\n}\n}\n"
		}
		s := source(t, export, "p.go", "package p\nimport \"github.com/cairnrun/cairn/device\"\nvar _ = device.KernelOf(f)\n"+
			"func f(w *device.Work) {\nout, l := device.Slice[float64](w, 0), device.LocalSlice[float64](w, 1)\n"+
			"for g := range w.Groups() {\nx0, x1 := g.Range(0)\ny0, y1 := g.Range(1)\nwide := g.Local[0]\n_, _, _ = x1, y1, wide\n"+
			loops("l["+c.index+"] = 1")+loops("out[y*100+x] = l["+c.other+"]")+"}\n}\n")
		list, err := kernel.Translate(s)
		must(t, err)
		k := list[0]
		body, _, _ := strings.Cut(k.Source, "f_any(")
		if got := strings.Contains(body, "own1 = 1.0"); got != c.own || k.Most != c.most || (k.AnyGroup != "") != (c.most != [3]int{}) {
			t.Errorf("%s, %s: a variable: %v, for groups up to %v (%q); want %v, %v", c.index, c.other, got, k.Most, k.AnyGroup, c.own, c.most)
		}
		if i := strings.Index(k.Source, "f_any("); i >= 0 && (strings.Contains(k.Source[i:], "own1") || !strings.Contains(k.Source[i:], "barrier(")) {
			t.Errorf("%s: %s", c.index, k.Source[i:])
		}
	}
}

func differ(a, b []byte) int {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func raw[T any](t *testing.T, a *device.Array[T]) []byte {
	v, err := a.Read()
	must(t, err)
	var b bytes.Buffer
	must(t, binary.Write(&b, binary.LittleEndian, v))
	return b.Bytes()
}

func runFeature(t *testing.T, d *device.Device, k *device.Kernel) []byte {
	in, fl := array(t, ints()), array(t, floats())
	size := device.Grid(device.Size{featureItems})
	i64, f64 := device.New[int64](featureItems), device.New[float64](2*featureItems)
	const n = 24
	switch name := k.String(); name {
	case "k_float64":
		must(t, d.Launch(k, size, device.InOut(f64), device.In(fl)))
		return raw(t, f64)
	case "k_consts":
		must(t, d.Launch(k, size, device.InOut(f64)))
		return raw(t, f64)
	case "k_values":
		must(t, d.Launch(k, size, device.InOut(f64), int32(-5), uint32(1<<31), int64(1)<<40, uint64(1)<<63, float32(0.1), 3.9))
		return raw(t, f64)
	case "k_float32":
		out := device.New[float32](featureItems)
		must(t, d.Launch(k, size, device.Out(out), device.In(fl)))
		return raw(t, out)
	case "k_signs":
		out := device.New[uint64](featureItems)
		must(t, d.Launch(k, size, device.Out(out), device.In(fl)))
		return raw(t, out)
	case "k_convert", "k_helpers":
		must(t, d.Launch(k, size, device.Out(i64), device.In(in), device.In(fl)))
		return raw(t, i64)
	case "k_structs":
		ps := device.New[pair](featureItems)
		must(t, ps.Update(func(v []pair) {
			for i := range v {
				v[i] = pair{float32(i) / 3, int16(i * 300), i%3 == 0, [3]uint8{1, uint8(i), 3}, float64(i)}
			}
		}))
		must(t, d.Launch(k, size, device.InOut(f64), device.In(fl), device.InOut(ps)))
		v, err := ps.Read()
		must(t, err)
		b := raw(t, f64)
		for _, p := range v {
			b = append(b, byte(p.b), byte(p.b>>8), p.d[0], p.d[1], p.d[2], map[bool]byte{true: 1}[p.c])
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(p.a))
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(p.e))
		}
		return b
	case "k_complex":
		c, out := device.New[complex128](featureItems), device.New[complex128](featureItems)
		must(t, c.Update(func(v []complex128) {
			for i := range v {
				v[i] = complex(float64(i)/7, -float64(i)/3)
			}
		}))
		must(t, d.Launch(k, size, device.Out(out), device.In(c)))
		return raw(t, out)
	case "k_bools":
		out := device.New[uint8](featureItems)
		must(t, d.Launch(k, size, device.Out(out), device.In(in)))
		return raw(t, out)
	case "k_sum":
		must(t, d.Launch(k, device.Size{featureItems}.In(featureGroup), device.InOut(f64), device.In(fl), device.Local[float64](featureGroup)))
		return raw(t, f64)
	case "k_own":
		must(t, d.Launch(k, device.Size{featureItems}.In(featureGroup), device.InOut(f64), device.In(fl), device.Local[float64](featureGroup), device.Local[float64](featureGroup)))
		return raw(t, f64)
	case "k_rows":
		must(t, d.Launch(k, device.Size{n, 20}, device.InOut(f64), device.In(fl), int32(n)))
		return raw(t, f64)
	case "k_complete":
		must(t, d.Launch(k, device.Size{n, 20}, device.InOut(f64), device.In(fl)))
		return raw(t, f64)
	case "k_tile":
		high := device.New[float64](2 * featureItems)
		must(t, d.Launch(k, device.Size{n - 1, 20}.In(8, 3), device.InOut(f64), device.In(fl), device.Local[float64](24), int32(n)))
		must(t, d.Launch(k, device.Size{n - 1, 20}.In(16, 1), device.InOut(high), device.In(fl), device.Local[float64](16), int32(n)))
		return append(raw(t, f64), raw(t, high)...)
	case "k_items":
		must(t, d.Launch(k, device.Size{n - 1, 20}.In(7, 3), device.InOut(f64), device.In(fl), device.Local[float64](21), device.Local[float64](21), int32(n)))
		return raw(t, f64)
	case "k_blocks":
		must(t, d.Launch(k, device.Size{n - 1, 20}.In(7, 3), device.InOut(f64), device.In(fl), device.Local[float64](21), int32(n)))
		return raw(t, f64)
	}
	must(t, d.Launch(k, size, device.Out(i64), device.In(in)))
	return raw(t, i64)
}
