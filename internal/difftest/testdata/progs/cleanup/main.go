// Command cleanup covers the usual shape of tools: main calls run, which
// returns an error; files are closed by defers; the exit status tells.
package main

//difftest:args -limit 5
//difftest:exit 4

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

var errLimit = errors.New("limit reached")

type config struct {
	limit int
	out   io.Writer
}

func run(args []string, stdout io.Writer) (err error) {
	fs := flag.NewFlagSet("cleanup", flag.ContinueOnError)
	cfg := config{}
	fs.IntVar(&cfg.limit, "limit", 10, "rounds")
	if err := fs.Parse(args); err != nil {
		return err
	}
	f, err := os.OpenFile("result.txt", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	w := bufio.NewWriter(f)
	defer w.Flush()
	cfg.out = io.MultiWriter(stdout, w)
	return work(&cfg)
}

func work(cfg *config) error {
	x := 1.0
	for i := 0; ; i++ { //difftest:loop
		if i >= cfg.limit {
			return fmt.Errorf("round %d: %w", i, errLimit)
		}
		for range 2000 {
			x = x - (x*x-2-float64(i))/(2*x)
		}
		fmt.Fprintf(cfg.out, "%d %.12f\n", i, x)
	}
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Println("error:", err)
		if errors.Is(err, errLimit) {
			os.Exit(4)
		}
		os.Exit(1)
	}
}
