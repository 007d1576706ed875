package resume

import (
	"testing"

	"github.com/cairnrun/cairn/internal/control"
)

type loopFrame struct {
	At   int `cairn:"main.run" loops:"1=i<n@main.go:12 2=k<len(rows)@main.go:20 3=i<=200@main.go:30 4=far<n@main.go:40"`
	i    int
	n    *int
	k    uint8
	rows []float64
}

// TestCurrentLoop checks how far a program is in its outermost loop.
func TestCurrentLoop(t *testing.T) {
	n := 50
	inner := &loopFrame{At: 3, i: 7}
	for _, c := range []struct {
		frame *loopFrame
		want  control.Loop
	}{
		{&loopFrame{At: 1, i: 3, n: &n}, control.Loop{Where: "main.go:12", Done: 3, Total: 50}},
		{&loopFrame{At: 2, k: 4, rows: make([]float64, 9)}, control.Loop{Where: "main.go:20", Done: 4, Total: 9}},
		{&loopFrame{At: 3, i: 200}, control.Loop{Where: "main.go:30", Done: 200, Total: 201}},
		// Loops that say nothing: the inner one does.
		{&loopFrame{At: 4}, control.Loop{Where: "main.go:30", Done: 7, Total: 201}},
		{&loopFrame{At: 9}, control.Loop{Where: "main.go:30", Done: 7, Total: 201}},
		{&loopFrame{At: 1, i: 60, n: &n}, control.Loop{Where: "main.go:30", Done: 7, Total: 201}},
		{&loopFrame{At: 1, i: -1, n: &n}, control.Loop{Where: "main.go:30", Done: 7, Total: 201}},
	} {
		if got := currentLoop([]any{nil, c.frame, inner}); got == nil || *got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.frame, got, c.want)
		}
	}
	if got := currentLoop([]any{&loopFrame{At: 5}}); got != nil {
		t.Errorf("%+v", got)
	}
}
