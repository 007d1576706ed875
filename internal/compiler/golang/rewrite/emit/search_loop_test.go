package emit

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSearchLoop_ChangedIndex shows that a loop whose body changes its index is
// not a search loop: the number of its iterations is not bounded by the slice's
// length.
func TestSearchLoop_ChangedIndex(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.go")
	const text = `package main

func search(board []int, n int) int {
	for c := 0; c < len(board); c++ {
		//cairn:point 1
		if board[c] > n {
			//cairn:call 2
			search(board, n+1)
		}
	}
	return n
}

func restarts(board []int, n int) int {
	for c := 0; c < len(board); c++ {
		//cairn:point 1
		if board[c] > n {
			board[c]--
			c = -1
			//cairn:call 2
			restarts(board, n+1)
		}
	}
	return n
}

func main() { search(nil, restarts(nil, 0)) }
`
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	w, _, err := newGenerator(loadFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	w.setFastPaths(map[string]bool{"search": true, "restarts": true})
	for _, fn := range w.all {
		if is := w.searchLoop(fn, fn.marks[0]) != nil; is != (fn.name == "search") {
			t.Errorf("%s: a search loop is %v", fn.name, is)
		}
	}
}
