// Command process talks to a child process for the whole run.
package main

//difftest:refuse (?i)process|os\.File|exec\.|goroutine|pipe

import (
	"bufio"
	"fmt"
	"log"
	"os/exec"
)

func main() {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		log.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	n := 1
	for i := range 6 { //difftest:loop
		for k := range 3000 {
			n = (n*7 + k) % 5009
		}
		fmt.Fprintln(in, i, n)
		lines.Scan()
		fmt.Println(lines.Text())
	}
	in.Close()
	fmt.Println(cmd.Wait())
}
