// Command rewritten covers a file that is truncated and written anew, shorter or
// longer than before, from what it held: by os.Create, by Truncate of a file that
// is open, and by os.Truncate.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"progs/moment"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	check(os.WriteFile("cells", []byte("0110100110010110"), 0o600))
	log, err := os.OpenFile("log", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	check(err)
	defer log.Close()
	for i := range 12 { //difftest:loop
		moment.Pass()
		text, err := os.ReadFile("cells")
		check(err)
		f, err := os.Create("cells")
		check(err)
		moment.Pass()
		for k := range len(text) + i%3 - 1 {
			_, err = f.Write([]byte{'0' + (text[k%len(text)]^text[(k+1)%len(text)])&1})
			check(err)
		}
		check(f.Close())
		moment.Pass()
		fmt.Fprintf(log, "%d %s\n", i, text)
		if i%3 == 2 { // half of the lines go
			st, err := log.Stat()
			check(err)
			check(log.Truncate(st.Size() / 2))
			_, err = log.Seek(0, io.SeekEnd)
			check(err)
			moment.Pass()
			check(os.Truncate("cells", 11))
		}
		check(os.Chmod("cells", os.FileMode(0o600+i%4)))
		st, err := os.Stat("cells")
		check(err)
		fmt.Println(i, string(text), st.Mode(), bytes.Count(text, []byte("1")))
	}
}
