// Command builders covers strings.Builder, bytes.Buffer, strings.Reader and
// text/tabwriter that hold data across points.
package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

func main() {
	var text strings.Builder
	buf := bytes.NewBufferString("seed")
	in := strings.NewReader("0123456789abcdefghijklmnopqrstuvwxyz")
	table := tabwriter.NewWriter(os.Stdout, 4, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "step\tread\tlength\t")
	for i := range 8 { //difftest:loop
		for k := range 300 {
			text.WriteByte(byte('a' + (i*k)%26))
		}
		part := make([]byte, i)
		n, _ := in.Read(part)
		buf.Write(part[:n])
		c, _ := buf.ReadByte()
		fmt.Fprintf(table, "%d\t%s\t%d\t\n", i, part, buf.Len())
		fmt.Println(i, text.Len(), string(c), buf.String(), in.Len())
	}
	table.Flush()
	s := text.String()
	fmt.Println(len(s), strings.Count(s, "a"), s[290:310])
}
