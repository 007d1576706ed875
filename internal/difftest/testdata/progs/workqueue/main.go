// Command workqueue covers input that is removed when it is done: the first
// file in a directory is read, added up and removed, until there is none; some
// make new ones.
package main

import (
	"fmt"
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
	check(os.MkdirAll("queue/done", 0o755))
	for i := range 8 {
		check(os.WriteFile(filepath.Join("queue", fmt.Sprintf("job%02d", i)), []byte(strings.Repeat("x", i+3)), 0o644))
	}
	total, more := 0, 40
	for { //difftest:loop
		moment.Pass()
		jobs, err := filepath.Glob("queue/job*")
		check(err)
		if len(jobs) == 0 {
			break
		}
		text, err := os.ReadFile(jobs[0])
		check(err)
		check(os.Remove(jobs[0]))
		moment.Pass()
		total += len(text)
		if len(text)%3 == 0 {
			check(os.WriteFile(fmt.Sprintf("queue/job%02d", more), text[:len(text)/2], 0o644))
			more++
		}
		check(os.WriteFile("queue/done/"+filepath.Base(jobs[0]), text, 0o600))
		fmt.Println(jobs[0], len(text), total, len(jobs))
	}
	check(os.RemoveAll("queue/done"))
	check(os.Remove("queue"))
	fmt.Println(total)
}
