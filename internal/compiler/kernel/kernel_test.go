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
	t := device.Translation{Source: source, Entry: k.Entry, Dims: k.Dims, Groups: k.Groups}
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
	for _, f := range []func(*device.Work){k_ints, k_narrow, k_minint, k_shifts, k_float64, k_float32, k_signs, k_convert,
		k_control, k_shadow, k_structs, k_arrays, k_helpers, k_bits, k_consts, k_values, k_complex, k_bools, k_sum, k_own, k_rows, k_blocks} {
		device.Register(f, translation(all, byName[device.KernelOf(f).String()]))
	}
	lists := []string{"host", "discrete"}
	for _, backend := range []string{"opencl", "cuda"} {
		if _, err := device.Open(backend); err == nil {
			lists = append(lists, backend)
		} else {
			t.Logf("no %s device: %v", backend, err)
		}
	}
	t.Logf("compared: %v", lists)
	for _, k := range features() {
		t.Run(k.String(), func(t *testing.T) {
			var first []byte
			for _, name := range lists {
				devs, err := device.Open(name)
				must(t, err)
				got := runFeature(t, devs[0], k)
				if first == nil {
					first = got
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
	case "k_blocks":
		must(t, d.Launch(k, device.Size{n - 1, 20}.In(7, 3), device.InOut(f64), device.In(fl), device.Local[float64](21), int32(n)))
		return raw(t, f64)
	}
	must(t, d.Launch(k, size, device.Out(i64), device.In(in)))
	return raw(t, i64)
}
