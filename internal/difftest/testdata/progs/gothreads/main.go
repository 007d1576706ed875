// Command gothreads has goroutines that have a thread of their own, for a while.
package main

import (
	"fmt"
	"runtime"
	"strings"
)

func init() { runtime.LockOSThread() }

// locked reports whether this goroutine has a thread of its own.
func locked() bool {
	buf := make([]byte, 100)
	line, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), "\n")
	return strings.Contains(line, "locked to thread")
}

func busy(n int) (sum int) {
	for i := range n { //difftest:loop
		sum += i * i
	}
	return sum
}

// thread locks its thread twice and unlocks it once: it is still locked.
func thread(name string, results chan<- string) {
	runtime.LockOSThread()
	runtime.LockOSThread()
	runtime.UnlockOSThread()
	for i := range 4 { //difftest:loop
		results <- fmt.Sprint(name, " ", busy(5+i), " ", locked())
	}
	runtime.UnlockOSThread()
	runtime.UnlockOSThread() // does nothing
	results <- fmt.Sprint(name, " ", busy(3), " ", locked())
}

func main() {
	fmt.Println("main", busy(4), locked())
	runtime.UnlockOSThread()
	fmt.Println("main", busy(4), locked())
	for _, name := range []string{"first", "second"} {
		results := make(chan string)
		go thread(name, results)
		for range 5 { //difftest:loop
			fmt.Println(<-results)
		}
	}
	runtime.LockOSThread()
	fmt.Println("main", busy(6), locked())
}
