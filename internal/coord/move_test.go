package coord

import (
	"slices"
	"testing"
)

// moving: scenarios with moves, in which ranks are replaced or stay.
var moving = []scenario{
	{name: "alone", scripts: []string{"p p"}, asks: []string{"0m"}, swap: "0", moves: 1, offs: "F"},
	{name: "alone, twice", scripts: []string{"p p p"}, asks: []string{"0m", "0m"}, swap: "0", moves: 2, offs: "F"},
	{name: "alone, due", scripts: []string{"p p"}, cfg: Config{Every: 1}, asks: []string{"0m"}, swap: "0", saves: 2, moves: 1, offs: "F"},
	{name: "alone, spatial", scripts: []string{"p p"}, cfg: Config{Every: 1, Spatial: true}, asks: []string{"0m"}, swap: "0", saves: 2, moves: 1, offs: "F"},
	{name: "silent pair", scripts: []string{"p p p", "p p p"}, asks: []string{"1m"}, swap: "01", moves: 1, errs: "F", offs: "F"},
	{name: "halo", scripts: []string{"p s1 r1 p s1 r1 p", "p s0 r0 p s0 r0 p"}, asks: []string{"0m"}, swap: "1", moves: 1, errs: "F", offs: "F"},
	{name: "shifted", scripts: []string{"p s1 p s1 p", "p r0 p r0 p"}, asks: []string{"0m"}, swap: "01", moves: 1, errs: "F", offs: "F"},
	{name: "shifted by one", scripts: []string{"p s1 p s1 p", "r0 p r0 p p"}, asks: []string{"1m"}, swap: "01", moves: 1, errs: "F", offs: "F"},
	{name: "never together", scripts: []string{"p s1 r1 p s1 r1", "r0 p s0 r0 p s0"},
		cfg: Config{MaxReleases: 1}, asks: []string{"0m", "0"}, swap: "01", errs: "CF", offs: "CF"},
	{name: "move and checkpoint", scripts: []string{"p p", "p p"}, asks: []string{"0m", "1"}, swap: "01", saves: 1, moves: 1, errs: "F", offs: "F"},
	{name: "move and stop", scripts: []string{"p p", "p p"}, asks: []string{"1m", "1!"}, swap: "0", saves: 1, moves: 1, errs: "F", offs: "FS"},
	{name: "two moves", scripts: []string{"p p", "p p"}, asks: []string{"0m", "1m"}, swap: "01", moves: 2, errs: "F", offs: "F"},
	{name: "due", scripts: []string{"p p p", "p p p"}, cfg: Config{Every: 2}, asks: []string{"1m"}, swap: "01", saves: 1, moves: 1, errs: "F", offs: "F"},
	{name: "every point due", scripts: []string{"p p", "p p"}, cfg: Config{Every: 1}, asks: []string{"0m"}, swap: "01", saves: 2, moves: 1, errs: "F", offs: "F"},
	{name: "due and shifted", scripts: []string{"p s1 p s1 p", "r0 p r0 p p"}, cfg: Config{Every: 1}, asks: []string{"0m"}, swap: "1",
		saves: 2, moves: 1, errs: "F", offs: "F"},
	{name: "spatial", scripts: []string{"p p", "p p"}, cfg: Config{Every: 1, Spatial: true}, asks: []string{"0m"}, swap: "1", saves: 2, moves: 1, errs: "F", offs: "F"},
	{name: "spatial, one behind", scripts: []string{"r1 p p p p", "p p p s0 p"}, cfg: Config{Every: 2, Spatial: true, MaxReleases: 9}, asks: []string{"1m"}, swap: "0", saves: 2, moves: 1, errs: "F", offs: "F"},
	{name: "two moves and a checkpoint", scripts: []string{"p p p", "p p p"}, asks: []string{"0m", "1m", "1"}, swap: "01", saves: 1, moves: 2, errs: "F", offs: "F"},
	{name: "unequal ends", scripts: []string{"p p p", "p"}, asks: []string{"0m"}, swap: "0", moves: 1, errs: "F", offs: "F"},
	{name: "death", scripts: []string{"p p", "p p"}, asks: []string{"0m"}, swap: "1", deaths: 1, moves: 1, errs: "FL", offs: "FL"},
	{name: "false alarms", scripts: []string{"p s1 p r1 p", "r0 p s0 p p"}, cfg: Config{trustWaves: true}, asks: []string{"1m"}, swap: "1", moves: 1, errs: "F", offs: "CF"},
	{name: "chain of three", scripts: []string{"p", "p", "p"}, cfg: Config{Arity: 1}, asks: []string{"2m"}, swap: "1", moves: 1, errs: "F", offs: "F"},
}

// movingLarger are larger scenarios, which take longer.
var movingLarger = []scenario{
	{name: "early bookmark", scripts: []string{"p p", "p s2 p", "p r1 p"}, cfg: Config{Every: 2}, asks: []string{"0m"}, swap: "2", saves: 1, moves: 1, errs: "F", offs: "F"},
	{name: "ring of three", scripts: []string{"p s1 r2 p", "p s2 r0 p", "p s0 r1 p"}, asks: []string{"1m"}, swap: "012", moves: 1, errs: "F", offs: "F"},
	{name: "move, checkpoint and stop", scripts: []string{"p s1 p r1 p", "s0 p r0 p p"}, asks: []string{"0m", "1", "1!"}, swap: "01", saves: 2, moves: 1, errs: "F", offs: "FS"},
	{name: "spatial pair", scripts: []string{"s1 p r1 p p", "s0 p r0 p p"}, cfg: Config{Every: 1, Spatial: true}, asks: []string{"0m"}, swap: "01", saves: 3, moves: 1, errs: "F", offs: "F"},
	{name: "death of three", scripts: []string{"p p", "p p", "p p"}, cfg: Config{Arity: 1}, asks: []string{"2m"}, swap: "12", deaths: 1, moves: 1, errs: "FL", offs: "FL"},
}

// TestSearch_Moves visits every order of events of small worlds in which ranks
// move.
func TestSearch_Moves(t *testing.T) {
	list := moving
	if stress() {
		list = append(slices.Clip(list), movingLarger...)
	}
	search(t, list)
}
