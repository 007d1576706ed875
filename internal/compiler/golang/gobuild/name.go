package gobuild

import (
	"path"
	"path/filepath"
	"strings"
)

// name is what go build would name the program of a package.
func (b *Builder) ProgramName(pkg string) string {
	name := path.Base(pkg)
	if strings.HasSuffix(b.Patterns[0], ".go") {
		name = strings.TrimSuffix(filepath.Base(b.Patterns[0]), ".go")
	} else if rest := strings.TrimPrefix(name, "v"); rest != name && rest > "1" && strings.Trim(rest, "0123456789") == "" && path.Dir(pkg) != "." {
		name = path.Base(path.Dir(pkg)) // example.com/sim/v2
	}
	return name + b.env["GOEXE"]
}

// listEnv is the environment in which the go command sees the flags that decide
// which files belong to the program.
func (b *Builder) LoadEnv() []string {
	flags := []string{b.env["GOFLAGS"]}
	for _, f := range b.opts.Flags {
		switch name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "="); name {
		case "tags", "race", "msan", "asan", "mod", "modfile":
			if strings.ContainsAny(f, " \t\n") {
				f = "'" + f + "'"
			}
			flags = append(flags, f)
		}
	}
	return append(b.environ(), "GOFLAGS="+strings.TrimSpace(strings.Join(flags, " ")))
}
