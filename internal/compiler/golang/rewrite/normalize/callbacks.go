package normalize

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// callbackCopy is a function of the standard library that calls a function of
// the program, as source that can be resumed. In the text, NAME is its name,
// and calls that lead to points have marks. Functions that have no entry are
// copied from the standard library as they are.
type callbackCopy struct {
	imports []string
	text    string
	uses    []string // declarations of the function's package that are copied, with NAME_ before their names
}

var callbackCopies = map[string]callbackCopy{
	"(*sync.Once).Do": {[]string{"sync"}, `
func NAME(o *cairn_sync.Once, f func()) {
	if !cairn_resume.OnceKnown() {
		o.Do(f)
		return
	}
	if !cairn_resume.OnceBegin(/*cairn:call*/o) {
		return
	}
	defer cairn_resume.OnceEnd(o)
	f(/*cairn:call*/)
}
`, nil},
	"sort.Search": {nil, `
func NAME(n int, f func(int) bool) int {
	i, j := 0, n
	for i < j {
		h := int(uint(i+j) >> 1)
		if !f(/*cairn:call*/h) {
			i = h + 1
		} else {
			j = h
		}
	}
	return i
}
`, nil},
	"path/filepath.WalkDir": {[]string{"io/fs", "os", "path/filepath"}, `
func NAME(root string, fn cairn_fs.WalkDirFunc) error {
	info, err := cairn_os.Lstat(root)
	if err != nil {
		err = fn(/*cairn:call*/root, nil, err)
	} else {
		err = NAME_dir(/*cairn:call*/root, cairn_fs.FileInfoToDirEntry(info), fn)
	}
	if err == cairn_fs.SkipDir || err == cairn_fs.SkipAll {
		return nil
	}
	return err
}

func NAME_dir(path string, d cairn_fs.DirEntry, fn cairn_fs.WalkDirFunc) error {
	if err := fn(/*cairn:call*/path, d, nil); err != nil || !d.IsDir() {
		if err == cairn_fs.SkipDir && d.IsDir() {
			err = nil
		}
		return err
	}
	list, err := cairn_os.ReadDir(path)
	if err != nil {
		err = fn(/*cairn:call*/path, d, err)
		if err != nil {
			if err == cairn_fs.SkipDir && d.IsDir() {
				err = nil
			}
			return err
		}
	}
	for _, e := range list {
		if err := NAME_dir(/*cairn:call*/cairn_filepath.Join(path, e.Name()), e, fn); err != nil {
			if err == cairn_fs.SkipDir {
				break
			}
			return err
		}
	}
	return nil
}
`, nil},
	"io/fs.WalkDir": {[]string{"io/fs", "path"}, `
func NAME(fsys cairn_fs.FS, root string, fn cairn_fs.WalkDirFunc) error {
	info, err := cairn_fs.Stat(fsys, root)
	if err != nil {
		err = fn(/*cairn:call*/root, nil, err)
	} else {
		err = NAME_dir(/*cairn:call*/fsys, root, cairn_fs.FileInfoToDirEntry(info), fn)
	}
	if err == cairn_fs.SkipDir || err == cairn_fs.SkipAll {
		return nil
	}
	return err
}

func NAME_dir(fsys cairn_fs.FS, name string, d cairn_fs.DirEntry, fn cairn_fs.WalkDirFunc) error {
	if err := fn(/*cairn:call*/name, d, nil); err != nil || !d.IsDir() {
		if err == cairn_fs.SkipDir && d.IsDir() {
			err = nil
		}
		return err
	}
	list, err := cairn_fs.ReadDir(fsys, name)
	if err != nil {
		err = fn(/*cairn:call*/name, d, err)
		if err != nil {
			if err == cairn_fs.SkipDir && d.IsDir() {
				err = nil
			}
			return err
		}
	}
	for _, e := range list {
		if err := NAME_dir(/*cairn:call*/fsys, cairn_path.Join(name, e.Name()), e, fn); err != nil {
			if err == cairn_fs.SkipDir {
				break
			}
			return err
		}
	}
	return nil
}
`, nil},
	"path/filepath.Walk": {[]string{"io/fs", "os", "path/filepath", "sort"}, `
func NAME(root string, fn cairn_filepath.WalkFunc) error {
	info, err := cairn_os.Lstat(root)
	if err != nil {
		err = fn(/*cairn:call*/root, nil, err)
	} else {
		err = NAME_dir(/*cairn:call*/root, info, fn)
	}
	if err == cairn_fs.SkipDir || err == cairn_fs.SkipAll {
		return nil
	}
	return err
}

func NAME_dir(path string, info cairn_fs.FileInfo, fn cairn_filepath.WalkFunc) error {
	if !info.IsDir() {
		return fn(/*cairn:call*/path, info, nil)
	}
	names, err := NAME_names(path)
	if err1 := fn(/*cairn:call*/path, info, err); err != nil || err1 != nil {
		return err1
	}
	for _, name := range names {
		filename := cairn_filepath.Join(path, name)
		entry, err := cairn_os.Lstat(filename)
		if err != nil {
			if err := fn(/*cairn:call*/filename, entry, err); err != nil && err != cairn_fs.SkipDir {
				return err
			}
		} else {
			err = NAME_dir(/*cairn:call*/filename, entry, fn)
			if err != nil && (!entry.IsDir() || err != cairn_fs.SkipDir) {
				return err
			}
		}
	}
	return nil
}

func NAME_names(path string) ([]string, error) {
	f, err := cairn_os.Open(path)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return nil, err
	}
	cairn_sort.Strings(names)
	return names, nil
}
`, nil},
	"sort.Slice":         sortSlice("", "NAME_pdqsort_func(/*cairn:call*/data, 0, n, cairn_bits.Len(uint(n)))", "pdqsort_func"),
	"sort.SliceStable":   sortSlice("", "NAME_stable_func(/*cairn:call*/data, n)", "stable_func"),
	"sort.SliceIsSorted": sortSlice("bool", sliceIsSorted),
}

