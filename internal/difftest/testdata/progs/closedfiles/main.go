// Command closedfiles refers to files that it has closed: they are closed after
// a restart, too, and have their names.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"progs/moment"
)

type part struct {
	f *os.File
	w *bufio.Writer
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func write(parts []*part) (total int, err error) {
	head, err := os.Create("head.txt")
	check(err)
	defer func() { // an error only if it was closed before
		cerr := head.Close()
		fmt.Println("head", errors.Is(cerr, os.ErrClosed), cerr)
	}()
	fmt.Fprintln(head, len(parts), "parts")
	check(head.Close())
	for i, p := range parts { //difftest:loop
		p.f, err = os.Create(fmt.Sprintf("part%d.txt", i%4))
		check(err)
		p.w = bufio.NewWriter(p.f)
		moment.Pass()
		n, err := fmt.Fprintln(p.w, "part", i)
		check(err)
		total += n
		check(p.w.Flush())
		check(p.f.Close())
		moment.Pass()
		if i > 0 && i%3 == 0 {
			parts[i-1] = p // two that are one
		}
	}
	return total, nil
}

func main() {
	parts := make([]*part, 12)
	for i := range parts {
		parts[i] = new(part)
	}
	fmt.Println(write(parts))
	for i, p := range parts {
		_, err := p.f.Write([]byte("more"))
		fmt.Println(i, p.f.Name(), err, i > 0 && p.f == parts[i-1].f)
	}
}
