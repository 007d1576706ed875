// Command gzipout covers a compressor over a file, which has buffered data at
// every point.
package main

import (
	"compress/gzip"
	"fmt"
	"os"
)

func main() {
	f, err := os.Create("out.gz")
	if err != nil {
		panic(err)
	}
	z := gzip.NewWriter(f)
	x := uint32(7)
	for i := range 6 { //difftest:loop
		for range 2000 {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
		}
		fmt.Fprintf(z, "line %d: %08x\n", i, x)
		fmt.Println(i, x)
	}
	fmt.Println(z.Close(), f.Close())
}
