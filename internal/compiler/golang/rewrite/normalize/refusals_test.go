package normalize

// normalRefusals are programs that must be refused, with the place marked.
var normalRefusals = []struct{ src, reason string }{
	{"func f() {\n\t/*here*/go reach(1)\n}", "goroutine"},
	{"func f() {\n\t/*here*/defer reach(1)\n}", "deferred call"},
	{"func f(s func(func(int) bool)) {\n\t/*here*/for x := range s {\n\t\treach(x)\n\t}\n}", "range over a function"},
	{"func f(m map[int]int) {\n\tappend := 1\n\t_ = append\n\t/*here*/for k := range m {\n\t\treach(k)\n\t}\n}", "append is declared"},
	{"func f(m map[string]int) {\n\tstring := 1\n\t_ = string\n\t/*here*/for k := range m {\n\t\treach(k)\n\t}\n}", "type string"},
	{"func f(x int) {\n\tfor {\n\tup:\n\t\tif x++; reach(1) > 0 {\n\t\t\tbreak\n\t\t}\n\t\t/*here*/goto up\n\t}\n}", "goto back"},
	{"func f(x int) {\nup:\n\tx++\n\tdefer fmt.Println(x)\n\tfor {\n\t\tgoto in\n\tin:\n\t\tif x < 3 {\n\t\t\t/*here*/goto up\n\t\t}\n\t\tbreak\n\t}\n\treach(1)\n}", "goto back"},
	{"func f(x int) {\n\tif x > 0 {\n\t\tg := func() {}\n\t\tdefer func() { /*here*/g() }()\n\t}\n\treach(1)\n}", "uses g, a function literal"},
	{"func f(x int) {\n\tif x > 0 {\n\t\tg := func() {}\n\t\tdefer /*here*/g()\n\t}\n\treach(1)\n}", "g, a function literal"},
	{"func f(x int) {\n\tfalse := x > 0\n\tif x > 0 {\n\t\ttrue := false\n\t\t_ = true\n\t\t/*here*/defer fmt.Println()\n\t}\n\treach(1)\n}", "true is declared"},
	{"type T int\n\nfunc f() {\n\ttype /*here*/T string\n\treach(T(\"\"))\n}", "T of the package"},
	{"func f() {\n\ttype /*here*/fmt string\n\treach(fmt(\"\"))\n}", "the import fmt"},
	{"func f() {\n\ttype /*here*/int string\n\treach(int(\"\"))\n}", "Go's own"},
	{"func f(t string) {\n\t{\n\t\ttype /*here*/t string\n\t\treach(t(\"\"))\n\t}\n}", "used for something else"},
	{"func f[P any](p P) {\n\ttype /*here*/t struct{ p P }\n\treach(t{p})\n}", "depends on P"},
	{"func f() {\n\tconst n = 3\n\ttype /*here*/t [n]int\n\treach(t{})\n}", "depends on n"},
	{"type I interface{ ReachM(n int) int }\n\nfunc f(i I) {\n\t/*here*/I.ReachM(both())\n}\n\nfunc both() (I, int) { return nil, 0 }", "method expression"},
	{"func f[K comparable](m map[K]int, p *struct{ k K }) {\n\tm[/*here*/p.k] = reach(1)\n}", "type parameters decide"},
	{"func f[T any](m map[int]T) {\n\tfmt.Println(/*here*/m[1], reach(1))\n}", "type parameters decide"},
	{"func f[T comparable](m map[int]T, t T) {\n\tfmt.Println(/*here*/m[1] == t, reach(1))\n}", "type parameters decide"},
	{"var g = /*here*/reach(1)", "cannot resume"},
}
