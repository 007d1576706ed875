package resume

import (
	"math"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
)

type loopFrame struct {
	At   int `cairn:"main.run" loops:"1=i<n@main.go:12 2=k<len(rows)@main.go:20 3=i<=200@main.go:30 4=far<n@main.go:40 5=? 6=i-k<=n-1@main.go:60 7=i--5<10@main.go:70 8=i<n+2@main.go:80"`
	i    int
	n    *int
	k    uint8
	rows []float64
}

// TestCurrentLoop checks how far a program is in its outermost loop.
func TestCurrentLoop(t *testing.T) {
	n, far := 50, math.MaxInt
	inner := &loopFrame{At: 3, i: 7}
	for _, c := range []struct {
		frame *loopFrame
		want  control.Loop
	}{
		{&loopFrame{At: 1, i: 3, n: &n}, control.Loop{Where: "main.go:12", Done: 3, Total: 50}},
		{&loopFrame{At: 2, k: 4, rows: make([]float64, 9)}, control.Loop{Where: "main.go:20", Done: 4, Total: 9}},
		{&loopFrame{At: 3, i: 200}, control.Loop{Where: "main.go:30", Done: 200, Total: 201}},
		{&loopFrame{At: 6, i: 9, k: 7, n: &n}, control.Loop{Where: "main.go:60", Done: 2, Total: 43}},
		{&loopFrame{At: 7, i: -3}, control.Loop{Where: "main.go:70", Done: 2, Total: 15}},
		{&loopFrame{At: 8, i: 51, n: &n}, control.Loop{Where: "main.go:80", Done: 51, Total: 52}},
		{&loopFrame{At: 9}, control.Loop{Where: "main.go:30", Done: 7, Total: 201}}, // not in a loop
		// Loops that say nothing: the inner one begins again and again.
		{&loopFrame{At: 4}, control.Loop{}},
		{&loopFrame{At: 5}, control.Loop{}},
		{&loopFrame{At: 1, i: 60, n: &n}, control.Loop{}},
		{&loopFrame{At: 1, i: -1, n: &n}, control.Loop{}},
		{&loopFrame{At: 6, i: 9, k: 10, n: &n}, control.Loop{}},
		{&loopFrame{At: 1, i: 60, n: &far}, control.Loop{}},
	} {
		got := currentLoop([]any{nil, c.frame, inner})
		if got == nil {
			got = new(control.Loop)
		}
		if *got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.frame, got, c.want)
		}
	}
	if got := currentLoop([]any{&loopFrame{At: 9}}); got != nil {
		t.Errorf("%+v", got)
	}
}
