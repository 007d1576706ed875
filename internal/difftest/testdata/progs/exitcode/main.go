// Command exitcode covers os.Exit with a status of its own from a callee, with
// deferred calls that must not run.
package main

//difftest:exit 3

import (
	"fmt"
	"os"
)

func finish(errs []error) {
	defer fmt.Println("not yet", len(errs))
	if len(errs) > 2 {
		fmt.Println("giving up:", errs)
		os.Exit(3)
	}
}

func main() {
	defer fmt.Println("never shown either")
	var errs []error
	n := 0
	for i := 0; ; i++ { //difftest:loop
		for k := range 5000 {
			n = (n*5 + k + i) % 6007
		}
		if n%2 == 1 {
			errs = append(errs, fmt.Errorf("odd %d at %d", n, i))
		}
		fmt.Println(i, n)
		finish(errs)
	}
}
