package gobuild

import (
	"archive/zip"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
	"github.com/cairnrun/cairn/internal/source"
)

// build builds a program with files in place of those on disk.
func build(output, dir string, patterns []string, files map[string][]byte, o Options) error {
	b, err := New(context.Background(), dir, patterns, o)
	if err != nil {
		return err
	}
	return b.Build(files, output)
}

// frozen makes a tree read-only and returns its files.
func frozen(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			t.Cleanup(func() { os.Chmod(name, 0o755) })
			return os.Chmod(name, 0o555)
		}
		text, err := os.ReadFile(name)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

const (
	useRuntime = "package main\n\nimport cairn_ \"cairnrt/resume\"\n\nfunc init() { cairn_.Due() }\n"
	saysOld    = "package main\n\nfunc main() { println(\"old\") }\n"
	saysNew    = "package main\n\nfunc main() { println(\"new\", part()) }\n"
	partOld    = "package dep\n\nfunc Part() string { return \"old part\" }\n"
	partNew    = "package dep\n\nfunc Part() string { return \"new part\" }\n"
	callsPart  = "package main\n\nimport \"example.com/dep\"\n\nfunc main() { println(dep.Part()) }\n"
)

// layout is a way in which source is arranged on disk.
type layout struct {
	name     string
	files    []string // on disk
	dir      string   // directory in which the go command runs
	patterns []string
	env      []string
	flags    []string
	replaced []string // replacements, by names from the tree's root
	says     string
}

// TestBuild_Layouts builds programs with rewritten files in modules,
// workspaces, vendor directories and other layouts.
func TestBuild_Layouts(t *testing.T) {
	gomod := "module example.com/prog\n\ngo 1.26\n"
	withDep := gomod + "\nrequire example.com/dep v1.2.3\n"
	flags := []string{"-tags=big"}
	if long {
		flags = append(flags, "-trimpath")
	}
	for _, l := range []layout{
		{
			name: "module", files: []string{"go.mod", gomod, "cmd/sim/main.go", saysOld}, patterns: []string{"./cmd/sim"},
			replaced: []string{"cmd/sim/main.go", saysNew, "cmd/sim/zz_cairn.go", useRuntime + "func part() string { return \"\" }\n"}, says: "new",
		},
		{
			name: "from a directory below", files: []string{"go.mod", gomod, "cmd/sim/main.go", saysOld}, dir: "cmd", patterns: []string{"example.com/prog/cmd/sim"},
			replaced: []string{"cmd/sim/main.go", "package main\n\nfunc main() { println(\"new\") }\n"}, says: "new",
		},
		{
			name: "lone file", files: []string{"main.go", saysOld}, patterns: []string{"main.go"},
			replaced: []string{"main.go", saysNew, "zz_cairn.go", useRuntime + "func part() string { return \"alone\" }\n"}, says: "new alone",
		},
		{
			name: "vendored",
			files: []string{"go.mod", withDep, "main.go", callsPart, "vendor/modules.txt", "# example.com/dep v1.2.3\n## explicit; go 1.26\nexample.com/dep\n",
				"vendor/example.com/dep/dep.go", partOld},
			replaced: []string{"vendor/example.com/dep/dep.go", partNew, "zz_cairn.go", useRuntime}, says: "new part",
		},
		{
			name: "GOPATH", files: []string{"src/prog/main.go", callsPart, "src/example.com/dep/dep.go", partOld}, dir: "src/prog",
			env:      []string{"GO111MODULE=off", "GOPATH=TREE"},
			replaced: []string{"src/example.com/dep/dep.go", partNew, "src/prog/zz_cairn.go", useRuntime}, says: "new part",
		},
		{
			name: "workspace",
			files: []string{"go.work", "go 1.26\n\nuse ./prog\nuse ./dep\n", "prog/go.mod", withDep, "prog/main.go", callsPart,
				"dep/go.mod", "module example.com/dep\n\ngo 1.26\n", "dep/dep.go", partOld},
			dir: "prog", env: []string{"GOWORK=TREE/go.work"},
			replaced: []string{"dep/dep.go", partNew}, says: "new part",
		},
		{
			name: "replaced module",
			files: []string{"prog/go.mod", withDep + "\nreplace example.com/dep => ../dep\n", "prog/main.go", callsPart,
				"dep/go.mod", "module example.com/dep\n\ngo 1.26\n", "dep/dep.go", partOld},
			dir: "prog", replaced: []string{"dep/dep.go", partNew}, says: "new part",
		},
		{
			name: "embedded files, generics and tags",
			files: []string{"go.mod", gomod, "text.txt", "from a file", "tagged.go", "//go:build big\n\npackage main\n\nconst big = true\n",
				"main.go", saysOld},
			flags: flags,
			replaced: []string{"main.go", "package main\n\nimport _ \"embed\"\n\n//go:embed text.txt\nvar text string\n\n" +
				"func first[T any](a, _ T) T { return a }\n\nfunc main() { println(first(text, \"\"), big) }\n", "zz_cairn.go", useRuntime},
			says: "from a file true",
		},
	} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			l.try(t)
		})
	}
}

