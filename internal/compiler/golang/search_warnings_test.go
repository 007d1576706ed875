package golang

import (
	"fmt"
	"strings"
	"testing"
)

// searching returns a program that calls a function in each iteration of a
// loop.
func searching(decls, call string) string {
	return "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nvar (\n\tused [64]bool\n\tcount int\n)\n\n" + decls + `

func main() {
	for k := 1; k <= 1+9*len(os.Args); k++ {
		count = 0
		` + call + `
		fmt.Println(k, count)
	}
}
`
}

// TestInstrument_WarnsOfSearches: a recursive search without a point is
// reported, with the loops. Other recursion is not.
func TestInstrument_WarnsOfSearches(t *testing.T) {
	const (
		walk = `type cell struct{ x, y int }

var seen = map[cell]bool{}

func walk(at cell, left int) {
	if left == 0 {
		count++
		return
	}
	for _, d := range []cell{{1, 0}, {0, 1}, {-1, 0}, {0, -1}} { // LOOP
		n := cell{at.x + d.x, at.y + d.y}
		if seen[n] {
			continue
		}
		seen[n] = true
		walk(n, left-1) // CALL
		delete(seen, n)
	}
}`
		tree = `type node struct {
	kids []*node
	n    map[int]int
}

func grow(k int) *node {
	top := &node{n: map[int]int{}}
	for i := range k {
		top.kids = append(top.kids, &node{n: map[int]int{i: k}})
	}
	return top
}
`
	)
	for _, c := range []struct {
		name, decls, call string
		told              bool
	}{
		{"steps are counted", walk, "walk(cell{}, k)", true},
		{"steps are few", walk, "walk(cell{}, 3)", false},
		{"a point is inside", strings.Replace(walk, "\tfor _, d", "\t//cairn:point\n\tfor _, d", 1), "walk(cell{}, k)", false},
		{"no point is wanted", strings.Replace(walk, "\tfor _, d", "\t//cairn:skip\n\tfor _, d", 1), "walk(cell{}, k)", false},
		{"it takes steps back", `func fill(n int, m map[int]int) bool {
	if len(m) == n {
		count++
		return false
	}
	for i := 0; i < n; i++ { // LOOP
		if used[i] || m[i] > n {
			continue
		}
		used[i] = true
		m[i] = len(m)
		if fill(n, m) { // CALL
			return true
		}
		used[i] = false
		delete(m, i)
	}
	return false
}`, "fill(k, map[int]int{})", true},
		{"one branch or the other", `func set(n int, m map[int]int) {
	for i := 0; i < n; i++ {
		switch m[i] {
		case 1:
			m[i] = len(fmt.Sprint(m))
		case 2:
			set(n, m)
		default:
			m[i] = n
		}
	}
}`, "set(k, map[int]int{})", false},
		{"two calls", `func pick(at, sum int, weights map[int]int) int {
	if at > 3*len(weights) {
		count++
		return sum
	}
	text := fmt.Sprint(at, sum)
	a := pick(at+1, sum, weights) // CALL
	b := pick(at+1, sum+weights[len(text)], weights)
	return max(a, b)
}`, "count += pick(0, 0, map[int]int{k: k})", true},
		{"one call or the other", `func pick(at, sum int, weights map[int]int) int {
	if at > 3*len(weights) {
		count++
		return sum
	}
	text := fmt.Sprint(at, sum)
	if len(text) > 7 {
		return pick(at+1, sum, weights)
	}
	return pick(at+1, sum+weights[len(text)], weights)
}`, "count += pick(0, 0, map[int]int{k: k})", false},
		{"by way of another", `func white(depth int, m map[int]int) (best int) {
	for i := range len(m) { // LOOP
		best = max(best, black(depth-1, m)+m[i]) // CALL
	}
	return best
}

func black(depth int, m map[int]int) int {
	if depth <= 0 {
		count++
		return len(fmt.Sprint(m))
	}
	return -white(depth, m)
}`, "white(k, map[int]int{k: k})", true},
		{"a tree", tree + `
func sum(n *node, depth int) {
	for _, c := range n.kids {
		count += c.n[depth]
		fmt.Fprintln(os.Stderr, depth)
		sum(c, depth+1)
	}
}`, "sum(grow(k), 0)", false},
		{"a tree by methods", tree + `
func (n *node) sum(depth int) {
	for i := range n.kids {
		count += n.n[depth]
		fmt.Fprintln(os.Stderr, depth)
		n.kids[i].sum(depth + 1)
	}
}`, "grow(k).sum(0)", false},
		{"places", `func flood(x, y int, m map[int]int) {
	if x < 0 || y < 0 || x > 50 || y > 50 || m[x*100+y] > 0 {
		return
	}
	m[x*100+y] = len(fmt.Sprint(x, y, m))
	count++
	flood(x+1, y, m)
	flood(x-1, y, m)
	flood(x, y+1, m)
	flood(x, y-1, m)
}`, "flood(k, k, map[int]int{})", false},
		{"halves", `func sort(a []int, depth int) {
	if len(a) < 2 {
		return
	}
	m := len(a) / 2
	sort(a[:m], depth+1)
	sort(a[m:], depth+1)
	fmt.Fprintln(os.Stderr, depth)
	for i := range a {
		a[i] = a[len(a)-1-i] + len(fmt.Sprint(depth))
	}
}`, "sort(make([]int, 1000*k), 0)", false},
		{"next to nothing", `func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}`, "count += fib(k)", false},
		{"a small part of a round", walk + `
func sweep(a []int) {
	for i := range a {
		for j := range a {
			for k := range a {
				for l := range a {
					a[i] += a[j] * a[k] % (1 + l)
				}
			}
		}
	}
}`, "walk(cell{}, k)\n\t\tsweep(make([]int, 100))", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := searching(c.decls, c.call)
			line := func(mark string) int { return strings.Count(text[:strings.Index(text, mark)], "\n") + 1 }
			_, warnings := pointsOf(t, text)
			if !c.told {
				if warnings != "" {
					t.Errorf("told: %s", warnings)
				}
				return
			}
			want := []string{fmt.Sprintf("the loop at main.go:%d is saved between its iterations ONLY", line("for k :=")),
				fmt.Sprintf("calls itself at main.go:%d ", line("// CALL")), "a kill loses the whole iteration"}
			if strings.Contains(text, "// LOOP") {
				want = append(want, fmt.Sprintf("//cairn:point before the loop at main.go:%d", line("// LOOP")))
			} else {
				want = append(want, "no loop around these calls")
			}
			for _, w := range want {
				if !strings.Contains(warnings, w) {
					t.Errorf("%q is not told: %s", w, warnings)
				}
			}
			if strings.Contains(warnings, "\n") {
				t.Errorf("told more than once: %s", warnings)
			}
		})
	}
}

// TestInstrument_PointInSearch: with a point where the warning asks for one,
// there is no warning.
func TestInstrument_PointInSearch(t *testing.T) {
	text := searching(`func place(row, n int, m map[int]int) {
	if row == n {
		count++
		return
	}
	for c := range n { // LOOP
		if m[c] == 0 {
			m[c] = row + 1
			place(row+1, n, m)
			m[c] = 0
		}
	}
}`, "place(0, k, map[int]int{})")
	before, warnings := pointsOf(t, text)
	if !strings.Contains(warnings, "//cairn:point before the loop at") {
		t.Fatalf("points %v, told %q", before, warnings)
	}
	after, warnings := pointsOf(t, strings.Replace(text, "\tfor c := range n {", "\t//cairn:point\n\tfor c := range n {", 1))
	if warnings != "" || len(after) <= len(before) {
		t.Errorf("points %v, then %v, told %q", before, after, warnings)
	}
}
