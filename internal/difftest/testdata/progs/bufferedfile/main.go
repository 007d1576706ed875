// Command bufferedfile covers a bufio.Writer over a file with data unflushed
// at points, and a temporary file renamed at the end.
package main

import (
	"bufio"
	"fmt"
	"os"
)

type sink struct {
	f *os.File
	w *bufio.Writer
	n int
}

func open(name string) (*sink, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &sink{f: f, w: bufio.NewWriterSize(f, 64)}, nil
}

func (s *sink) line(format string, args ...any) {
	s.n++
	fmt.Fprintf(s.w, format+"\n", args...)
}

func (s *sink) close() error {
	if err := s.w.Flush(); err != nil {
		return err
	}
	return s.f.Close()
}

func run() error {
	s, err := open("result.tmp")
	if err != nil {
		return err
	}
	x := 0.5
	for i := range 12 { //difftest:loop
		for range 2000 {
			x = 3.9 * x * (1 - x)
		}
		s.line("%d %.12f", i, x)
		fmt.Println(i, s.n, s.w.Buffered())
	}
	if err := s.close(); err != nil {
		return err
	}
	return os.Rename("result.tmp", "result.txt")
}

func main() {
	if err := run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
