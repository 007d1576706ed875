// Command bufferedout covers a bufio.Writer on stdout that is flushed rarely,
// so that output waits in memory at points.
package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	out := bufio.NewWriterSize(os.Stdout, 512)
	defer out.Flush()
	x := uint32(1)
	for i := range 10 { //difftest:loop
		for range 3000 {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
		}
		for k := range i {
			fmt.Fprintf(out, "%d/%d %08x\n", i, k, x+uint32(k))
		}
		if i == 4 {
			out.Flush()
		}
		fmt.Fprintln(out, "held", out.Buffered())
	}
}
