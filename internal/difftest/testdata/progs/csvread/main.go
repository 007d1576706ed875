// Command csvread covers encoding/csv over a file that is read across points,
// and a writer of the same kind on stdout.
package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

func main() {
	f, err := os.Open("data.csv")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	w := csv.NewWriter(os.Stdout)
	sum := 0
	for { //difftest:loop
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		n, _ := strconv.Atoi(row[1])
		for k := range 3000 {
			sum = (sum*3 + n*k) % 5003
		}
		w.Write([]string{row[0], strconv.Itoa(sum)})
	}
	w.Flush()
	fmt.Println(sum, r.InputOffset())
}
