// Command connection keeps a TCP connection, and its other end, in variables
// that are live at every point.
package main

//difftest:refuse (?i)net\.|connection|goroutine

import (
	"bufio"
	"fmt"
	"log"
	"net"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		log.Fatal(err)
	}
	in := bufio.NewReader(server)
	sum := 0
	for i := range 6 { //difftest:loop
		for k := range 3000 {
			sum = (sum*5 + k + i) % 7919
		}
		fmt.Fprintln(client, sum)
		line, err := in.ReadString('\n')
		fmt.Print(i, " ", err, " ", line)
	}
	client.Close()
	server.Close()
}
