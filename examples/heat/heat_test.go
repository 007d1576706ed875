package main

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cairnrun/cairn/mpi"
)

func noPoint() error { return nil }

// run computes a plate on some ranks, and returns it and rank 0's output.
func run(t *testing.T, ranks, n, steps, check int, tolerance float64) ([]float64, string) {
	t.Helper()
	var field []float64
	var out strings.Builder
	err := mpi.Local(ranks, func(c *mpi.Comm) error {
		p, err := newPlate(c, n)
		if err != nil {
			return err
		}
		w := io.Discard
		if c.Rank() == 0 {
			w = &out
		}
		if err := p.run(c, steps, check, tolerance, w, noPoint); err != nil {
			return err
		}
		f, err := p.gather(c)
		if c.Rank() == 0 {
			field = f
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return field, out.String()
}

// reference computes a plate in the simplest way.
func reference(n, steps int) [][]float64 {
	u := make([][]float64, n+2)
	for y := range u {
		u[y] = make([]float64, n+2)
	}
	for x := range u[0] {
		u[0][x] = hot
	}
	for range steps {
		v := make([][]float64, n+2)
		for y := range v {
			v[y] = append([]float64(nil), u[y]...)
		}
		for y := 1; y <= n; y++ {
			for x := 1; x <= n; x++ {
				v[y][x] += diffusivity * (u[y-1][x] + u[y+1][x] + u[y][x-1] + u[y][x+1] - 4*u[y][x])
			}
		}
		u = v
	}
	return u
}

// TestPlate shows that any number of ranks computes what the plain loops of
// reference compute, and that ranks differ in no bit.
func TestPlate(t *testing.T) {
	const n, steps = 11, 100
	want := reference(n, steps)
	first, firstOut := run(t, 1, n, steps, 7, 0)
	for i, v := range first {
		if d := math.Abs(v - want[i/n+1][i%n+1]); d > 1e-11 {
			t.Fatalf("point %d,%d is %v, not %v", i/n, i%n, v, want[i/n+1][i%n+1])
		}
	}
	for _, ranks := range []int{2, 3, 4, 7, 11} {
		field, out := run(t, ranks, n, steps, 7, 0)
		if digest(field) != digest(first) || out != firstOut {
			t.Errorf("%d ranks compute another plate than one:\n%s", ranks, out)
		}
	}
	if lines := strings.Count(firstOut, "\n"); lines != steps/7+1 {
		t.Errorf("%d lines:\n%s", lines, firstOut)
	}
}

// TestPlate_StopsAtTolerance shows that the run ends at the first check whose
// residual is within the tolerance.
func TestPlate_StopsAtTolerance(t *testing.T) {
	_, out := run(t, 3, 10, 1000000, 10, 1e-6)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, l := range lines {
		var step int
		var residual float64
		if _, err := fmt.Sscanf(l, "step %d residual %g", &step, &residual); err != nil {
			t.Fatal(err)
		}
		if last := i == len(lines)-1; step != 10*(i+1) || last != (residual <= 1e-6) {
			t.Errorf("line %d of %d: %s", i, len(lines), l)
		}
	}
}

func TestPlate_TooManyRanks(t *testing.T) {
	err := mpi.Local(3, func(c *mpi.Comm) error {
		_, err := newPlate(c, 2)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "2 rows are too few for 3 ranks") {
		t.Error(err)
	}
}

// TestPlate_Restart kills the ranks at a point and resumes from their state.
func TestPlate_Restart(t *testing.T) {
	const ranks, n, steps, check = 3, 10, 20, 4
	killed := errors.New("killed")
	want, _ := run(t, ranks, n, steps, check, 0)
	for at := range steps {
		var saved [ranks]bytes.Buffer
		var all sync.WaitGroup
		all.Add(ranks)
		err := mpi.Local(ranks, func(c *mpi.Comm) error {
			p, err := newPlate(c, n)
			if err != nil {
				return err
			}
			return p.run(c, steps, check, 0, io.Discard, func() error {
				if p.Step < at {
					return nil
				}
				err := gob.NewEncoder(&saved[c.Rank()]).Encode(p)
				all.Done()
				all.Wait() // no rank dies before all have saved
				return errors.Join(killed, err)
			})
		})
		if !errors.Is(err, killed) {
			t.Fatal(err)
		}
		err = mpi.Local(ranks, func(c *mpi.Comm) error {
			var p plate
			if err := gob.NewDecoder(&saved[c.Rank()]).Decode(&p); err != nil {
				return err
			}
			if err := p.run(c, steps, check, 0, io.Discard, noPoint); err != nil {
				return err
			}
			field, err := p.gather(c)
			if c.Rank() == 0 && digest(field) != digest(want) {
				t.Errorf("killed at step %d, the plate is another", at)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPicture checks the size of the picture, and that the hot edge is
// brighter.
func TestPicture(t *testing.T) {
	field, _ := run(t, 2, 16, 100, 100, 0)
	path := filepath.Join(t.TempDir(), "plate.png")
	if err := writePicture(path, field, 16); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dx() != 16 || b.Dy() != 16 {
		t.Errorf("the picture is %v", b)
	}
	top, _, _, _ := img.At(8, 0).RGBA()
	bottom, _, _, _ := img.At(8, 15).RGBA()
	if top <= bottom {
		t.Errorf("the hot edge is not brighter: %d and %d", top, bottom)
	}
}
