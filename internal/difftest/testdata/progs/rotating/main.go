// Command rotating covers logs that are appended to and rotated by size, the
// oldest removed; what they hold is read again.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"progs/moment"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func open() *os.File {
	f, err := os.OpenFile("app.log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	check(err)
	return f
}

func main() {
	f := open()
	for i := range 20 { //difftest:loop
		moment.Pass()
		log.New(f, "", 0).Println("line", i, strings.Repeat("-", i%7))
		st, err := f.Stat()
		check(err)
		if st.Size() > 60 {
			check(f.Close())
			os.Remove("app.log.2")
			if err := os.Rename("app.log.1", "app.log.2"); err != nil && !os.IsNotExist(err) {
				panic(err)
			}
			moment.Pass()
			check(os.Rename("app.log", "app.log.1"))
			moment.Pass()
			f = open()
		}
		lines := 0
		for _, name := range []string{"app.log", "app.log.1", "app.log.2"} {
			text, _ := os.ReadFile(name)
			lines += strings.Count(string(text), "\n")
		}
		fmt.Println(i, lines)
	}
	check(f.Close())
}
