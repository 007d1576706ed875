// Command rebuild keeps handles that cannot be saved, and has functions that
// make them again.
package main

//difftest:daily

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// device stands for a C library's handle: memory outside of Go's heap.
var (
	device   unsafe.Pointer
	size     = 16
	server   net.Listener
	client   net.Conn
	nothing  unsafe.Pointer
	attempts int
)

//cairn:rebuild
func open() error {
	mem, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for i := range size {
		mem[i] = byte(i * i)
	}
	device = unsafe.Pointer(&mem[0])
	return nil
}

// connect needs what the program has saved.
//
//cairn:rebuild
func connect() {
	if size != 8 {
		panic("the size was not restored")
	}
	var err error
	if server, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		panic(err)
	}
	if client, err = net.Dial("tcp", server.Addr().String()); err != nil {
		panic(err)
	}
}

//cairn:rebuild
func unused() { nothing = unsafe.Pointer(new(int)); panic("it never had a value") }

func main() {
	if err := open(); err != nil {
		panic(err)
	}
	sum := 0
	for i := range 40 { //difftest:loop
		attempts++
		bytes := unsafe.Slice((*byte)(device), 16)
		sum = (sum*31 + int(bytes[i%size])) % 9001
		if i == 20 {
			size = 8
			connect()
		}
		if i > 20 {
			conn, err := server.Accept()
			if err != nil {
				panic(err)
			}
			fmt.Fprintln(client, "message", i)
			var text [32]byte
			n, _ := conn.Read(text[:])
			fmt.Print(string(text[:n]))
			conn.Close()
			client, _ = net.Dial("tcp", server.Addr().String())
		}
		fmt.Println(i, sum)
	}
	fmt.Println(attempts, nothing == nil)
	if unsafe.Sizeof(size) == 1 {
		unused()
	}
}
