// Command countfile covers a value that is kept in a file: each iteration reads
// it, adds to it and writes it back, by os.WriteFile and by a file that stays
// open.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"progs/moment"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	check(os.WriteFile("count", []byte("0"), 0o644))
	open, err := os.OpenFile("total", os.O_RDWR|os.O_CREATE, 0o644)
	check(err)
	defer open.Close()
	for i := range 12 { //difftest:loop
		moment.Pass()
		text, err := os.ReadFile("count")
		check(err)
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		check(err)
		check(os.WriteFile("count", []byte(strconv.Itoa(n+i+1)), 0o644))
		moment.Pass()

		_, err = open.Seek(0, io.SeekStart)
		check(err)
		sum := 0
		fmt.Fscan(open, &sum)
		_, err = open.Seek(0, io.SeekStart)
		check(err)
		w := bufio.NewWriter(open)
		fmt.Fprintf(w, "%-8d\n", sum+n)
		check(w.Flush())
		moment.Pass()
		fmt.Println(i, n, sum)
	}
}
