// Command multifile covers several files in a package, build constraints,
// embedded files and imports under other names.
package main

import (
	_ "embed"
	"fmt"
	str "strings"
)

//go:embed table.txt
var text string

func main() {
	strings := str.Fields(text) // hides the package's own name
	fmt := fmt.Sprint("shadowed")
	total := 0
	for i, s := range strings { //difftest:loop
		total = spin(total, len(s)+i)
		say(i, s, total, platform)
	}
	say(len(fmt), total)
}
