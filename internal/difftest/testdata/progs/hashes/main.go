// Command hashes covers hash states that are fed across points: sha256, md5,
// crc32, fnv, and a MultiWriter over them.
package main

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/fnv"
	"io"
)

func main() {
	sum := sha256.New()
	list := []hash.Hash{sum, md5.New(), crc32.NewIEEE(), fnv.New64a()}
	block := make([]byte, 100)
	for i := range 9 { //difftest:loop
		for k := range block {
			block[k] = byte(k*i + int(block[(k+1)%100]))
		}
		var ws []io.Writer
		for _, h := range list {
			ws = append(ws, h)
		}
		all := io.MultiWriter(ws...)
		for range 20 {
			all.Write(block[:37+i])
		}
		fmt.Println(i, hex.EncodeToString(sum.Sum(nil)[:8]))
	}
	for _, h := range list {
		fmt.Printf("%x\n", h.Sum(nil))
	}
}
