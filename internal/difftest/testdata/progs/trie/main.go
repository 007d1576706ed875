// Command trie covers a trie of maps and arrays, with a recursive walk through
// a closure, and words counted per iteration.
package main

import (
	"fmt"
	"strings"
)

type trie struct {
	kids  map[rune]*trie
	fixed [2]*trie
	count int
}

func (t *trie) add(word string) {
	for _, r := range word {
		if r == 'a' || r == 'b' {
			if t.fixed[r-'a'] == nil {
				t.fixed[r-'a'] = &trie{}
			}
			t = t.fixed[r-'a']
			continue
		}
		if t.kids == nil {
			t.kids = map[rune]*trie{}
		}
		if t.kids[r] == nil {
			t.kids[r] = new(trie)
		}
		t = t.kids[r]
	}
	t.count++
}

func (t *trie) size() int {
	if t == nil {
		return 0
	}
	n := 1
	for _, k := range t.kids {
		n += k.size()
	}
	return n + t.fixed[0].size() + t.fixed[1].size()
}

func main() {
	root := &trie{}
	words := strings.Fields("abba cab dad bead caba d fad abc")
	for i, w := range words { //difftest:loop
		for k := range 40 {
			root.add(w[:len(w)-k%len(w)])
			root.add(strings.Repeat(w, k%3))
		}
		fmt.Println(i, w, root.size(), root.count)
	}
	var walk func(t *trie, prefix string)
	walk = func(t *trie, prefix string) {
		if t == nil || len(prefix) > 4 {
			return
		}
		if t.count > 20 {
			fmt.Println(prefix, t.count)
		}
		for i := range t.fixed {
			walk(t.fixed[i], prefix+string(rune('a'+i)))
		}
		for _, r := range "cdef" {
			walk(t.kids[r], prefix+string(r))
		}
	}
	walk(root, "")
}
