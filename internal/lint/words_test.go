package lint

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
)

// retired is a word that a term of docs/terms.md has replaced. The refused
// forms are listed explicitly, because most of these words have another meaning
// elsewhere.
type retired struct {
	use string // the word to use
	// in lists the paths where the rule holds, each with all below it; none
	// means everywhere. "." is the root directory without those below it.
	in  []string
	not []string // paths where it does not hold

	names string // refused words of identifiers and file names, lower case
	exact string // refused identifiers
	text  string // refused in comments, strings and Markdown
	but   string // … unless this matches there, too

	bad  []string // examples of what is refused, as file: text
	good []string // … and of what is not
}

var (
	compiler  = []string{"internal/compiler", "internal/difftest", "resume"}
	migration = []string{".", "internal/engine", "internal/supervise", "internal/control", "internal/ckpt", "internal/migrate"}
	saving    = []string{".", "cmd", "docs", "device", "mpi", "internal/engine", "internal/supervise", "internal/control", "internal/ckpt", "internal/store", "internal/coord", "internal/p2p", "internal/e2e", "internal/faults", "internal/bench", "internal/demo", "internal/snap"}
)

var retirements = []retired{
	{
		use: "checkpoint", in: saving,
		text: `\b(a|the|this|that|its|each|every|one|no|any|another|newest|oldest|older|last|next|previous|full|differential|complete|whole|safe|committed|good|such) sets?\b|\bsets? (\d+|is due|was taken|is taken|was saved|is saved|committed)\b|\bset-0000`,
		but:  `\bsets? of\b|\b(that|each|one|it|this|which) sets (a|the|its|it|all|them)\b`,
		bad:  []string{"internal/ckpt/a.go: // the newest set is loaded", "cmd/cairn/a.go: const m = \"set 3 committed\"", "docs/a.md: A differential set has bases."},
		good: []string{"internal/ckpt/a.go: // Set returns the set of ranks.", "internal/ckpt/a.go: // the option is set", "internal/compiler/commcheck/a.go: // the set grows"},
	},
	{
		use: "checkpoint, index", in: []string{".", "cmd", "internal/engine", "internal/ckpt", "internal/store", "internal/coord", "internal/supervise", "internal/control"},
		exact: `sets|newestSet|lastSet|[sS]aveSet|setName|setDir|inSet|Sets|setInfo|setFile|setIndex`,
		bad:   []string{"internal/store/a.go: func f(sets []int) {}", "point.go: func saveSet() {}"},
		good:  []string{"internal/ckpt/a.go: func (f *F) Set(v int) {}", "internal/compiler/commcheck/a.go: var sets int"},
	},
	{
		use:   "directory, dir",
		names: `folders?`, text: `\bfolders?\b`,
		bad:  []string{"docs/a.md: A run has one folder.", "internal/store/a.go: func makeFolder() {}", "internal/store/folder.go: "},
		good: []string{"docs/a.md: A run has one directory."},
	},
	{
		use:  "resume, continue",
		text: `\b(go|goes|going|gone|went) on\b`,
		but:  `\bgo on (strike|line)\b`,
		bad:  []string{"docs/a.md: The program can be gone on with.", "mpi/a.go: // The ranks go on."},
		good: []string{"docs/a.md: The program continues."},
	},
	{
		use: "paused, pause", in: saving,
		text: `\bheld (for|at|there|until) |\b(program|ranks?|process|they|all|everybody) (is|are|was|were|be) held\b|\b(while|when) (it is |they are )?held\b|\bheld,? \d|\bprogram held\b|\bheldMs\b`,
		bad:  []string{"docs/a.md: The program is held for 4 ms.", "internal/coord/a.go: // a rank is held there"},
		good: []string{"internal/ckpt/a.go: // mu is held by the caller"},
	},
	{
		use: "pause", in: []string{".", "cmd", "internal/engine", "internal/ckpt", "internal/coord", "internal/supervise", "internal/control"},
		names: `held`,
		bad:   []string{"internal/coord/a.go: type S struct { Held int }"},
		good:  []string{"internal/vfs/a.go: var held bool"},
	},
	{
		use: "iteration", in: compiler,
		names: `rounds?`, text: `\brounds? of (a|the|its|that|this) loops?\b|\bloops?'s? rounds?\b|\b(each|every|next|first|last|one|few|many) rounds?\b|\brounds? (begins|ends|does)\b`,
		but:  `^Round$|^math`,
		bad:  []string{"internal/compiler/golang/a.go: // in each round", "resume/a.go: var nextRound int"},
		good: []string{"internal/coord/a.go: // a round of all ranks", "internal/coord/a.go: var round int"},
	},
	{use: "cannot", not: []string{"python/tests/fake_torch.py"}, text: `\bcan't\b`, bad: []string{"a.go: const m = \"it can't be saved\"", "docs/a.md: It can't."}, good: []string{"a.go: // cannot"}},
	{use: "identity", names: `seats?`, text: `\bseats?\b`, bad: []string{"seat.go: ", "a.go: // takes a seat"}, good: []string{"a.go: // unseated"}},
	{use: "endpoint", names: `cards?`, text: `\bcards?\b`, bad: []string{"a.go: var myCard int", "a.go: // the card of a rank"}, good: []string{"a.go: // a wildcard"}},
	{use: "file bootstrap", names: `meetings?`, text: `\bmeetings?\b`, bad: []string{"meeting.go: ", "a.go: // the meeting of the ranks"}, good: []string{"a.go: // to meet"}},
	{use: "peers, comm group", names: `teams?`, text: `\bteams?\b`, bad: []string{"team.go: ", "a.go: type team struct{}"}, good: []string{"a.go: // steam"}},
	{use: "inflight", names: `flights?`, bad: []string{"internal/p2p/a.go: var flight int", "internal/p2p/a.go: var inFlight int"}, good: []string{"internal/p2p/a.go: var inflight, Inflight int // in flight"}},
	{use: "host overrides", names: `customs`, text: `\bcustoms\b`, bad: []string{"internal/supervise/customs.go: "}, good: []string{"a.go: // custom"}},
	{use: "helper launch", names: `errands?`, text: `\berrands?\b`, bad: []string{"internal/supervise/a.go: type errand struct{}"}},
	{use: "control socket", names: `doors?`, text: `\bdoors?\b`, bad: []string{"internal/supervise/door.go: "}, good: []string{"a.go: // outdoors"}},
	{use: "send queue", names: `outbox(es)?`, text: `\boutbox(es)?\b`, bad: []string{"internal/supervise/a.go: var outbox int"}},
	{use: "resumable path", names: `spines?`, text: `\bspines?\b`, bad: []string{"internal/compiler/golang/spine.go: "}},
	{use: "commcheck, hotloops", text: `compiler/(match|load)\b`, bad: []string{"docs/a.md: See internal/compiler/match."}, good: []string{"docs/a.md: internal/compiler/commcheck"}},
	{use: "difftest", exact: `(?i)trials?`, text: `internal/trial\b|\btrial programs?\b|\btrial/|CAIRN_TRIAL`, bad: []string{"docs/a.md: The trial programs show it."}, good: []string{"docs/a.md: a trial build"}},
	{use: "transporttest, drivertest", names: `conform`, text: `/conform\b`, bad: []string{"docs/a.md: driver/conform", "internal/driver/conform.go: "}, good: []string{"docs/a.md: files that conform to it"}},
	{use: "interconnects", names: `journeys?`, text: `\bjourneys?\b`, bad: []string{"internal/interconnects/journey.go: ", "docs/a.md: make journey"}},
	{use: "unwind", in: []string{"resume"}, names: `leave|leaves|leaving|leaver|left`, bad: []string{"resume/leave.go: ", "resume/a.go: func MayLeave() {}"}, good: []string{"internal/hdf5/a.go: var left int"}},
	{use: "unwind", in: []string{"internal/compiler/golang"}, names: `leave|leaves|leaving|leaver`, bad: []string{"internal/compiler/golang/rewrite/a.go: var leaving int"}, good: []string{"internal/compiler/golang/rewrite/a.go: var left, right int"}},
	{
		use: "evacuate, source", in: []string{"cmd", "docs", "internal/supervise", "internal/control", "README.md", "CHANGELOG.md", "internal/e2e", "internal/faults"},
		names: `leave|leaves|leaving|leaver|leavers`, text: `--leave-|RUN/leave\b|\bleavers?\b`,
		bad: []string{"internal/supervise/leave.go: ", "docs/a.md: use --leave-when"}, good: []string{"docs/a.md: they leave the file alone"},
	},
	{use: "compact, compaction", in: []string{"internal/ckpt", "internal/store"}, names: `retires?|retired|retiring|leaving`, bad: []string{"internal/ckpt/a.go: func retire() {}"}, good: []string{"internal/mem/a.go: func retire() {}"}},
	{use: "destination", names: `newcomers?`, text: `\bnewcomers?\b`, bad: []string{"docs/a.md: The newcomer starts.", "internal/supervise/a.go: var newcomer int"}, good: []string{"docs/a.md: new"}},
	{use: "receive, received", in: migration, names: `arrive|arrives|arrived|arriving|land|lands|landed|landing`, bad: []string{"arrive.go: ", "internal/supervise/a.go: const Landed = 1"}, good: []string{"internal/p2p/a.go: func Arrived() {}"}},
	{use: "precopy, final copy", in: append([]string{"internal/p2p"}, migration...), names: `ahead|near`, bad: []string{"ahead.go: ", "internal/control/a.go: const Near = 1"}, good: []string{"internal/mem/a.go: var ahead int"}},
	{use: "handoff", names: `luggage`, text: `\bluggage\b`, bad: []string{"internal/ckpt/a.go: var luggage int"}},
	{use: "batch", names: `parcels?`, text: `\bparcels?\b`, bad: []string{"internal/ckpt/a.go: // one parcel of blocks"}},
	{use: "target buffer", names: `berths?`, text: `\bberths?\b`, bad: []string{"internal/ckpt/a.go: type berth struct{}"}},
	{use: "allocate", names: `moors?|moored|mooring`, text: `\bmoor(s|ed|ing)?\b`, bad: []string{"internal/ckpt/a.go: func moor() {}"}},
	{use: "adopt, release", names: `lends?|lent|lending|lender`, text: `\b(lends?|lent|lending|lender)\b`, bad: []string{"lend.go: ", "a.go: func Lend() {}"}, good: []string{"a.go: // blend"}},
	{use: "release", in: []string{".", "internal/engine", "resume"}, exact: `Return`, bad: []string{"lend2.go: func Return() {}"}, good: []string{"internal/compiler/golang/a.go: func Return() {}", "a.go: func Returned() {}"}},
	{use: "host, device, deferred, prefetch", in: []string{"internal/ckpt"}, names: `near|far|still|early`, bad: []string{"internal/ckpt/far.go: ", "internal/ckpt/a.go: func drainStill() {}"}, good: []string{"internal/ckpt/a.go: // still far away"}},
	{use: "diff on the device", names: `sift|sifts|sifted|sifting|sieves?`, text: `(?i)\b(sift(s|ed|ing)?|sieves?)\b`, bad: []string{"internal/snap/sift.go: ", "docs/a.md: **Sift.** Digests come first."}, good: []string{"a.go: // shift"}},
	{use: "compress", names: `squeezes?|squeezed|squeezing`, text: `\bsqueez(e|es|ed|ing)\b`, bad: []string{"internal/ckpt/a.go: func squeeze() {}"}},
	{use: "progress", names: `headway`, text: `\bheadway\b`, bad: []string{"internal/supervise/headway.go: "}},
	{use: "uninstrumented", in: []string{"internal/supervise"}, names: `foreign`, bad: []string{"internal/supervise/foreign.go: "}, good: []string{"internal/graph/foreign.go: "}},
	{use: "quarantine", names: `distrusts?|distrusted`, text: `\bdistrust(s|ed)?\b`, bad: []string{"internal/supervise/distrust.go: "}},
	{use: "output offsets", in: []string{"internal/supervise", "cmd"}, names: `shown`, bad: []string{"cmd/cairn/shown_test.go: "}, good: []string{"cmd/cairn/a.go: // is shown"}},
	{use: "stderr buffer", in: []string{"internal/supervise"}, names: `early`, bad: []string{"internal/supervise/early.go: "}},
	{use: "emit", names: `weaves?|weaving|wove|woven|weaver`, text: `(?i)\b(weav(e|es|ing|er)|wove|woven)\b`, bad: []string{"internal/compiler/golang/rewrite/weave.go: "}},
	{use: "fast path", in: []string{"internal/compiler/golang", "resume"}, names: `quick`, text: `cairn_quick`, bad: []string{"internal/compiler/golang/rewrite/quick.go: "}, good: []string{"internal/graph/a.go: func quick() {}"}},
	{use: "search loops", in: []string{"internal/compiler", "resume"}, names: `lean`, bad: []string{"internal/compiler/golang/rewrite/lean.go: "}},
	{use: "a word that says what the name is for", in: []string{"internal/compiler/golang"}, names: `hidden`, bad: []string{"internal/compiler/golang/rewrite/hidden.go: "}},
	{use: "overlay, shims", in: []string{"internal/compiler", "resume", "docs"}, names: `laid`, text: `\blaid over\b|\blays? (the|its|new) \w+ over\b`, bad: []string{"internal/compiler/golang/build_laid.go: ", "docs/a.md: files laid over others"}},
	{use: "scan", names: `surveys?|surveyed`, text: `\bsurvey(s|ed)?\b`, bad: []string{"internal/compiler/golang/survey.go: "}},
	{use: "diagnostics", exact: `points_told(_test)?`, text: `points_told`, bad: []string{"internal/compiler/golang/points_told.go: "}, good: []string{"a.go: // is told"}},
	{use: "ProtectOption, CheckpointInfo", in: []string{".", "examples"}, exact: `How|Saved`, bad: []string{"a.go: type How int", "examples/x/a.go: var _ cairn.Saved"}, good: []string{"a.go: func OnSaved() {}"}},
}

