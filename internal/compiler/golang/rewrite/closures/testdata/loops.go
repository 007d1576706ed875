package loops

import (
	"fmt"

	"test/hook"
)

func Run() {
	var fs []func() int
	for i := 0; i < 3; i++ {
		fs = append(fs, hook.See(func() int { i += 10; return i }))
	}
	for i, s := range []string{"a", "bb", "ccc"} {
		fs = append(fs, func() int { return i*10 + len(s) })
		i++
	}
	for k := 0; k < 6; k++ {
		if k%2 == 0 {
			bump := hook.See(func() { k++ })
			bump()
		}
		fs = append(fs, func() int { return k })
	}
	for _, f := range fs {
		fmt.Print(hook.See(f)(), " ", f(), " ")
	}
	fmt.Println()
}
