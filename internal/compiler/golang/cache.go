package golang

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cacheLimit is how many bytes of programs the cache may hold.
const cacheLimit = 1 << 30

// findCached returns a program of the cache, or nil.
func findCached(cache, key string) *Made {
	if key == "" {
		return nil
	}
	dir := filepath.Join(cache, key)
	text, err := os.ReadFile(filepath.Join(dir, "made.json"))
	m := new(Made)
	if err != nil || json.Unmarshal(text, m) != nil || m.Name != filepath.Base(m.Name) {
		return nil
	}
	m.Path, m.Cached = filepath.Join(dir, m.Name), true
	if st, err := os.Stat(m.Path); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	now := time.Now()
	os.Chtimes(dir, now, now) // mark it as used
	return m
}

// store moves what was built in work into the cache. Without a key, no later
// build finds it there.
func (m *Made) store(cache, key, work string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	// Sync the program before made.json makes it valid.
	f, err := os.Open(filepath.Join(work, m.Name))
	if err != nil {
		return err
	}
	err = f.Sync()
	f.Close()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "made.json"), text, 0o644); err != nil {
		return err
	}
	dir := filepath.Join(cache, cmp.Or(key, strings.Replace(filepath.Base(work), ".new-", "once-", 1)))
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := os.Rename(work, dir)
		if err == nil {
			break
		}
		// Another build has stored the same program, and may be copying it now;
		// or there is an incomplete one.
		if stored := findCached(cache, key); stored != nil {
			m.Path = stored.Path
			return nil
		}
		if try == 3 {
			return err
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	m.Path = filepath.Join(dir, m.Name)
	return nil
}

// prune removes the programs whose last use is longest ago, until no more than
// limit bytes remain. It keeps the one at keep.
func prune(cache string, limit int64, keep string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	type old struct {
		dir  string
		used time.Time
		size int64
	}
	var all []old
	for _, e := range entries {
		o := old{dir: filepath.Join(cache, e.Name())}
		st, err := e.Info()
		if err != nil {
			continue // another process removed it
		}
		o.used = st.ModTime()
		if strings.HasPrefix(e.Name(), ".new-") && time.Since(o.used) < time.Hour {
			continue // a build is writing it
		}
		filepath.WalkDir(o.dir, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if st, err := e.Info(); err == nil {
					o.size += st.Size()
				}
			}
			return nil
		})
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b old) int { return b.used.Compare(a.used) })
	for _, o := range all {
		if limit -= o.size; limit < 0 && filepath.Dir(keep) != o.dir {
			if err := os.RemoveAll(o.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
