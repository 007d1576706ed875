// Command rebuildgo has a function that makes a server and its goroutines again
// after a restart. The goroutines wait for the network, and hold what cannot be
// saved.
package main

//difftest:killed 20

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
)

var (
	server net.Listener
	client *bufio.ReadWriter
	idle   atomic.Bool
)

//cairn:rebuild
func connect() (err error) {
	if server, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	go serve(server)
	conn, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		return err
	}
	client = bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	other, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		return err
	}
	go func(c net.Conn) {
		fmt.Fprintln(c, "never answered")
		c.Read(make([]byte, 100))
		idle.Store(false)
	}(other)
	return nil
}

func serve(l net.Listener) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	for in := bufio.NewScanner(conn); in.Scan(); {
		fmt.Fprintln(conn, strings.ToUpper(in.Text()))
	}
}

func main() {
	if err := connect(); err != nil {
		panic(err)
	}
	idle.Store(true)
	size := 0
	for i := range 30 { //difftest:loop
		fmt.Fprintln(client, "message", i)
		client.Flush()
		text, err := client.ReadString('\n')
		if err != nil || !idle.Load() {
			panic("the server has ended")
		}
		text = strings.TrimSpace(text)
		size += len(text)
		fmt.Println(text, size)
	}
}