const sliceIsSorted = `for i := n - 1; i > 0; i-- {
		if data.Less(/*cairn:call*/i, i-1) {
			return false
		}
	}
	return true`

// sortSlice returns the copy of a function that sorts a slice of any type. The
// library swaps elements by reflection, which cannot be saved. If the slice is
// in an interface, swap finds its function anew each time; see sliceInAny.
func sortSlice(result, body string, uses ...string) callbackCopy {
	return callbackCopy{[]string{"math/bits"}, `
func NAME[S ~[]E, E interface{}](x S, less func(i, j int) bool) ` + result + ` {
	n := len(x)
	data := NAME_lessSwap{less, func(i, j int) { x[i], x[j] = x[j], x[i] }}
	_ = cairn_bits.Len(0)
	` + body + `
}
`, append(uses, "lessSwap")}
}

// sliceInAny makes the text of a copy by sortSlice sort a slice in an
// interface.
var sliceInAny = strings.NewReplacer(
	"[S ~[]E, E interface{}](x S,", "(x interface{},",
	"len(x)", "cairn_reflect.ValueOf(x).Len()",
	"x[i], x[j] = x[j], x[i]", "cairn_reflect.Swapper(x)(i, j)",
)

// LowerCallbacks replaces the marked calls of functions of the standard library
// that call the program's functions by calls of copies in the package. runtime
// is the import path of the run time.
func LowerCallbacks(p *rewrite.Package, runtime string) (*rewrite.Package, error) {
	text := map[string][]byte{}
	copies := map[string]string{} // names of the copies
	calls := copiedCalls(p)
	for _, f := range p.Files {
		var edits []rewrite.Edit
		var decls strings.Builder
		imports := map[string]bool{}
		var failed error
		add := func(c *ast.CallExpr, name string, of callbackCopy) string {
			key := name + of.text
			if copies[key] == "" {
				copies[key] = unusedName(p, callbackName.Replace(name[strings.LastIndexByte(name, '/')+1:]), copies)
				decls.WriteString(of.at(copies[key], p.Fset.Position(c.Pos())))
				for _, path := range of.imports {
					imports[path] = true
				}
				if strings.Contains(of.text, rewrite.Prefix+"resume.") {
					imports[runtime] = true
				}
			}
			return copies[key]
		}
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok || failed != nil {
				return true
			}
			name := calls(c)
			if name == "" {
				return true
			}
			of, err := callbackCopyOf(p, c, name)
			if err != nil {
				failed = p.Refuse(c.Pos(), "choose a loop that "+callbackText(name)+" does not lead to, with //cairn:point", "Cairn cannot copy %s of this version of Go: %v", callbackText(name), err)
				return true
			}
			fun := rewrite.CalledBack(c)
			edits = append(edits, rewrite.Edit{Lo: fun.Pos(), Hi: fun.End(), Text: add(c, name, of)})
			if strings.HasPrefix(name, "(") { // a method
				at := c.Lparen + 1 + token.Pos(len(rewrite.CallMark))
				edits = append(edits, rewrite.Edit{Lo: at, Hi: at, Text: (&waitLowerer{p: p}).receiver(c) + ", "})
			} else {
				keep := p.NodeText(fun, nil)
				if value := genericValues[name[:strings.LastIndexByte(name, '.')]]; value != "" {
					keep = keep[:strings.LastIndexByte(keep, '.')+1] + value
				}
				fmt.Fprintf(&decls, "\nvar _ = %s // keeps the import in use\n", keep)
			}
			return true
		})
		if failed != nil {
			return nil, failed
		}
		if len(edits) == 0 {
			continue
		}
		head := "\n"
		for _, path := range slices.Sorted(maps.Keys(imports)) {
			head += fmt.Sprintf("\nimport %s%s %q", rewrite.Prefix, path[strings.LastIndexByte(path, '/')+1:], path)
		}
		edits = append(edits, rewrite.Edit{Lo: f.Name.End(), Hi: f.Name.End(), Text: head + "\n"})
		text[p.FileName(f)] = []byte(p.Apply(f.FileStart, f.FileEnd, edits) + "\n" + decls.String())
	}
	if len(text) == 0 {
		return p, nil
	}
	return p.With(text)
}

