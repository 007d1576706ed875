package imports

import (
	. "strings"

	"test/dep"
	"test/hook"
)

// Nothing here names the packages of what is captured.
func Run() {
	when, month := dep.When()
	f := hook.See(func() string { month++; return when.String() + month.String() })
	println := dep.Print
	println(f(), f())
	r := NewReplacer("a", "b")
	var b Builder
	g := hook.See(func(s string) string { b.WriteString(r.Replace(s)); return b.String() })
	println(g("banana"), g("!"))
	h := dep.Print
	h("done", hook.See(when.String)())
}