func (l *layout) try(t *testing.T) {
	dir := programtest.Tree(t, l.files...)
	before := frozen(t, dir)
	var env []string
	for _, e := range l.env {
		env = append(env, strings.ReplaceAll(e, "TREE", dir))
	}
	replaced := make(map[string][]byte)
	for i := 0; i < len(l.replaced); i += 2 {
		replaced[filepath.Join(dir, filepath.FromSlash(l.replaced[i]))] = []byte(l.replaced[i+1])
	}
	out := filepath.Join(t.TempDir(), "program")
	err := build(out, filepath.Join(dir, l.dir), l.patterns, replaced, Options{Flags: l.flags, Env: programtest.Offline(env...)})
	if err != nil {
		t.Fatal(err)
	}
	if got := programtest.Says(t, out); got != l.says {
		t.Errorf("it says %q, not %q", got, l.says)
	}
	for name, text := range frozen(t, dir) {
		if before[name] != text {
			t.Errorf("%s was changed or made", name)
		}
	}
}

// proxy adds a module to a directory that serves as GOPROXY.
func proxy(t *testing.T, path, version string, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	zipped := filepath.Join(dir, path, "@v")
	if err := os.MkdirAll(zipped, 0o755); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	writeZip(t, &buf, path+"@"+version+"/", files)
	gomod := "module " + path + "\n"
	for i := 0; i < len(files); i += 2 {
		if files[i] == "go.mod" {
			gomod = files[i+1]
		}
	}
	for name, text := range map[string]string{"list": version + "\n", version + ".info": `{"Version":"` + version + `"}`, version + ".mod": gomod, version + ".zip": buf.String()} {
		if err := os.WriteFile(filepath.Join(zipped, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + filepath.ToSlash(dir)
}

// TestBuild_ModuleCache rewrites a package in the module cache, whose files do
// not change.
func TestBuild_ModuleCache(t *testing.T) {
	for _, c := range []struct {
		name, gomod string
		work        bool
	}{
		{name: "module", gomod: "module example.com/dep\n\ngo 1.24\n"},
		{name: "module of before modules"},
		{name: "workspace", gomod: "module example.com/dep\n\ngo 1.24\n", work: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// A package below it has a file of the same name.
			depOld := "package dep\n\nimport (\n\t_ \"embed\"\n\n\t\"example.com/dep/end\"\n)\n\n//go:embed part.txt\nvar part string\n\nfunc Part() string { return part + end.End }\n"
			files := []string{"dep.go", depOld, "part.txt", "old part", "end/dep.go", "package end\n\nconst End = \".\"\n"}
			if c.gomod != "" {
				files = append(files, "go.mod", c.gomod)
			}
			from := proxy(t, "example.com/dep", "v1.2.3", files...)
			dir := programtest.Tree(t, "prog/go.mod", "module example.com/prog\n\ngo 1.26\n\nrequire example.com/dep v1.2.3\n", "prog/main.go", callsPart)
			cache := t.TempDir()
			env := []string{"GOMODCACHE=" + cache, programtest.Flags("-modcacherw -mod=mod")}
			if c.work {
				if err := os.WriteFile(filepath.Join(dir, "go.work"), []byte("go 1.26\n\nuse ./prog\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				env = append(env, "GOWORK="+filepath.Join(dir, "go.work"), programtest.Flags("-modcacherw"))
			}
			prog := filepath.Join(dir, "prog")
			download := exec.Command("go", "build", "-o", filepath.Join(t.TempDir(), "plain"), ".")
			download.Dir, download.Env = prog, programtest.Offline(append(env, "GOPROXY="+from, "GONOSUMDB=*", "GONOSUMCHECK=1", programtest.Flags("-modcacherw"))...)
			if !c.work {
				download.Env = append(download.Env, programtest.Flags("-modcacherw -mod=mod"))
			}
			if text, err := download.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			before := frozen(t, prog)
			out := filepath.Join(t.TempDir(), "program")
			replaced := map[string][]byte{
				filepath.Join(cache, "example.com", "dep@v1.2.3", "dep.go"):        []byte(strings.Replace(depOld, "return part +", "return \"not the \" + part + more +", 1)),
				filepath.Join(cache, "example.com", "dep@v1.2.3", "end", "dep.go"): []byte("package end\n\nconst End = \"!\"\n"),
				filepath.Join(cache, "example.com", "dep@v1.2.3", "zz_cairn.go"):   []byte("package dep\n\nconst more = \" but the new\"\n"),
			}
			err := build(out, prog, nil, replaced, Options{Env: programtest.Offline("GOMODCACHE="+cache, env[len(env)-1], programtest.Flags("")), Cache: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			if got := programtest.Says(t, out); got != "not the old part but the new!" {
				t.Errorf("it says %q", got)
			}
			for name, text := range frozen(t, prog) {
				if before[name] != text {
					t.Errorf("%s was changed or made", name)
				}
			}
		})
	}
}

// TestBuild_Fails shows that errors of the go command and unsupported flags and
// platforms are reported.
func TestBuild_Fails(t *testing.T) {
	dir := programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", saysOld)
	name := filepath.Join(dir, "main.go")
	try := func(text string, o Options) error {
		o.Env = append(programtest.Offline(), o.Env...)
		return build(filepath.Join(t.TempDir(), "program"), dir, nil, map[string][]byte{name: []byte(text)}, o)
	}
	err := try("package main\n\nfunc main() { nonsense() }\n", Options{})
	if !errors.Is(err, ErrBuild) || !strings.Contains(err.Error(), "main.go:3:15: undefined: nonsense") {
		t.Error(err)
	}
	if err := try(saysOld, Options{Flags: []string{"-overlay=x"}}); !errors.Is(err, ErrBuild) {
		t.Error(err)
	}
	if err := try(saysOld, Options{Flags: []string{"-buildmode=c-archive"}}); !errors.Is(err, ErrBuild) {
		t.Error(err)
	}
	if err := try(useRuntime+"func main() {}\n", Options{Env: []string{"GOOS=plan9", "GOARCH=386"}}); !errors.Is(err, ErrBuild) || !strings.Contains(err.Error(), "plan9/386") {
		t.Error(err)
	}
	if err := try(saysOld, Options{Go: filepath.Join(dir, "nogo")}); err == nil {
		t.Error("built without a go command")
	}
}

// TestBuild_NoCLibrary shows that a program that needs no C library still needs
// none.
func TestBuild_NoCLibrary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks at ELF files")
	}
	dir := programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", saysOld)
	out := filepath.Join(t.TempDir(), "program")
	err := build(out, dir, nil, map[string][]byte{filepath.Join(dir, "zz_cairn.go"): []byte(useRuntime)},
		Options{Env: programtest.Offline("CGO_ENABLED=1", "CC=/nowhere/cc")})
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 {
		t.Errorf("it needs %v %v", libs, err)
	}
}

// TestBuild_ProgramUsesCairn shows that a program that uses Cairn gets the run
// time of that Cairn.
func TestBuild_ProgramUsesCairn(t *testing.T) {
	text, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", load.CairnPath).Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(text))
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	gosum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	dir := programtest.Tree(t, "go.mod", strings.Replace(string(gomod), "module "+load.CairnPath, "module x", 1)+
		"\nrequire "+load.CairnPath+" v0.0.0\n\nreplace "+load.CairnPath+" => "+root+"\n", "go.sum", string(gosum), "main.go", saysOld)
	out := filepath.Join(t.TempDir(), "program")
	err = build(out, dir, nil, map[string][]byte{filepath.Join(dir, "zz_cairn.go"): []byte(strings.Replace(useRuntime, "cairnrt/resume", load.RuntimePath, 1))},
		Options{Env: programtest.Offline(programtest.Flags("-mod=mod")), Cache: filepath.Join(dir, "none")})
	if err != nil {
		t.Fatal(err)
	}
	if got := programtest.Says(t, out); got != "old" {
		t.Errorf("it says %q", got)
	}
	binary, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(binary, []byte(load.RuntimePath+".")) || bytes.Contains(binary, []byte(runtimeRoot+"/resume.")) {
		t.Error("it has not the run time of its module, or the one of GOROOT")
	}
}

// TestBuild_OSHooks shows that package os calls the run time before it changes
// a file, and that its lines keep their numbers.
func TestBuild_OSHooks(t *testing.T) {
	text, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(text))
	files, err := hookOS(root)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for name, text := range files {
		calls += bytes.Count(text, []byte("cairn_hook(f,"))
		was, err := os.ReadFile(filepath.Join(root, "src", name))
		if err == nil && bytes.Count(was, []byte("\n")) != bytes.Count(text, []byte("\n")) {
			t.Errorf("%s has other lines", name)
		}
	}
	if calls < len(hookedMethods) {
		t.Errorf("%d calls in %d files", calls, len(files))
	}
}

// TestSource_HasAllFiles shows that every file of the run time is in
// source.Files, for every system.
func TestSource_HasAllFiles(t *testing.T) {
	for _, target := range []string{"linux/amd64", "linux/arm64", "linux/s390x", "darwin/arm64", "windows/amd64"} {
		system, arch, _ := strings.Cut(target, "/")
		cmd := exec.Command("go", "list", "-deps", "-tags=static", "-f",
			`{{if not .Standard}}{{$p := .ImportPath}}{{range .GoFiles}}{{$p}}/{{.}}{{"\n"}}{{end}}{{range .SFiles}}{{$p}}/{{.}}{{"\n"}}{{end}}{{range .HFiles}}{{$p}}/{{.}}{{"\n"}}{{end}}{{end}}`, load.RuntimePath)
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
		text, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for name := range strings.FieldsSeq(string(text)) {
			name, ok := strings.CutPrefix(name, load.CairnPath+"/")
			if !ok || name == "source.go" {
				continue
			}
			n++
			if _, err := fs.Stat(source.Files, name); err != nil {
				t.Errorf("%s: %v; add a pattern for it to source.go", target, err)
			}
		}
		if n < 100 {
			t.Errorf("%s: %d files", target, n)
		}
	}
	tests, err := fs.Glob(source.Files, "*/*_test.go")
	if err != nil || len(tests) > 0 {
		t.Errorf("%v %v", tests, err)
	}
}

// long says that tests may compile a standard library for themselves.
var long = os.Getenv("CAIRN_LONG") != ""

func onlyLong(t *testing.T) {
	t.Helper()
	if !long {
		t.Skip("it compiles a standard library: set CAIRN_LONG=1")
	}
}

// TestRuntime_Platforms shows that the run time compiles for all platforms.
func TestRuntime_Platforms(t *testing.T) {
	onlyLong(t)
	dir := programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", saysOld)
	for _, target := range []string{"linux/arm64", "linux/s390x", "darwin/arm64"} {
		if !slices.Contains(platforms, target) {
			t.Errorf("%s is not among them", target)
		}
		system, arch, _ := strings.Cut(target, "/")
		err := build(filepath.Join(t.TempDir(), "program"), dir, nil, map[string][]byte{filepath.Join(dir, "zz_cairn.go"): []byte(useRuntime)},
			Options{Env: programtest.Offline("GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")})
		if err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// TestRuntime_Constraints checks what remains of build constraints when the tag
// static holds.
func TestRuntime_Constraints(t *testing.T) {
	for _, c := range [][2]string{
		{"//go:build !static\n\npackage p\n", ""},
		{"//go:build static\n\npackage p\n", "\n\npackage p\n"},
		{"// Words.\n\n//go:build !linux || (!amd64 && !arm64) || static\n\npackage p\n", "// Words.\n\n\n\npackage p\n"},
		{"//go:build linux && (amd64 || arm64) && !static\n\npackage p\n", ""},
		{"//go:build linux && static\n\npackage p\n", "//go:build linux\n\npackage p\n"},
		{"//go:build (!static || amd64) && !cgo\n\npackage p\n", "//go:build amd64 && !cgo\n\npackage p\n"},
		{"//go:build linux\n\npackage p\n", "//go:build linux\n\npackage p\n"},
		{"package p\n\n//go:build !static\n", "package p\n\n//go:build !static\n"},
	} {
		if got := string(simplifyConstraint([]byte(c[0]))); got != c[1] {
			t.Errorf("%q became %q, not %q", c[0], got, c[1])
		}
	}
}

// TestRuntime_Imports checks that the imports of the run time's files name its
// packages and shims in programs. Others are refused.
func TestRuntime_Imports(t *testing.T) {
	text := "package p\n\nimport (\n\t\"fmt\"\n\tx \"github.com/zeebo/xxh3\"\n\t\"github.com/cairnrun/cairn\"\n\t\"github.com/cairnrun/cairn/store\" // as it is\n)\n\nconst s = \"github.com/cairnrun/cairn\"\n"
	want := "package p\n\nimport (\n\t\"fmt\"\n\tx \"cairnrt/shims/xxh3\"\n\t\"cairnrt\"\n\t\"cairnrt/store\" // as it is\n)\n\nconst s = \"github.com/cairnrun/cairn\"\n"
	if got, err := runtimeText("p.go", []byte(text)); err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
	if _, err := runtimeText("p.go", []byte("package p\n\nimport \"example.com/unknown\"\n")); err == nil || !strings.Contains(err.Error(), "p.go:3:8") {
		t.Error(err)
	}
}

// TestRuntime_Zstd shows that the shim reads what this process compresses. It
// uses a package that only the standard library can import.
func TestRuntime_Zstd(t *testing.T) {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("all work and no play "), 40000)
	name := filepath.Join(t.TempDir(), "packed")
	if err := os.WriteFile(name, e.EncodeAll(text, nil), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := programtest.Tree(t, "main.go", saysOld)
	out := filepath.Join(t.TempDir(), "program")
	program := `package main

import (
	"bytes"
	"fmt"
	"os"

	"cairnrt/shims/zstd"
)

func main() {
	packed, err := os.ReadFile(os.Getenv("PACKED"))
	if err != nil {
		panic(err)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		panic(err)
	}
	text := bytes.Repeat([]byte("all work and no play "), 40000)
	for range 2 {
		got, err := d.DecodeAll(packed, make([]byte, 0, len(text)))
		fmt.Println(bytes.Equal(got, text), err)
		_, err = d.DecodeAll(packed, make([]byte, 0, len(text)-1))
		fmt.Println(err == zstd.ErrDecoderSizeExceeded)
		_, err = d.DecodeAll(packed[:len(packed)/2], make([]byte, 0, len(text)))
		fmt.Println(err != nil)
	}
	_, err = zstd.NewWriter(nil)
	fmt.Println(err == zstd.ErrNoEncoder)
}
`
	if err := build(out, dir, []string{"main.go"}, map[string][]byte{filepath.Join(dir, "main.go"): []byte(program)}, Options{Env: programtest.Offline()}); err != nil {
		t.Fatal(err)
	}
	if got, want := programtest.Says(t, out, "PACKED="+name), strings.TrimSpace(strings.Repeat("true <nil>\ntrue\ntrue\n", 2)+"true"); got != want {
		t.Errorf("%s", got)
	}
}

// TestBuild_ToolchainInModuleCache has a toolchain that the go command
// downloaded. It is in the module cache, where files cannot be overlaid.
func TestBuild_ToolchainInModuleCache(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs links")
	}
	onlyLong(t)
	text, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	root := filepath.Join(cache, "golang.org", "toolchain@v0.0.1-go1.26.0."+runtime.GOOS+"-"+runtime.GOARCH)
	if err := os.MkdirAll(filepath.Join(root, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	real := strings.TrimSpace(string(text))
	if err := errors.Join(linkAll(root, real, "src"), linkAll(filepath.Join(root, "src"), filepath.Join(real, "src"), "")); err != nil {
		t.Fatal(err)
	}
	dir := programtest.Tree(t, "main.go", saysOld)
	out := filepath.Join(t.TempDir(), "program")
	err = build(out, dir, []string{"main.go"}, map[string][]byte{filepath.Join(dir, "zz_cairn.go"): []byte(useRuntime)},
		Options{Env: programtest.Offline("GOMODCACHE="+cache, "GOROOT="+root), Cache: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if got := programtest.Says(t, out); got != "old" {
		t.Errorf("it says %q", got)
	}
}

func writeZip(t *testing.T, w io.Writer, prefix string, files []string) {
	t.Helper()
	z := zip.NewWriter(w)
	for i := 0; i < len(files); i += 2 {
		f, err := z.Create(prefix + files[i])
		if err == nil {
			_, err = io.WriteString(f, files[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSaveGoroutines_LinkerFlags shows that the flag for the linker is added to
// each -ldflags of the user, and the tags to each -tags.
func TestSaveGoroutines_LinkerFlags(t *testing.T) {
	for _, c := range []struct {
		goflags     string
		flags, want []string
	}{
		{"", nil, []string{"-ldflags=-checklinkname=0", "-tags=cairn_goroutines,cairn_runtime"}},
		{"-trimpath", []string{"-tags=x", "-ldflags=-s -w"}, []string{"-ldflags=-checklinkname=0", "-tags=x", "-ldflags=-s -w -checklinkname=0", "-tags=x,cairn_goroutines,cairn_runtime"}},
		{"", []string{"-ldflags=example.com/...=-s"}, []string{"-ldflags=-checklinkname=0", "-ldflags=example.com/...=-s -checklinkname=0", "-tags=cairn_goroutines,cairn_runtime"}},
		{"-mod=mod '-ldflags=-s -w' \"-tags=x y\"", nil, []string{"-ldflags=-checklinkname=0", "-ldflags=-s -w -checklinkname=0", "-tags=x,y,cairn_goroutines,cairn_runtime"}},
		{"--ldflags=-w", []string{"-ldflags=-s"}, []string{"-ldflags=-checklinkname=0", "-ldflags=-w -checklinkname=0", "-ldflags=-s -checklinkname=0", "-tags=cairn_goroutines,cairn_runtime"}},
	} {
		b := &Builder{env: map[string]string{"GOFLAGS": c.goflags}, flags: c.flags}
		b.SaveGoroutines()
		if !slices.Equal(b.flags, c.want) {
			t.Errorf("with %q and %q the flags are %q, not %q", c.goflags, c.flags, b.flags, c.want)
		}
	}
}
