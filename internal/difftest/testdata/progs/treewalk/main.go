// Command treewalk covers directories that are made, filled, renamed, walked
// and removed.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"progs/moment"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	check(os.Mkdir("tree", 0o755))
	for i := range 14 { //difftest:loop
		moment.Pass()
		dir := filepath.Join("tree", fmt.Sprint("d", i%4), fmt.Sprint("e", i%3))
		check(os.MkdirAll(dir, 0o755))
		check(os.WriteFile(filepath.Join(dir, "f"), []byte(strings.Repeat("y", i)), 0o644))
		moment.Pass()
		switch i % 5 {
		case 2:
			check(os.RemoveAll("tree/d1"))
			check(os.Symlink("d2", "tree/d1"))
		case 3:
			check(os.Remove("tree/d1"))
			check(os.RemoveAll("tree/old"))
			check(os.Rename("tree/d2", "tree/old"))
			moment.Pass()
			check(os.WriteFile("tree/old/note", []byte(fmt.Sprint(i)), 0o644))
		case 4:
			tmp, err := os.MkdirTemp("tree", "tmp")
			check(err)
			check(os.WriteFile(filepath.Join(tmp, "t"), []byte{'t'}, 0o644))
			moment.Pass()
			check(os.RemoveAll(tmp))
		}
		var all []string
		check(filepath.WalkDir("tree", func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			size := int64(0)
			if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
				size = st.Size()
			}
			all = append(all, fmt.Sprint(path, " ", size))
			return nil
		}))
		fmt.Println(i, strings.Join(all, ", "))
	}
}
