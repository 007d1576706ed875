package resume_test

import (
	"testing"

	"github.com/cairnrun/cairn/resume"
)

var sink float64

// BenchmarkDue compares a loop with a point to one without.
func BenchmarkDue(b *testing.B) {
	b.Run("without", func(b *testing.B) {
		x := 1.0
		for range b.N {
			x = x*0.5 + 1
		}
		sink = x
	})
	b.Run("with", func(b *testing.B) {
		d := resume.Enter()
		x := 1.0
		for i := range b.N {
			if resume.Due() {
				resume.Point(d, &benchFrame{1, i, x})
			}
			x = x*0.5 + 1
		}
		sink = x
	})
}

type benchFrame struct {
	At, I int
	X     float64
}

// BenchmarkCall measures a call of a resumable function.
func BenchmarkCall(b *testing.B) {
	b.Run("without", func(b *testing.B) {
		for i := range b.N {
			sink += plain(i)
		}
	})
	b.Run("with", func(b *testing.B) {
		d := resume.Enter()
		for i := range b.N {
			if resume.Storing(d) {
				*resume.NewFrame[benchFrame](d) = benchFrame{1, i, 2}
				resume.Own().Calling(d)
			}
			sink += deeper(i)
		}
	})
}

//go:noinline
func plain(i int) float64 { return float64(i) }

//go:noinline
func deeper(i int) float64 {
	d := resume.Enter()
	if resume.Resuming(d) {
		resume.BadFrame(d)
	}
	return float64(i)
}
