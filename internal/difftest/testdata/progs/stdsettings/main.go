// Stdsettings changes settings of the standard library in main: variables that
// it assigns to, types and formats that it registers, the process's umask.
package main

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"log/slog"
	"mime"
	"os"
	"runtime/debug"
	"syscall"
	"time"
)

type shape interface{ area() float64 }

type square struct{ Side float64 }

func (s square) area() float64 { return s.Side * s.Side }

func main() {
	fmt.Println("begin")
	gob.Register(square{})
	mime.AddExtensionType(".cairn", "text/x-cairn")
	umask := syscall.Umask
	umask(0o077)
	debug.SetGCPercent(87)
	slog.SetLogLoggerLevel(slog.LevelDebug)
	time.Local = time.FixedZone("LAB", 5400)
	stdout := os.Stdout
	report, err := os.Create("report.txt")
	if err != nil {
		panic(err)
	}
	os.Stdout = report
	x := uint64(1)
	for i := range 60 { //difftest:loop
		for range 1000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		if i == 40 {
			os.Stdout = stdout
		}
		if i%10 == 9 {
			var s shape = square{float64(i)}
			var b bytes.Buffer
			err := gob.NewEncoder(&b).Encode(&s)
			name := fmt.Sprint("out", i)
			if err := os.WriteFile(name, b.Bytes(), 0o666); err != nil {
				panic(err)
			}
			st, _ := os.Stat(name)
			fmt.Println(i, x, err, st.Mode(), time.Unix(0, 0), mime.TypeByExtension(".cairn"))
			fmt.Fprintln(stdout, "step", i)
		}
	}
	fmt.Println(debug.SetGCPercent(100), slog.SetLogLoggerLevel(0), syscall.Umask(0o022))
}
