package gobuild

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// makeGOROOT makes a GOROOT below dir that is root with the run time in it: links to
// all that root has, the run time's files, and a package os with hooks. (An overlay of the go command does
// not do: assembly needs folders that exist, and nothing can be laid over a
// toolchain in the module cache.) Builds with it use what the go command has
// compiled for root, but for package os and what imports it.
func makeGOROOT(dir, root, version string) (string, error) {
	files, err := runtimeFiles()
	if err != nil {
		return "", err
	}
	hooked, err := hookOS(root)
	if err != nil {
		return "", err
	}
	files = maps.Clone(files)
	maps.Copy(files, hooked)
	names := slices.Sorted(maps.Keys(files))
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", root, version)
	for _, name := range names {
		fmt.Fprintf(h, "%s %d\n%s", name, len(files[name]), files[name])
	}
	made := filepath.Join(dir, "goroot-"+hex.EncodeToString(h.Sum(nil)[:8]))
	for _, name := range names {
		to := filepath.Join(made, "src", filepath.FromSlash(name))
		// What a crash of the system left half-written is seen by this.
		if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, files[name]) {
			continue
		}
		if err := replaceFile(to, files[name], 0o644); err != nil {
			return "", err
		}
	}
	if err := linkAll(filepath.Join(made, "src"), filepath.Join(root, "src"), runtimeRoot, "os"); err != nil {
		return "", err
	}
	var but []string
	for name := range hooked {
		but = append(but, path.Base(name))
	}
	if err := linkAll(filepath.Join(made, "src", "os"), filepath.Join(root, "src", "os"), but...); err != nil {
		return "", err
	}
	if err := linkAll(made, root, "src"); err != nil {
		return "", err
	}
	now := time.Now()
	os.Chtimes(made, now, now)
	removeUnused(dir, "goroot-", 30*24*time.Hour)
	return made, nil
}

// linkAll makes dir hold links to all that of holds, but for some names.
func linkAll(dir, of string, but ...string) error {
	entries, err := os.ReadDir(of)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(but, e.Name()) {
			continue
		}
		from, to := filepath.Join(dir, e.Name()), filepath.Join(of, e.Name())
		if old, err := os.Readlink(from); err == nil && old == to {
			continue
		}
		// Another build may do the same.
		if os.Symlink(to, from) == nil {
			continue
		}
		next, err := os.MkdirTemp(dir, ".new-*")
		if err != nil {
			return err
		}
		err = os.Symlink(to, filepath.Join(next, "link"))
		if err == nil {
			err = os.Rename(filepath.Join(next, "link"), from)
		}
		if err = errors.Join(err, os.RemoveAll(next)); err != nil {
			return err
		}
	}
	return nil
}

// removeUnused removes folders below dir whose names begin with prefix and that were not
// used for long.
func removeUnused(dir, prefix string, long time.Duration) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(st.ModTime()) > long {
			os.RemoveAll(filepath.Join(dir, e.Name())) // where not, the next build tries again
		}
	}
}

// replaceFile writes a file that others may be reading, or writing too.
func replaceFile(name string, text []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if e := f.Chmod(mode); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
