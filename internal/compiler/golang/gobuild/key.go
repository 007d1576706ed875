package gobuild

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Key returns a digest of all that the program is made of, and of how it is
// rewritten. It is empty if that is unknown: packages with cgo use files of the
// system.
func (b *Builder) Key(how string) (string, error) {
	if slices.ContainsFunc(b.flags, func(f string) bool { return slices.Contains([]string{"v", "x", "a", "work"}, strings.TrimLeft(f, "-")) }) {
		return "", nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil
	}
	list, err := b.packages()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	hashFile(h, self)
	fmt.Fprintf(h, "%q %q %q %s\n", b.Dir, b.Patterns, b.flags, how)
	for _, name := range slices.Sorted(maps.Keys(b.env)) {
		if name != "GOGCCFLAGS" { // contains the name of a temporary directory
			fmt.Fprintf(h, "%s=%q\n", name, b.env[name])
		}
	}
	if name := b.env["GOWORK"]; name != "" && name != "off" {
		hashFile(h, name)
	}
	for _, f := range b.flags {
		if name, ok := strings.CutPrefix(strings.TrimLeft(f, "-"), "modfile="); ok {
			hashFile(h, b.abs(name))
		} else if name, ok := strings.CutPrefix(strings.TrimLeft(f, "-"), "pgo="); ok && name != "auto" && name != "off" {
			hashFile(h, b.abs(name))
		}
	}
	modules := make(map[string]bool)
	for _, u := range list {
		fmt.Fprintf(h, "package %q %q\n", u.ImportPath, u.Dir)
		if u.Standard || u.Error != nil {
			continue
		}
		if len(u.CgoFiles)+len(u.SwigFiles)+len(u.SwigCXXFiles) > 0 {
			return "", nil
		}
		if m := u.Module; m != nil && m.GoMod != "" && !modules[m.GoMod] {
			modules[m.GoMod] = true
			hashFile(h, m.GoMod)
		}
		for _, name := range slices.Concat(u.GoFiles, u.CFiles, u.CXXFiles, u.MFiles, u.HFiles, u.FFiles, u.SFiles, u.SysoFiles, u.EmbedFiles) {
			fmt.Fprintf(h, "file %q\n", name)
			if !within(b.env["GOMODCACHE"], u.Dir) { // files there never change
				hashFile(h, filepath.Join(u.Dir, name))
			}
		}
		if !u.DepOnly {
			hashFile(h, filepath.Join(u.Dir, "default.pgo"))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// hashFile adds a file to a hash, whether or not it exists.
func hashFile(h hash.Hash, name string) {
	f, err := os.Open(name)
	if err != nil {
		fmt.Fprintf(h, "none %q\n", name)
		return
	}
	defer f.Close()
	n, err := io.Copy(h, f)
	fmt.Fprintf(h, "\n%d %v %q\n", n, err, name)
}
