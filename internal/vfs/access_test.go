//go:build unix

package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// umask sets the process's umask for a test.
func umask(t *testing.T, mask int) {
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != want {
		t.Errorf("%s: %v, %v; want %o", path, st.Mode(), err, want)
	}
}

// TestAccess_Modes makes files and directories in a private directory, in one
// that is open to its group, and in one that is open to all.
func TestAccess_Modes(t *testing.T) {
	for _, c := range []struct {
		name      string
		mask      int
		parent    os.FileMode
		group     bool
		dir, file os.FileMode
	}{
		{"private", 0o022, 0o700, false, 0o700, 0o600},
		{"open to all", 0o022, 0o755, false, 0o700, 0o600},
		{"umask 0", 0, 0o700, false, 0o700, 0o600},
		{"group", 0o022, 0o700, true, 0o750, 0o640},
		{"group, open to all before", 0o022, 0o755, true, 0o750, 0o640},
		{"group, strict umask", 0o077, 0o700, true, 0o750, 0o640},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			umask(t, c.mask)
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, c.parent)); err != nil {
				t.Fatal(err)
			}
			const other = 65534 // a group that is not the process's own
			if os.Geteuid() == 0 {
				if err := os.Chown(dir, -1, other); err != nil {
					t.Fatal(err)
				}
			}
			if err := Trust(OS(), dir, Access{Group: c.group}); err != nil {
				t.Fatal(err)
			}
			if c.group {
				wantMode(t, dir, 0o750)
			}
			sub, file := filepath.Join(dir, "sub"), filepath.Join(dir, "sub", "file")
			if err := OS().Mkdir(sub); err != nil {
				t.Fatal(err)
			}
			f, err := OS().Create(file)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			lock, err := OS().Lock(filepath.Join(dir, "lock"))
			if err != nil {
				t.Fatal(err)
			}
			lock.Close()
			wantMode(t, sub, c.dir)
			wantMode(t, file, c.file)
			if c.group && os.Geteuid() == 0 {
				for _, path := range []string{sub, file} {
					if st, err := os.Stat(path); err != nil || st.Sys().(*syscall.Stat_t).Gid != other {
						t.Errorf("%s does not have the group of its directory: %+v, %v", path, st, err)
					}
				}
			}
			wantMode(t, filepath.Join(dir, "lock"), 0o600)
		})
	}
}

// TestAccess_NoLinks puts symbolic links in the place of files.
func TestAccess_NoLinks(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, []byte("precious"), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	refused := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("a link was followed: %v", err)
		}
	}
	_, err := OpenPrivate(link, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	refused(err)
	_, err = OS().Lock(link)
	refused(err)
	if _, err := OS().Create(link); err == nil {
		t.Error("Create followed a link")
	}
	os.Remove(link)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "d"), 0o700), os.Symlink(filepath.Join(dir, "d"), link)); err != nil {
		t.Fatal(err)
	}
	refused(SubDir(link))
	if text, err := os.ReadFile(target); err != nil || string(text) != "precious" {
		t.Errorf("the target holds %q, %v", text, err)
	}
	// The path of a trusted directory may contain links.
	if err := MakeDir(link, Access{}); err != nil {
		t.Error(err)
	}
}

// TestAccess_UntrustedDirectoryRefused shows that directories of other users,
// and those that all may write to, are refused.
func TestAccess_UntrustedDirectoryRefused(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	if err := Trust(OS(), open, Access{}); !errors.Is(err, ErrNotOurs) {
		t.Errorf("a directory that all may write to: %v", err)
	}
	if err := Trust(OS(), open, Access{AnyOwner: true}); err != nil {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	theirs := t.TempDir()
	if err := os.Chown(theirs, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := Trust(OS(), theirs, Access{}); !errors.Is(err, ErrNotOurs) || !strings.Contains(err.Error(), "65534") {
		t.Errorf("root trusts a directory of nobody's: %v", err)
	}
	if err := MakeDir(theirs, Access{AnyOwner: true}); err != nil {
		t.Error(err)
	}
}
