// Command chdirs covers a working directory that the program changes, with
// files opened before and after.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	top, err := os.Create("top.txt")
	check(err)
	defer top.Close()
	check(os.MkdirAll("a/b", 0o777))
	for i := range 6 { //difftest:loop
		n := 0
		for k := range 3000 {
			n = (n*3 + k + i) % 2003
		}
		if i == 1 || i == 3 {
			check(os.Chdir([]string{"", "a", "", "b"}[i]))
		}
		fmt.Fprintln(top, i, n)
		check(os.WriteFile(fmt.Sprint("step", i), []byte(fmt.Sprint(n)), 0o666))
		wd, err := os.Getwd()
		check(err)
		fmt.Println(i, n, filepath.Base(wd) == "b")
	}
}
