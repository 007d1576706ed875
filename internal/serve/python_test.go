//go:build linux

package serve

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestPython_Killed kills a Python program and its helper.
func TestPython_Killed(t *testing.T) {
	dir := build(t)
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import numpy").Run(); err != nil {
		t.Skip("no NumPy for " + python)
	}
	path, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("testdata/walk.py")
	if err != nil {
		t.Fatal(err)
	}
	v := &victim{start: func(ckpt, out string) *exec.Cmd {
		cmd := program(t, "cairn")
		cmd.Path, cmd.Args = python, []string{python, script, ckpt, "200", out}
		cmd.Env = append(cmd.Env, "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1", "CAIRN_LIBRARY="+filepath.Join(dir, "libcairn.so"))
		return cmd
	}}
	v.undisturbed(t)
	v.survive(t, []kill{
		{at: "committed#1", resumes: true},
		{at: "point#20"},
		{step: "commit.written#2=kill"},
	})
	v.survive(t, many(300, []string{"point", "committed"}, helperSteps, 500*time.Millisecond))
}
