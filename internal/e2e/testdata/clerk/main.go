// Clerk keeps books in files: each step reads what the steps before it have
// written and changes it, in all ways that files are changed. It does not use
// checkpoints. Doing a step twice, or undoing one, shows in the books.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	dir := flag.String("dir", ".", "where the books are")
	steps := flag.Int("steps", 400, "steps")
	pause := flag.Duration("pause", 0, "after each step")
	flag.Parse()
	if err := os.Chdir(*dir); err != nil {
		log.Fatal(err)
	}
	table, err := os.OpenFile("table", os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o666)
	if err != nil {
		log.Fatal(err)
	}
	day, err := os.Create("day")
	if err != nil {
		log.Fatal(err)
	}
	total := 0
	for i := range *steps {
		n := step(i, table, day)
		total += n
		fmt.Println("step", i, "count", n, "total", total)
		time.Sleep(*pause)
	}
	fmt.Println("ends with", total)
}

// step is one; it returns the number in the file count.
func step(i int, table, day *os.File) int {
	check := func(err error) {
		if err != nil {
			log.Fatal("step ", i, ": ", err)
		}
	}
	// A number that is read, changed and written over.
	n := 0
	if text, err := os.ReadFile("count"); err == nil {
		n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		check(err)
	} else if i > 0 {
		check(err)
	}
	n += i%7 + 1
	check(os.WriteFile("count", []byte(fmt.Sprintln(n)), 0o666))
	// A row of a table, in place.
	row := make([]byte, 8)
	at := int64(i%11) * 8
	if got, err := table.ReadAt(row, at); got == 8 {
		old, err := strconv.Atoi(strings.TrimSpace(string(row)))
		check(err)
		n += old % 3
	} else if i >= 11 {
		check(err)
	}
	_, err := table.WriteAt([]byte(fmt.Sprintf("%7d\n", n%1000000)), at)
	check(err)
	// A file that another one replaces.
	check(os.WriteFile("new", []byte(fmt.Sprintf("the newest is %d\n", n)), 0o666))
	check(os.Rename("new", "newest"))
	// A line that is added.
	_, err = fmt.Fprintln(day, i, n)
	check(err)
	// Work that is put into a dir, and taken from it later.
	if i%10 == 0 {
		check(os.Mkdir(fmt.Sprintf("week-%d", i/10), 0o777))
	}
	check(os.WriteFile(filepath.Join(fmt.Sprintf("week-%d", i/10), strconv.Itoa(i)), []byte(strconv.Itoa(n)), 0o666))
	if i >= 20 {
		old := filepath.Join(fmt.Sprintf("week-%d", (i-20)/10), strconv.Itoa(i-20))
		text, err := os.ReadFile(old)
		check(err)
		m, err := strconv.Atoi(string(text))
		check(err)
		n += m % 5
		check(os.Remove(old))
		if i%10 == 9 {
			check(os.Remove(filepath.Dir(old)))
		}
	}
	return n
}
