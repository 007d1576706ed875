package graph

import "testing"

func BenchmarkRows(b *testing.B) {
	rows := make([][]float64, 1_000_000)
	for i := range rows {
		rows[i] = []float64{float64(i), 1, 2, 3}
	}
	roots := []Root{{"rows", &rows}}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if _, err := Collect(roots, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		var c Collector
		for b.Loop() {
			if _, err := c.Collect(roots, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