// unclean lists paths, each with all below it, that still have retired words.
// It may only shrink.
const unclean = "testdata/unclean.txt"

// word is a compiled rule.
type word struct {
	*retired
	names, exact, text, but *regexp.Regexp

	// literals are strings of which one is in each text that text matches, in
	// lower case. To look for them is much faster.
	literals []string
}

func compileWords(t *testing.T) []word {
	t.Helper()
	compile := func(format, form string) *regexp.Regexp {
		if form == "" {
			return nil
		}
		return regexp.MustCompile(fmt.Sprintf(format, form))
	}
	var words []word
	for i := range retirements {
		r := &retirements[i]
		w := word{r, compile(`^(%s)$`, r.names), compile(`^(%s)$`, r.exact), compile(`(?i:%s)`, r.text), compile(`(?i:%s)`, r.but), nil}
		if w.text != nil {
			form, err := syntax.Parse(w.text.String(), syntax.Perl)
			if err != nil {
				t.Fatal(err)
			}
			if w.literals = literals(form); w.literals == nil {
				t.Fatalf("%s: one of its alternatives has no letters in a row", r.text)
			}
		}
		words = append(words, w)
	}
	return words
}

// literals returns strings of which one is in each match, in lower case; nil if
// it knows none.
func literals(form *syntax.Regexp) []string {
	switch form.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(form.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return literals(form.Sub[0])
	case syntax.OpAlternate:
		var all []string
		for _, sub := range form.Sub {
			list := literals(sub)
			if list == nil {
				return nil
			}
			all = append(all, list...)
		}
		return all
	case syntax.OpConcat:
		var best []string
		shortest := func(list []string) int {
			n := 1000
			for _, l := range list {
				n = min(n, len(l))
			}
			return n
		}
		for _, sub := range form.Sub {
			if list := literals(sub); list != nil && (best == nil || shortest(list) > shortest(best)) {
				best = list
			}
		}
		return best
	}
	return nil
}

