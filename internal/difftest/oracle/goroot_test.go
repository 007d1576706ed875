//go:build linux

package oracle

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/cairnrun/cairn/internal/compiler/golang/instrument"
)

var long = os.Getenv("CAIRN_LONG") != ""

// TestGoroot compares the test programs of the Go installation, killed at
// points and saved at each, with the same programs built by the go command.
func TestGoroot(t *testing.T) {
	root := testDir(t)
	all, why := findPrograms(t, root)
	tried := choose(t, all)
	_, listed := readList(t)
	kept := readResults(t)
	scratch := newScratch(t)
	var mu sync.Mutex
	var results []result
	t.Run("all", func(t *testing.T) {
		for _, p := range tried {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				r, before := kept.find(p.name)
				if was := listed[p.name]; was.verdict == process && os.Getenv("CAIRN_GOROOT") == "" {
					r, before = was, true
				}
				if !before {
					work := newWork(t, scratch, p)
					if err := p.locate(root, work); err != nil {
						t.Fatal(err)
					}
					r = p.try(t, work)
					dropWork(t, work)
					kept.add(t, r)
				}
				mu.Lock()
				defer mu.Unlock()
				results = append(results, r)
				t.Log(r.verdict, r.reason)
			})
		}
	})
	if len(tried) == len(all) {
		for name, reason := range why {
			results = append(results, result{name: name, verdict: untried, reason: reason})
		}
	}
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(a.name, b.name) })
	t.Logf("\n%s", summary(results))
	if name := os.Getenv("CAIRN_GOROOT_LIST"); name != "" {
		writeList(t, name, results)
	}
	compareList(t, results, len(tried) == len(all))
}

// TestGoroot_Refused rewrites all programs without building them. In minutes,
// it shows that the list has exactly the refused programs, and that the
// compiler finds no mistake of its own.
func TestGoroot_Refused(t *testing.T) {
	if !long {
		t.Skip("CAIRN_LONG=1 tries this")
	}
	root := testDir(t)
	all, _ := findPrograms(t, root)
	goVersion, listed := readList(t)
	if goVersion != languageVersion() {
		t.Skipf("%s is about the programs of %s", listFile, goVersion)
	}
	scratch := newScratch(t)
	for _, p := range all {
		was := listed[p.name]
		if was.verdict == untried {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			work := newWork(t, scratch, p)
			defer dropWork(t, work)
			if err := p.locate(root, work); err != nil {
				t.Fatal(err)
			}
			rewritten, err := p.rewrite(t.Context())
			if err == nil {
				for _, r := range rewritten.Refused {
					if r.Mistake() {
						t.Error(r)
					}
				}
				if was.verdict == refused {
					t.Errorf("it is not refused any more: remove it from %s", listFile)
				}
			} else if was.verdict != refused || !errors.Is(err, instrument.ErrRefused) {
				t.Errorf("newly refused: %v", err)
			}
		})
	}
}

// newScratch makes a directory for what is built.
func newScratch(t *testing.T) string {
	t.Helper()
	if os.Getenv("CAIRN_ORACLE_KEEP") == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("", "cairn-oracle-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("kept: %s", dir)
	return dir
}

// newWork makes a directory for what is built of a program, and dropWork
// removes it.
func newWork(t *testing.T, scratch string, p *program) string {
	t.Helper()
	work := filepath.Join(scratch, strings.ReplaceAll(p.name, "/", "-"))
	if err := os.MkdirAll(work, 0o777); err != nil {
		t.Fatal(err)
	}
	return work
}

func dropWork(t *testing.T, work string) {
	t.Helper()
	if os.Getenv("CAIRN_ORACLE_KEEP") != "" {
		return
	}
	if err := os.RemoveAll(work); err != nil {
		t.Error(err)
	}
}

// sample is the part of the programs that the daily suite tries: one out of so
// many.
const sample = 90

// choose returns the programs to try.
func choose(t *testing.T, all []*program) []*program {
	t.Helper()
	if pattern := os.Getenv("CAIRN_GOROOT"); pattern != "" {
		re, err := regexp.Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(slices.Clone(all), func(p *program) bool { return !re.MatchString(p.name) })
	}
	if long {
		return all
	}
	_, listed := readList(t)
	return slices.DeleteFunc(slices.Clone(all), func(p *program) bool {
		h := fnv.New32a()
		h.Write([]byte(p.name))
		v := listed[p.name].verdict
		return h.Sum32()%sample != 0 || v == slow || v == untried
	})
}

// summary counts verdicts, and names the programs with errors.
func summary(results []result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	count := make(map[string]int)
	kills := 0
	for _, r := range results {
		count[r.verdict]++
		kills += r.kills
		if r.verdict != right {
			fmt.Fprintf(w, "%s\t%s\t%s\n", r.name, r.verdict, r.reason)
		}
	}
	w.Flush()
	fmt.Fprintf(&b, "%d programs: %d right (killed %d times), %d wrong, %d refused, %d without a checkpoint, %d not tried\n",
		len(results), count[right], kills, count[wrong], count[refused], count[without], count[untried])
	return b.String()
}

// keptResults are the results of an earlier run of the same test binary.
type keptResults struct {
	mu   sync.Mutex
	name string
	key  string
	done map[string]result
}

func readResults(t *testing.T) *keptResults {
	t.Helper()
	k := &keptResults{name: os.Getenv("CAIRN_GOROOT_RESULTS"), done: make(map[string]result)}
	if k.name == "" {
		return k
	}
	k.key = selfKey(t)
	f, err := os.Open(k.name)
	if os.IsNotExist(err) {
		return k
	} else if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Split(lines.Text(), "\t")
		if len(words) == 5 && words[0] == k.key && words[2] != wrong {
			r := result{name: words[1], verdict: words[2], reason: words[4]}
			fmt.Sscan(words[3], &r.kills)
			k.done[r.name] = r
		}
	}
	return k
}

// selfKey returns a digest of this test's binary: of the compiler, the run time
// and the test itself.
func selfKey(t *testing.T) string {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	h := sha256.New()
	if _, err := io.Copy(h, self); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func (k *keptResults) find(name string) (result, bool) {
	r, ok := k.done[name]
	return r, ok
}

func (k *keptResults) add(t *testing.T, r result) {
	if k.name == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	f, err := os.OpenFile(k.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flat := strings.NewReplacer("\n", " ", "\t", " ").Replace(r.reason)
	fmt.Fprintf(f, "%s\t%s\t%s\t%d\t%s\n", k.key, r.name, r.verdict, r.kills, flat)
}
