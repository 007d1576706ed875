// Command writefile covers files that are written across points: one created,
// one appended to that was there before, one truncated to a length.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func main() {
	report := must(os.Create("report.txt"))
	defer report.Close()
	journal := must(os.OpenFile("journal.txt", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))
	defer journal.Close()
	h := uint64(14695981039346656037)
	for i := range 9 { //difftest:loop
		for k := range 4000 {
			h = (h ^ uint64(k+i)) * 1099511628211
		}
		fmt.Fprintf(report, "%d %016x\n", i, h)
		if i%2 == 0 {
			must(journal.WriteString(fmt.Sprintln("even", i)))
		}
		if i == 5 {
			must(report.Seek(0, io.SeekStart))
			must(report.WriteString("FIVE\n"))
			must(report.Seek(0, io.SeekEnd))
		}
		fmt.Println(i, must(report.Seek(0, io.SeekCurrent)))
	}
	if err := report.Truncate(100); err != nil {
		log.Fatal(err)
	}
	fmt.Println(must(journal.Stat()).Size())
}
