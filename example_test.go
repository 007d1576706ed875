package cairn_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cairnrun/cairn"
)

// A loop that is interrupted after step 3 and started again.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	run := func(interrupt int) error {
		ctx := context.Background()
		p, err := cairn.Open(ctx, cairn.Options{Dir: filepath.Join(dir, "ckpt"), EveryPoints: 1})
		if err != nil {
			return err
		}
		defer p.Close()
		step, sum := 0, 0
		cairn.Protect(p, "step", &step)
		cairn.Protect(p, "sum", &sum)
		resumed, err := p.Restore(ctx)
		if err != nil {
			return err
		}
		fmt.Println("resumed:", resumed, "at step", step)
		for ; step < 6; step++ {
			if err := p.Checkpoint(ctx); err != nil { // usually p.Point, which saves when due
				return err
			}
			if step == interrupt {
				return errors.New("interrupted")
			}
			sum += step
		}
		fmt.Println("sum:", sum)
		return nil
	}
	fmt.Println(run(3))
	fmt.Println(run(-1))
	// Output:
	// resumed: false at step 0
	// interrupted
	// resumed: true at step 3
	// sum: 15
	// <nil>
}

// counter cannot be saved as it is: it holds a function.
type counter struct {
	n      int
	report func(int)
}

// CairnState says what to save, and makes the rest again.
func (c *counter) CairnState(s *cairn.Coder) error {
	cairn.Field(s, "n", &c.n)
	if s.Restoring() {
		c.report = func(n int) { fmt.Println("count is", n) }
	}
	return nil
}

// A type that brings its own codec: one method for both directions.
func ExampleField() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	save := func() error {
		p, err := cairn.Open(ctx, cairn.Options{Dir: dir})
		if err != nil {
			return err
		}
		defer p.Close()
		c := &counter{n: 41, report: func(int) {}}
		cairn.Protect(p, "counter", &c)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		c.n++
		return p.Checkpoint(ctx)
	}
	load := func() error {
		p, err := cairn.Open(ctx, cairn.Options{Dir: dir})
		if err != nil {
			return err
		}
		defer p.Close()
		var c *counter
		cairn.Protect(p, "counter", &c)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		c.report(c.n)
		return nil
	}
	fmt.Println(save(), load())
	// Output:
	// count is 42
	// <nil> <nil>
}

// An output file that is part of the state: lines written after the last
// checkpoint are taken back, and written again.
func ExampleRun_OpenFile() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	run := func(interrupted bool) error {
		p, err := cairn.Open(ctx, cairn.Options{Dir: filepath.Join(dir, "ckpt")})
		if err != nil {
			return err
		}
		defer p.Close()
		out, err := p.OpenFile(filepath.Join(dir, "out.txt"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		defer out.Close()
		step := 0
		cairn.Protect(p, "step", &step)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		for ; step < 4; step++ {
			if step == 2 && interrupted {
				if err := p.Checkpoint(ctx); err != nil {
					return err
				}
				fmt.Fprintln(out, "this line comes after the checkpoint")
				return errors.New("interrupted")
			}
			fmt.Fprintln(out, "line", step)
		}
		return nil
	}
	fmt.Println(run(true), run(false))
	text, _ := os.ReadFile(filepath.Join(dir, "out.txt"))
	fmt.Print(string(text))
	// Output:
	// interrupted <nil>
	// line 0
	// line 1
	// line 2
	// line 3
}
