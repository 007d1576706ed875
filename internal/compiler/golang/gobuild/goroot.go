package gobuild

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// makeGOROOT makes a directory below dir that looks like the GOROOT root with
// the run time in it: links to all that root has, the run time's files, and a
// package os with hooks. An overlay of the go command would not do: assembly
// needs directories that exist, and a toolchain in the module cache cannot be
// overlaid. Builds reuse what the go command has compiled for root, except
// package os and what imports it.
func makeGOROOT(dir, root, version string) (string, error) {
	made, files, hooked, err := plannedGOROOT(dir, root, version)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		to := filepath.Join(made, "src", filepath.FromSlash(name))
		// This finds files that a system crash left half-written.
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

// plannedGOROOT returns the directory that makeGOROOT makes, the files that it
// writes below src, and those of them that belong to package os.
func plannedGOROOT(dir, root, version string) (made string, files, hooked map[string][]byte, err error) {
	if files, err = runtimeFiles(); err != nil {
		return "", nil, nil, err
	}
	if hooked, err = hookOS(root); err != nil {
		return "", nil, nil, err
	}
	files = maps.Clone(files)
	maps.Copy(files, hooked)
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", root, version)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s %d\n%s", name, len(files[name]), files[name])
	}
	return filepath.Join(dir, "goroot-"+hex.EncodeToString(h.Sum(nil)[:8])), files, hooked, nil
}

// First reports whether nothing was built yet with this run time and this Go.
func (b *Builder) First() bool {
	dir, err := b.CacheDir()
	if err != nil {
		return false
	}
	made, _, _, err := plannedGOROOT(dir, b.env["GOROOT"], b.env["GOVERSION"])
	if err != nil {
		return false
	}
	_, err = os.Stat(made)
	return err != nil
}
