package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang"
)

const nobody = 65534

// modes lists the files below a directory whose modes differ from dir and file.
func modes(t *testing.T, root string, dir, file fs.FileMode) (odd []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		want := file
		if e.IsDir() {
			want = dir
		} else if strings.HasPrefix(e.Name(), "lock") || filepath.Ext(path) == ".lock" || e.Type() == fs.ModeSocket {
			want = 0o600
		}
		if got := st.Mode().Perm(); got != want && !(strings.Contains(path, "/bin/") && e.Type().IsRegular()) {
			odd = append(odd, path+" "+st.Mode().String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return odd
}

// as runs a command as another user.
func as(t *testing.T, uid uint32, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestRun_FilesArePrivate makes a run with checkpoints, with an open umask, in
// a directory that all may read. No other user may be able to read the run's
// files, except the group of that directory with --group.
func TestRun_FilesArePrivate(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := os.Geteuid() == 0
	if root { // what is created here has a group that is not root's own
		if err := errors.Join(os.Chown(here, -1, nobody), os.Chmod(here, 0o755|fs.ModeSetgid), os.Chmod(filepath.Dir(here), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, "go", "")
	for _, group := range []bool{true, false} {
		args, dir, file := []string{"run", "-q", "--retries", "0", "--every-points", "20", "--run", "r.cairn", "--dir", "ckpt"}, fs.FileMode(0o700), fs.FileMode(0o600)
		for _, name := range []string{"ckpt", "r.cairn", "go.once"} {
			os.RemoveAll(name)
		}
		if group {
			args, dir, file = append(args, "--group"), 0o750, 0o640
		}
		cairnRun(t, append(args, program, "_counter", "go")...).exit(7)
		made := &golang.Made{Name: "true", Path: "/bin/true"}
		r := &runFlags{}
		if err := r.copy(made, r.program(made, "r.cairn")); err != nil {
			t.Fatal(err)
		}
		for _, top := range []string{"r.cairn", "ckpt"} {
			if odd := modes(t, top, dir, file); len(odd) > 0 {
				t.Errorf("group %v: other modes than %o and %o:\n%s", group, dir, file, strings.Join(odd, "\n"))
			}
		}
		if group && root {
			copied := filepath.Join(here, "cairn")
			if err := os.Link(program, copied); err != nil {
				text, err := os.ReadFile(program)
				if err == nil {
					err = os.WriteFile(copied, text, 0o755)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for command, want := range map[string]string{"status": "\nstate       failed", "list": " on disk", "verify": ": sound, "} {
				if out, err := as(t, nobody, copied, "_cairn", command, filepath.Join(here, "r.cairn")); err != nil || !strings.Contains(out, want) {
					t.Errorf("the group cannot use %s: %v, %s", command, err, out)
				}
			}
		}
	}
	if !root {
		t.Skip("only root can become another user")
	}
	for _, name := range []string{newestFile(t, "ckpt"), "ckpt/lock", "r.cairn/run.json", "r.cairn/log", "r.cairn/lock", "r.cairn/bin/true"} {
		path, err := filepath.Abs(name)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if out, err := as(t, nobody, "cat", path); err == nil || !strings.Contains(out, "Permission denied") {
			t.Errorf("another user reads %s: %v, %.40q", name, err, out)
		}
	}
}

// newestFile returns rank 0's file of the newest checkpoint.
func newestFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "ckpt-*", "rank-0000.h5"))
	if err != nil || len(files) == 0 {
		t.Fatal("no checkpoints", err)
	}
	return files[len(files)-1]
}

// TestRun_UntrustedDirectoryRefused gives a run directories that another user
// owns, or has put links into.
func TestRun_UntrustedDirectoryRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "precious", "precious")
	target, err := filepath.Abs("precious")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"log", "lock", "hosts", "output", "ckpt", "output-offsets", "run.json", "run-copy.json"} {
		run := "links-" + name
		if err := errors.Join(os.Mkdir(run, 0o700), os.Symlink(target, filepath.Join(run, name))); err != nil {
			t.Fatal(err)
		}
		if r := cairnRun(t, "run", "--run", run, "echo", "x"); r.code == 0 || !strings.Contains(r.errors, "symbolic link") {
			t.Errorf("%s: status %d, %s", name, r.code, r.errors)
		}
		if got := read(t, "precious"); got != "precious" {
			t.Fatalf("%s was followed: %q", name, got)
		}
	}
	// A link to the run's directory itself is allowed.
	if err := errors.Join(os.Mkdir("far", 0o700), os.Symlink("far", "near.cairn")); err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "run", "--run", "near.cairn", "echo", "x").ended()
	if err := errors.Join(os.Mkdir("all", 0o700), os.Chmod("all", 0o777)); err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "run", "--run", "all", "echo", "x").exit(exitFailed).complains("all users may write to it")
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	if err := errors.Join(os.Mkdir("theirs", 0o700), os.Chown("theirs", nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "run", "--run", "theirs", "echo", "x").exit(exitFailed).complains("user 65534 owns it", "--any-owner")
	if list, err := os.ReadDir("theirs"); err != nil || len(list) > 0 {
		t.Errorf("something was written there: %v, %v", list, err)
	}
	made, r := &golang.Made{Name: "true", Path: "/bin/true"}, &runFlags{}
	if err := r.copy(made, r.program(made, "theirs")); err == nil {
		t.Error("a program was put into another user's directory")
	}
	cairnRun(t, "run", "--any-owner", "--run", "theirs", "echo", "x").ended()
}
