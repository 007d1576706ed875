// Command errorsis covers error types, wrapping, joined errors, errors.Is and
// As with sentinel identity after points.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

var errLow = errors.New("low")

type opError struct {
	op  string
	n   int
	err error
}

func (e *opError) Error() string { return fmt.Sprintf("%s %d: %v", e.op, e.n, e.err) }
func (e *opError) Unwrap() error { return e.err }

type temporary struct{ error }

func (temporary) Temporary() bool { return true }

func attempt(n int) error {
	s := 0
	for k := range 3000 {
		s += k ^ n
	}
	switch n % 6 {
	case 0:
		return nil
	case 1:
		return &opError{"read", s, io.EOF}
	case 2:
		return fmt.Errorf("n=%d: %w", n, errLow)
	case 3:
		_, err := os.Open("no/such/file")
		return err
	case 4:
		return temporary{errors.Join(errLow, io.ErrUnexpectedEOF)}
	}
	return &opError{"deep", n, temporary{&opError{"inner", n + 1, errLow}}}
}

func main() {
	var all []error
	var last error
	for n := range 8 { //difftest:loop
		if err := attempt(n); err != nil {
			last = err
			all = append(all, fmt.Errorf("try %d: %w", n, err))
		}
		var op *opError
		var t interface{ Temporary() bool }
		joined := errors.Join(all...)
		fmt.Println(n, last, errors.Is(joined, io.EOF), errors.Is(last, errLow), errors.Is(joined, fs.ErrNotExist),
			errors.As(last, &op), errors.As(joined, &t))
	}
	fmt.Println(len(all), errors.Is(all[0], io.EOF), errors.Unwrap(errors.Unwrap(all[0])) == io.EOF)
}
