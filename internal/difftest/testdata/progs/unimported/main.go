// Command unimported keeps values whose types are of packages that no source
// file imports, in closures and in variables across points.
package main

import (
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"os"
)

// words gives a function n words.
func words(n int, emit func(string)) {
	for i := range n { //difftest:loop
		emit(fmt.Sprint("word ", i*i%97))
	}
}

func main() {
	all := sha256.New() // a hash.Hash
	info, err := os.Stat(".")
	if err != nil {
		panic(err)
	}
	begin := info.ModTime().UTC() // a time.Time
	day := begin
	for r := range 4 { //difftest:loop
		short := fnv.New64a() // a hash.Hash64
		words(3+r, func(w string) {
			for range 50 {
				all.Write([]byte(w))
				short.Write([]byte(w))
			}
			day = day.AddDate(0, 0, 1)
		})
		fmt.Printf("%d %x %x %v\n", r, all.Sum(nil)[:8], short.Sum64(), day.Sub(begin))
	}
}
