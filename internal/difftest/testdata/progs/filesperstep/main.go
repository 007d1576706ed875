// Command filesperstep covers files that are opened, written, read again and
// removed within one step: one result file per step, as simulations do.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := os.MkdirAll("frames", 0o755); err != nil {
		panic(err)
	}
	wave := make([]float64, 32)
	wave[5] = 1
	for frame := range 6 { //difftest:loop
		for range 100 {
			for i := 1; i < len(wave)-1; i++ {
				wave[i] += (wave[i-1] - 2*wave[i] + wave[i+1]) * 0.1
			}
		}
		name := filepath.Join("frames", fmt.Sprintf("f%02d.txt", frame))
		var text strings.Builder
		for _, v := range wave[:8] {
			fmt.Fprintf(&text, "%.9f\n", v)
		}
		if err := os.WriteFile(name, []byte(text.String()), 0o644); err != nil {
			panic(err)
		}
		if frame >= 3 {
			old, err := os.ReadFile(filepath.Join("frames", fmt.Sprintf("f%02d.txt", frame-1)))
			fmt.Println("old", len(old), err)
			os.Remove(filepath.Join("frames", fmt.Sprintf("f%02d.txt", frame-3)))
		}
		fmt.Printf("%d %.9f\n", frame, wave[5])
	}
	names, _ := filepath.Glob("frames/*")
	fmt.Println(names)
}
