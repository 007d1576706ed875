package normalize

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// callbackCopy is a function of the standard library that calls a function of
// the program, as source that can be resumed. In the text, NAME is its name, and
// calls that lead to points have marks.
type callbackCopy struct {
	imports []string
	text    string
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
`},
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
`},
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
`},
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
`},
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
`},
}

// LowerCallbacks replaces the marked calls of functions of the standard library
// that call the program's functions by calls of copies in the package. runtime
// is the import path of the run time.
func LowerCallbacks(p *rewrite.Package, runtime string) (*rewrite.Package, error) {
	text := map[string][]byte{}
	copies := map[string]string{} // names of the copies
	marks := p.MarksAt()
	for _, f := range p.Files {
		var edits []rewrite.Edit
		var decls strings.Builder
		imports := map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok || marks[c.Lparen+1] != rewrite.CallMark {
				return true
			}
			name := rewrite.CallbackFunction(p.Info, c)
			of, ok := callbackCopies[name]
			if !ok {
				return true
			}
			if copies[name] == "" {
				copies[name] = unusedName(p, callbackName.Replace(name[strings.LastIndexByte(name, '/')+1:]))
				decls.WriteString(of.at(copies[name], p.Fset.Position(c.Pos())))
				for _, path := range of.imports {
					imports[path] = true
				}
				if strings.Contains(of.text, rewrite.Prefix+"resume.") {
					imports[runtime] = true
				}
			}
			edits = append(edits, rewrite.Edit{Lo: c.Fun.Pos(), Hi: c.Fun.End(), Text: copies[name]})
			if strings.HasPrefix(name, "(") { // a method
				at := c.Lparen + 1 + token.Pos(len(rewrite.CallMark))
				edits = append(edits, rewrite.Edit{Lo: at, Hi: at, Text: (&waitLowerer{p: p}).receiver(c) + ", "})
			} else {
				fmt.Fprintf(&decls, "\nvar _ = %s // keeps the import in use\n", p.NodeText(c.Fun, nil))
			}
			return true
		})
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

// callbackName makes the name of a copy: sync_Once_Do, filepath_WalkDir.
var callbackName = strings.NewReplacer("(", "", ")", "", "*", "", ".", "_")

// at returns the text of a copy with a name. A call stands for all of its lines.
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
