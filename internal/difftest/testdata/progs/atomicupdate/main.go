// Command atomicupdate covers files that replace others: a new one is written
// under another name, and renamed. Each iteration reads the current file.
package main

import (
	"fmt"
	"hash/crc32"
	"os"

	"progs/moment"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	check(os.WriteFile("state", []byte("begin"), 0o644))
	for i := range 12 { //difftest:loop
		moment.Pass()
		old, err := os.ReadFile("state")
		check(err)
		f, err := os.CreateTemp(".", "state-*.tmp")
		check(err)
		fmt.Fprintf(f, "%d %08x\n", i, crc32.ChecksumIEEE(old))
		moment.Pass()
		check(f.Close())
		check(os.Rename(f.Name(), "state"))
		moment.Pass()
		if i%4 == 3 { // the old one is kept, by another name and by a link
			check(os.Rename("state", "state.bak"))
			os.Remove("state.link")
			check(os.Link("state.bak", "state.link"))
			moment.Pass()
			text, err := os.ReadFile("state.link")
			check(err)
			check(os.WriteFile("state", append(text, "linked\n"...), 0o644))
		}
		fmt.Printf("%d %q\n", i, old)
	}
}
