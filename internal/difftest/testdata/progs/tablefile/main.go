// Command tablefile covers a table of records on disk that are read and written
// in place, by one file that stays open and by one that is opened for each.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"progs/moment"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

const records = 3000

func main() {
	f, err := os.Create("table")
	check(err)
	defer f.Close()
	for i := range records {
		check(binary.Write(f, binary.LittleEndian, uint64(i*i)))
	}
	rec := make([]byte, 8)
	x := uint64(1)
	for i := range 12 { //difftest:loop
		sum := uint64(0)
		for range 40 {
			x = x*6364136223846793005 + 1442695040888963407
			at := int64(x>>33) % records * 8
			_, err := f.ReadAt(rec, at)
			check(err)
			v := binary.LittleEndian.Uint64(rec)
			sum += v
			binary.LittleEndian.PutUint64(rec, v*3+uint64(i))
			_, err = f.WriteAt(rec, at)
			check(err)
			moment.Pass()
		}
		g, err := os.OpenFile("table", os.O_RDWR, 0)
		check(err)
		_, err = g.Seek(int64(i)*1000, io.SeekStart)
		check(err)
		_, err = io.ReadFull(g, rec)
		check(err)
		fmt.Fprintf(g, "%x", rec)
		_, err = io.Copy(g, io.LimitReader(f, 100)) // from where f is: its end
		check(err)
		check(g.Close())
		fmt.Println(i, sum, rec)
	}
}
