package graph

import (
	"fmt"
	"testing"
)

func BenchmarkCollect_Rows(b *testing.B) {
	rows := make([][]float64, 1_000_000)
	for i := range rows {
		rows[i] = []float64{float64(i), 1, 2, 3}
	}
	benchCollect(b, &rows)
}

type benchNode struct {
	next *benchNode
	id   int64
	x, y float64
}

type benchLeaf struct {
	left, right *benchLeaf
	key         uint64
	of          *benchNode
}

func BenchmarkCollect_List(b *testing.B) {
	var list *benchNode
	for i := range 1_000_000 {
		list = &benchNode{list, int64(i), 1, 2}
	}
	benchCollect(b, &list)
}

func BenchmarkCollect_Tree(b *testing.B) {
	var tree *benchLeaf
	for i := range 1_000_000 {
		l := &benchLeaf{key: uint64(i+1) * 0x9e3779b97f4a7c15}
		p := &tree
		for *p != nil {
			if l.key < (*p).key {
				p = &(*p).left
			} else {
				p = &(*p).right
			}
		}
		*p = l
	}
	benchCollect(b, &tree)
}

func BenchmarkCollect_Strings(b *testing.B) {
	names := make(map[int]string)
	for i := range 200_000 {
		names[i] = fmt.Sprint("name ", i)
	}
	benchCollect(b, &names)
}

func benchCollect(b *testing.B, root any) {
	roots := []Root{{"root", root}}
	c := Collector{Remember: true}
	defer c.Close()
	buf := make([]byte, 64<<10)
	b.Run("collect", func(b *testing.B) {
		for b.Loop() {
			if _, err := c.Collect(roots, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	img, err := c.Collect(roots, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("gather", func(b *testing.B) {
		for b.Loop() {
			for i := range img.Pools {
				p := &img.Pools[i]
				if p.Gather == nil {
					continue
				}
				step := int64(len(buf) / p.Form.Size * p.Form.Size)
				for at := int64(0); at < int64(p.Bytes()); at += step {
					if err := p.Gather(buf[:min(step, int64(p.Bytes())-at)], at); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
	})
}