func below(name string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		if p == "." {
			return !strings.Contains(name, "/")
		}
		return name == p || strings.HasPrefix(name, p+"/")
	})
}

func (w *word) holds(name string) bool {
	return (w.in == nil || below(name, w.in)) && !below(name, w.not)
}

// name reports whether an identifier, or a file's name, is refused.
func (w *word) name(id string, parts []string) bool {
	if w.but != nil && w.but.MatchString(id) {
		return false
	}
	return w.exact != nil && w.exact.MatchString(id) || w.names != nil && slices.ContainsFunc(parts, w.names.MatchString)
}

// prose returns the refused part of a line of text, or "".
func (w *word) prose(line string) string {
	if w.text == nil || w.but != nil && w.but.MatchString(line) {
		return ""
	}
	return w.text.FindString(line)
}

// parts divides an identifier into words, in lower case.
func parts(id string) []string {
	var all []string
	from := 0
	cut := func(to int) {
		if to > from {
			all = append(all, strings.ToLower(id[from:to]))
		}
		from = to
	}
	for i, r := range id {
		lower := i > 0 && unicode.IsLower(rune(id[i-1]))
		next := i+1 < len(id) && unicode.IsLower(rune(id[i+1]))
		switch {
		case !unicode.IsLetter(r):
			cut(i)
			from = i + 1
		case unicode.IsUpper(r) && (lower || next):
			cut(i)
		}
	}
	cut(len(id))
	return all
}

