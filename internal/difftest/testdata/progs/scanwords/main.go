// Command scanwords covers a Scanner that splits words with a buffer of its
// own, and a seek in the file between points.
package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	f, err := os.Open("text.txt")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer f.Close()
	counts := map[string]int{}
	longest := ""
	for pass := range 3 { //difftest:loop
		s := bufio.NewScanner(f)
		s.Split(bufio.ScanWords)
		s.Buffer(make([]byte, 16), 64)
		for s.Scan() { //difftest:loop
			w := s.Text()
			for range 300 {
				counts[w] += len(w) % 3
			}
			if len(w) > len(longest) {
				longest = w
			}
		}
		at, err := f.Seek(int64(pass*7), 0)
		fmt.Println(pass, at, err, len(counts), longest, counts["the"])
	}
}