// copiedCalls returns a function that tells which function of the standard
// library a call names, if the call gets a copy of it. If a copy sorts, so does
// sort.Reverse get one: it is on the way to the program's Less.
func copiedCalls(p *rewrite.Package) func(*ast.CallExpr) string {
	marks := p.MarksAt()
	marked := func(c *ast.CallExpr) string {
		if marks[c.Lparen+1] != rewrite.CallMark {
			return ""
		}
		return rewrite.CallbackFunction(p.Info, c)
	}
	sorts := false
	for _, f := range p.Files {
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			sorts = sorts || ok && strings.HasPrefix(marked(c), "sort.")
			return !sorts
		})
	}
	return func(c *ast.CallExpr) string {
		if sorts && rewrite.ReversesOrder(p.Info, c) {
			return "sort.Reverse"
		}
		return marked(c)
	}
}

// callbackCopyOf returns the copy of a function for a call.
func callbackCopyOf(p *rewrite.Package, c *ast.CallExpr, name string) (callbackCopy, error) {
	of, ok := callbackCopies[name]
	if ok && len(of.uses) == 0 {
		return of, nil
	}
	i := strings.LastIndexByte(name, '.')
	root := name[i+1:]
	std, err := p.Std(name[:i])
	if err != nil {
		return of, err
	}
	if !ok {
		of = callbackCopy{text: "\n", uses: []string{root}}
	} else if t := p.Info.TypeOf(c.Args[0]); !isSlice(t) {
		of.text = sliceInAny.Replace(of.text)
		of.imports = append(slices.Clone(of.imports), "reflect")
	}
	text, imports, err := std.CopyOf(of.uses...)
	if !ok { // the function has the copy's name
		text = regexp.MustCompile(`\bNAME_`+root+`\b`).ReplaceAllString(text, "NAME")
	}
	of.text += text
	of.imports = slices.Concat(of.imports, imports)
	return of, err
}

// isSlice reports whether a type is a slice, and no type parameter.
func isSlice(t types.Type) bool {
	if _, ok := types.Unalias(t).(*types.TypeParam); ok {
		return false
	}
	_, ok := t.Underlying().(*types.Slice)
	return ok
}

// callbackText names a function of the standard library as programs do.
func callbackText(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// genericValues are values of packages whose functions are generic.
var genericValues = map[string]string{"slices": "Clip[[]int]", "maps": "Clone[map[int]int]"}

// callbackName makes the name of a copy: sync_Once_Do, filepath_WalkDir.
var callbackName = strings.NewReplacer("(", "", ")", "", "*", "", ".", "_")

// at returns the text of a copy with a name. A call stands for all of its
// lines.
func (c callbackCopy) at(name string, pos token.Position) string {
	var b strings.Builder
	for l := range strings.Lines(strings.ReplaceAll(c.text, "NAME", name)) {
		statement := strings.TrimLeft(l, "\t")
		if statement != l && !strings.HasPrefix(statement, "}") {
			l = fmt.Sprintf("%s/*line %s:%d*/%s", l[:len(l)-len(statement)], pos.Filename, pos.Line, statement)
		}
		b.WriteString(l)
	}
	return b.String()
}