// findWords returns the refused words in a file, by line.
func findWords(words []word, name string, src []byte) []string {
	var active []*word
	for i := range words {
		if words[i].holds(name) {
			active = append(active, &words[i])
		}
	}
	var wrong []string
	complain := func(line int, what, use string) {
		wrong = append(wrong, fmt.Sprintf("%s:%d: %q; use %s", name, line, what, use))
	}
	// Each name is checked once: a file has few different identifiers.
	judged := make(map[string]string)
	judge := func(id string) string {
		use, ok := judged[id]
		if !ok {
			p := parts(id)
			for _, w := range active {
				if w.name(id, p) {
					use = w.use
				}
			}
			judged[id] = use
		}
		return use
	}
	prose := func(line int, text string) {
		lower := strings.ToLower(text)
		has := func(literal string) bool { return strings.Contains(lower, literal) }
		for _, w := range active {
			if w.text == nil || !slices.ContainsFunc(w.literals, has) || !w.text.MatchString(text) { // the usual case
				continue
			}
			for i, l := range strings.Split(text, "\n") {
				if what := w.prose(l); what != "" {
					complain(line+i, what, w.use)
				}
			}
		}
	}
	base := strings.TrimSuffix(path.Base(name), path.Ext(name))
	if use := judge(base); use != "" {
		complain(1, path.Base(name), use)
	}
	if !strings.HasSuffix(name, ".go") {
		prose(1, string(src))
		return wrong
	}
	set := token.NewFileSet()
	file := set.AddFile(name, -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return wrong
		case token.IDENT:
			if use := judge(lit); use != "" {
				complain(file.Line(pos), lit, use)
			}
		case token.COMMENT, token.STRING:
			prose(file.Line(pos), lit)
		}
	}
}

