//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn"
)

// TestPin_SurvivesPruning keeps a checkpoint, and expects that it survives all
// that the run removes, with every byte.
func TestPin_SurvivesPruning(t *testing.T) {
	dir := makeCheckpoints(t, 3, cairn.Options{})
	cairnRun(t, "pin", "--name", "best", dir+"@2").exit(exitFine).says("checkpoint 2 is kept as", "pinned/best")
	cairnRun(t, "pin", dir).exit(exitFine).says("checkpoint 3 is kept as", "pinned/ckpt-00000003")
	doc := decode[listDocument](cairnRun(t, "list", "--json", dir).exit(exitFine))
	if len(doc.Pinned) != 2 || doc.Pinned[0].Name != "best" || doc.Pinned[0].Index != 2 || len(doc.Checkpoints) != 3 {
		t.Errorf("%+v", doc)
	}
	cairnRun(t, "list", dir).exit(exitFine).says("checkpoint 2 is kept as", "3 checkpoints")
	best := filepath.Join(dir, pinned, "best")
	for _, name := range []string{"ckpt-00000001", "ckpt-00000002", "ckpt-00000003"} { // as the run does
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cairnRun(t, "verify", best).exit(exitFine)
	cairnRun(t, "inspect", best).exit(exitFine).says("rank-0000.base-00000001.h5")
	cairnRun(t, "list", dir).exit(exitFailed).says("is kept as").complains("no checkpoints here")

	cairnRun(t, "pin", "--name", "best", best).exit(exitFine) // a copy of the copy, elsewhere
	cairnRun(t, "pin", "--name", "a/b", best).exit(exitUsage).complains("a name is that of a directory")
	cairnRun(t, "pin", "--name", "best", best).exit(exitFailed).complains("exists", "--remove best")
	cairnRun(t, "pin", "--remove", "bset", dir).exit(exitUsage).complains(`no pinned checkpoint "bset" (did you mean best?)`)
	cairnRun(t, "pin", "--remove", "best", dir).exit(exitFine).says("checkpoint 2 is not kept as best any more")
	if exists(best) {
		t.Error("it is still there")
	}
}
