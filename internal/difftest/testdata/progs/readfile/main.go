// Command readfile covers files read with bufio.Scanner, one open across all
// points, and a bufio.Reader beside it; the files are in the directory "in".
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
)

func score(line string) (n int) {
	for range 200 {
		for i, r := range line {
			n = (n*7 + int(r)*i) % 9973
		}
	}
	return n
}

func main() {
	f, err := os.Open("words.txt")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	g, err := os.Open("numbers.txt")
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	numbers := bufio.NewReader(g)
	words := bufio.NewScanner(f)
	total := 0
	for words.Scan() { //difftest:loop
		total += score(words.Text())
		line, err := numbers.ReadString('\n')
		if err != nil && err != io.EOF {
			log.Fatal(err)
		}
		var n int
		fmt.Sscan(strings.TrimSpace(line), &n)
		total -= n
		fmt.Println(words.Text(), n, total)
	}
	rest, _ := io.ReadAll(numbers)
	fmt.Println(total, len(rest), words.Err())
}