// checkWords returns the refused words in a tree.
func checkWords(t *testing.T, tree fs.FS) []string {
	t.Helper()
	words := compileWords(t)
	var wrong []string
	err := fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if e.IsDir() {
			if name != "." && (base == ".git" || base == "build" || base == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		switch path.Ext(base) {
		case ".go", ".md", ".yml", ".txt", ".json", ".py":
		default:
			if path.Dir(name) != "scripts" && base != "Makefile" {
				return nil
			}
		}
		// The corpus, and programs that are test data, may use other words.
		if name == "internal/lint/words_test.go" || below(name, []string{"testdata", "internal/difftest/testdata/progs"}) {
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		wrong = append(wrong, findWords(words, name, src)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return wrong
}

// TestWords checks that the module uses the words of docs/terms.md.
// CAIRN_UNCLEAN=PATH lists what is left to do under a path of unclean.
func TestWords(t *testing.T) {
	list, err := os.ReadFile(unclean)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	var paths []string
	for l := range strings.Lines(string(list)) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			paths = append(paths, l)
		}
	}
	show := os.Getenv("CAIRN_UNCLEAN")
	for _, w := range checkWords(t, os.DirFS("../..")) {
		name, _, _ := strings.Cut(w, ":")
		i := -1 // the longest path that contains it
		for k, p := range paths {
			if below(name, []string{p}) && (i < 0 || len(p) > len(paths[i])) {
				i = k
			}
		}
		if i < 0 || show != "" && below(name, []string{show}) {
			t.Error(w)
		}
		if i >= 0 {
			counts[paths[i]]++
		}
	}
	for _, p := range paths {
		t.Logf("%5d %s", counts[p], p)
		if counts[p] == 0 {
			t.Errorf("%s has no retired words any more; remove it from %s", p, unclean)
		}
	}
}

// TestWords_Examples tries each form.
func TestWords_Examples(t *testing.T) {
	for _, r := range retirements {
		if len(r.bad) == 0 {
			t.Errorf("no example of what %q replaces", r.use)
		}
		try := func(example string) bool {
			name, text, ok := strings.Cut(example, ": ")
			if !ok {
				t.Fatalf("%q is no example", example)
			}
			if strings.HasSuffix(name, ".go") {
				text = "package a\n" + text
			}
			wrong := checkWords(t, fstest.MapFS{name: {Data: []byte(text)}})
			return slices.ContainsFunc(wrong, func(w string) bool { return strings.HasSuffix(w, "use "+r.use) })
		}
		for _, b := range r.bad {
			if !try(b) {
				t.Errorf("%s: not refused: %s", r.use, b)
			}
		}
		for _, g := range r.good {
			if try(g) {
				t.Errorf("%s: refused: %s", r.use, g)
			}
		}
	}
}

// TestWords_Parts checks how names are divided into words.
func TestWords_Parts(t *testing.T) {
	for id, want := range map[string]string{
		"saveSet": "save set", "HTTPServer": "http server", "ranks_flight_test": "ranks flight test", "CAIRN_DIR": "cairn dir", "x2": "x", "setID": "set id",
	} {
		if got := strings.Join(parts(id), " "); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}
