// Command callback does its work inside a callback of the standard library,
// whose frames are not the program's own.
package main

//difftest:daily
//difftest:refuse (?i)callback|called from|outside|foreign|walk

import (
	"fmt"
	"io/fs"
	"testing/fstest"
)

func main() {
	tree := fstest.MapFS{}
	for i := range 6 {
		tree[fmt.Sprintf("d%d/f%d", i%2, i)] = &fstest.MapFile{Data: make([]byte, i*10)}
	}
	h := 0
	fs.WalkDir(tree, ".", func(path string, e fs.DirEntry, err error) error {
		for i := range 4 { //difftest:loop
			for k := range 1000 {
				h = (h*31 + k + len(path) + i) % 9001
			}
		}
		fmt.Println(path, h)
		return err
	})
	fmt.Println(h)
}
