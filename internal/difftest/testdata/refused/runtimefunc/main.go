// Command runtimefunc keeps a *runtime.Func across its points: its address is all
// that it is.
package main

//difftest:refuse (?i)belongs to the Go runtime

import (
	"fmt"
	"runtime"
)

func main() {
	pc, _, _, _ := runtime.Caller(0)
	f := runtime.FuncForPC(pc)
	sum := 0
	for i := range 6 { //difftest:loop
		for k := range 3000 {
			sum = (sum*3 + k + i) % 8009
		}
		fmt.Println(i, sum)
	}
	fmt.Println(f.Name())
}
