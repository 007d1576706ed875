//go:build linux

package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
)

func OutputFile(dir string, rank, stream int) string {
	return filepath.Join(dir, fmt.Sprintf("rank-%04d.%s", rank, []string{control.Stdout: "out", control.Stderr: "err"}[stream]))
}

// rankFiles returns the ranks' output files in a directory, which need not
// exist.
func rankFiles(dir string) (out []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, "rank-") && (strings.HasSuffix(name, ".out") || strings.HasSuffix(name, ".err")) {
			out = append(out, filepath.Join(dir, name))
		}
	}
	return out, nil
}

// DiscardOutput removes the ranks' output files and the output offsets, and no
// other file.
func (d *Dir) DiscardOutput(output string) error {
	names, err := rankFiles(output)
	if err != nil {
		return err
	}
	for _, name := range append(names, d.File("output-offsets")) {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// SyncOutput makes the ranks' output files durable.
func SyncOutput(dir string) error {
	names, err := rankFiles(dir)
	if err != nil {
		return err
	}
	for _, name := range append(names, dir) {
		if err := SyncPath(name); err != nil {
			return err
		}
	}
	return nil
}

// SyncPath makes a file, or the names in a directory, durable. It need not
// exist.
func SyncPath(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
