package cairn_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// fluid is a state whose parts are ready at different times.
type fluid struct {
	step               int
	velocity, pressure []float64
}

// advance computes a step. It saves the velocity while it is still to compute
// the pressure, for which it uses the velocity's memory.
func (f *fluid) advance(ctx context.Context, run *cairn.Run) error {
	if err := run.Begin(ctx); err != nil {
		return err
	}
	for i := range f.velocity {
		f.velocity[i] += f.pressure[i]
	}
	if err := run.Add("velocity"); err != nil { // copied: it may change from here on
		return err
	}
	v := f.velocity[0]
	for i := range f.pressure {
		f.velocity[i] *= 2
		f.pressure[i] = f.velocity[i] + 1
		f.velocity[i] /= 2
	}
	f.step++
	fmt.Println("step", f.step, "velocity", v, "pressure", f.pressure[0])
	return run.Commit(ctx) // copies the rest: step and pressure
}

// A checkpoint of variables that become ready one after the other.
func ExampleRun_Begin() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	simulate := func(steps int) error {
		run, err := cairn.Open(ctx, cairn.Options{Dir: dir})
		if err != nil {
			return err
		}
		defer run.Close()
		f := fluid{velocity: make([]float64, 1000), pressure: make([]float64, 1000)}
		f.pressure[0] = 1
		cairn.Protect(run, "step", &f.step)
		cairn.Protect(run, "velocity", &f.velocity)
		cairn.Protect(run, "pressure", &f.pressure)
		if _, err := run.Restore(ctx); err != nil {
			return err
		}
		for f.step < steps {
			if err := f.advance(ctx, run); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Println(simulate(2)) // and started again
	fmt.Println(simulate(4))
	// Output:
	// step 1 velocity 1 pressure 3
	// step 2 velocity 4 pressure 9
	// <nil>
	// step 3 velocity 13 pressure 27
	// step 4 velocity 40 pressure 81
	// <nil>
}

// TestDocs_IncrementalExample shows that docs/library.md has the example above.
func TestDocs_IncrementalExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "func (f *fluid) advance(", "\n}\n"
	_, code, _ := strings.Cut(string(source), begin)
	code, _, _ = strings.Cut(code, end)
	if !strings.Contains(string(doc), begin+code+end) {
		t.Errorf("docs/library.md does not have this:\n%s%s%s", begin, code, end)
	}
}
