// Command gonetwork has a goroutine that waits for connections at every point.
package main

//difftest:refuse started at main\.go:20 waits for a network connection.*cairn:background

import (
	"fmt"
	"net"
	"os"
)

func main() {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	addr := l.Addr().Network()
	sum := 0
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	for i := range 9 { //difftest:loop
		sum = sum*3 + i
		fmt.Println(i, sum)
	}
	fmt.Println(addr)
	l.Close()
}
