package hotloops

import (
	"math"
	"testing"
)

// tables are the tables of Rodríguez et al., "Compiler-assisted checkpointing
// of parallel codes: automatic insertion", for the loops before the knee.
var tables = []struct {
	name   string
	S, A   float64
	within float64 // how far the printed h differ from their own s and a
	loops  [][3]float64
	keep   int
	share  float64
}{
	{"BT", 5084, 13502, 0.0025, [][3]float64{
		{2075, 5547, 0.7755}, {107, 490, 3.1149}, {30, 132, 4.2368}, {19, 47, 4.8837}}, 1, 0.5694},
	{"IS", 242, 260, 0.0002, [][3]float64{
		{90, 154, 0.6570}, {56, 39, 1.4595}, {36, 59, 1.4716}, {23, 38, 1.8573}, {16, 10, 2.5947}}, 3, 0.6194},
	{"SP", 2800, 6009, 0.0025, [][3]float64{
		{927, 1783, 1.0077}, {107, 490, 2.5044}, {30, 132, 3.6262}, {19, 47, 4.2731}, {12, 40, 4.5427}}, 4, 1},
	{"DBEM", 3330, 5262, 0.002, [][3]float64{
		{1924, 2869, 0.5017}, {333, 438, 2.0797}, {214, 426, 2.2838}, {182, 457, 2.3236}, {135, 237, 2.7385},
		{84, 180, 3.0640}, {89, 66, 3.4747}, {52, 95, 3.5499}, {60, 69, 3.6266}, {53, 41, 3.9065}}, 4, 0.6570},
	{"FT", 802, 1261, 0.132, [][3]float64{
		{189, 337, 1.2005}, {9, 24, 3.5398}, {9, 24, 3.5398}, {9, 24, 3.5398}, {7, 9, 4.0750}, {3, 7, 4.5521}}, 1, 0.6980},
	{"LU", 1527, 7415, 0.242, [][3]float64{
		{452, 2251, 1.0466}, {43, 151, 3.4828}, {33, 116, 3.7122}}, 1, 0.9139},
}

// TestCluster_PublishedTables compares with the published tables: h of each
// loop, and which loops are kept.
func TestCluster_PublishedTables(t *testing.T) {
	for _, c := range tables {
		var printed, computed []float64
		for i, l := range c.loops {
			x := h(l[0], l[1], c.S, c.A)
			if d := math.Abs(x - l[2]); d > c.within {
				t.Errorf("%s, loop %d: h is %.4f, printed %.4f", c.name, i+1, x, l[2])
			}
			printed, computed = append(printed, l[2]), append(computed, x)
		}
		for _, curve := range [][]float64{printed, computed} {
			keep, share := Cluster(curve)
			if keep != c.keep || math.Abs(share-c.share) > max(0.0001, c.within) {
				t.Errorf("%s: %d of %d chosen with %.4f of the range, not %d with %.4f", c.name, keep, len(curve), share, c.keep, c.share)
			}
		}
	}
}

// TestTriangle_Knee checks where the knee of a curve is.
func TestTriangle_Knee(t *testing.T) {
	for _, c := range []struct {
		h    []float64
		want int
	}{
		{nil, -1},
		{[]float64{1}, 0},
		{[]float64{1, 5}, 1},
		{[]float64{2, 2, 2}, 2},             // a straight line
		{[]float64{0.1, 0.2, 0.3, 0.4}, 3},  // straight except for rounding
		{[]float64{0, 5, 5.1, 5.2, 5.3}, 1}, // above the line
		{[]float64{0, 0.1, 0.2, 0.3, 6}, 3}, // below it
		{[]float64{0, 3, 4.1, 4.5, 4.7, 5}, 2},
		{[]float64{0, 3, 3.9, 4.5, 4.7, 5}, 1},
	} {
		if got := Triangle(c.h); got != c.want {
			t.Errorf("Triangle(%v) is %d, not %d", c.h, got, c.want)
		}
	}
	// A curve like that of the paper's figure: 4 of 25 are before the knee.
	bt := []float64{0.7755, 3.1149, 4.2368, 4.8837}
	for len(bt) < 25 {
		bt = append(bt, 4.8837+0.1*float64(len(bt)-3))
	}
	if got := Triangle(bt); got != 3 {
		t.Errorf("the knee is at %d", got)
	}
}

// TestCluster_Gap checks how many loops are kept, for curves with gaps in
// several places.
func TestCluster_Gap(t *testing.T) {
	for _, c := range []struct {
		h    []float64
		keep int
	}{
		{nil, 0},
		{[]float64{1}, 1},
		{[]float64{1, 1}, 2},
		{[]float64{1, 1, 1}, 3},
		{[]float64{1, 2}, 1},
		{[]float64{1, 1, 2}, 2},
		{[]float64{1, 2, 4, 8}, 3}, // the last is compared with its left neighbour only
		{[]float64{1, 2, 3, 4}, 1}, // the second difference is 0 from the third on, so the last maximum is at 1
		{[]float64{0, 2, 2.1, 4, 4.1}, 3},
		{[]float64{1, 2, 3, 3, 3}, 5}, // equal values stay together
	} {
		if keep, share := Cluster(c.h); keep != c.keep || share < 0 || share > 1 {
			t.Errorf("Cluster(%v) keeps %d, not %d (share %v)", c.h, keep, c.keep, share)
		}
	}
}
