//go:build linux

package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestCampaign_NoWrongResults runs fifty cases. CAIRN_SEED selects others.
// It needs root, because it mounts disks.
func TestCampaign_NoWrongResults(t *testing.T) {
	seed := uint64(1)
	if s := os.Getenv("CAIRN_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	o := &options{seed: seed, workers: 2}
	lab, err := newLab(t.Context(), t.TempDir(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer lab.close()
	for _, name := range []string{"output/rank-0000.out", "ckpt/journal.json"} {
		t.Run(filepath.Base(name), func(t *testing.T) { flippedFile(t, lab, name) })
	}
	rec, err := openRecords(filepath.Join(t.TempDir(), "results"))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.close()
	for next := 0; next < 1000; {
		var todo []int
		todo, next = daily(seed, next, 12-rec.counted(true), 38-rec.counted(false))
		if len(todo) == 0 {
			break
		}
		lab.campaign(t.Context(), o, todo, rec)
	}
	t.Logf("CAIRN_SEED=%d%s", seed, rec.table())
	for _, r := range rec.bad() {
		t.Errorf("%s\n    repeat it: %s", r, r.repeat())
	}
	if real, simulated := rec.counted(true), rec.counted(false); real < 12 || simulated < 38 {
		t.Errorf("only %d cases with real processes and %d simulated ones disturbed anything", real, simulated)
	}
}

// flippedFile damages the beginning of a file of a run after a kill. The same
// command must report it at once, and complete the run when the damage is
// undone.
func flippedFile(t *testing.T, lab *lab, file string) {
	c := &faultCase{lab: lab, ctx: t.Context(), kind: kinds[0], r: dice(1, 1), dir: filepath.Join(lab.scratch, filepath.Base(file)), name: envCase + "=" + file, workName: "work"}
	if err := os.MkdirAll(c.work(), 0o755); err != nil {
		t.Fatal(err)
	}
	c.prog = program{source: "plain", made: true, ranks: 1, mode: "append", seed: 1, steps: 60, pause: "3ms"}
	s := &scenario{every: 5, run: "run", out: "out"}
	for err := c.halted(s, 3); err != nil || c.over(s); err = c.halted(s, 3) {
		if err != nil {
			t.Fatal(err)
		}
		// It has ended before it was killed.
		if err := os.RemoveAll(c.work()); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(c.work(), 0o755); err != nil {
			t.Fatal(err)
		}
		c.prog.steps *= 2
	}
	name := c.file(filepath.Join("run", file))
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte{text[0] ^ 1}, text[1:]...)
	undo, err := c.spoilFile(name, bad)
	if err != nil {
		t.Fatal(err)
	}
	err = c.refusable(s, []string{filepath.Base(file) + " is damaged"}, undo)
	if v := (*verdict)(nil); !errors.As(err, &v) || v.outcome != refused || strings.Contains(v.why, "restarting") {
		t.Errorf("a flipped bit in %s: %v", file, err)
	}
	if left := c.end(true); left != "" {
		t.Error(left)
	}
}

// daily returns cases of all kinds that need no long preparation: a number with
// real processes, each of another kind, and a number of simulated ones. It
// begins with case from, and returns the case to continue with.
func daily(seed uint64, from, real, simulated int) (out []int, next int) {
	n, chosen := from, make(map[*kind]bool)
	for ; (real > 0 || simulated > 0) && n < from+1000; n++ {
		switch k := kindOf(seed, n); {
		case k.long:
		case k.simulated() && simulated > 0:
			simulated--
			out = append(out, n)
		case !k.simulated() && real > 0 && !chosen[k]:
			real--
			chosen[k] = true
			out = append(out, n)
		}
	}
	return out, n
}

// TestCase_Reproducible shows that a case is a function of the seed and its
// number.
func TestCase_Reproducible(t *testing.T) {
	seen := make(map[string]bool)
	for n := range 200 {
		a, b := kindOf(7, n), kindOf(7, n)
		first, again := dice(7, n).Uint64(), dice(7, n).Uint64()
		if a != b || first != again {
			t.Fatalf("case %d is not what it was", n)
		}
		seen[a.name] = true
	}
	if len(seen) < len(kinds)*2/3 {
		t.Errorf("200 cases have only the kinds %v", seen)
	}
}

// TestKindOf_Independent shows that the first choice of a case does not follow
// from its kind.
func TestKindOf_Independent(t *testing.T) {
	first := make(map[string]map[int]bool)
	for n := range 100_000 {
		k := kindOf(1, n).name
		if first[k] == nil {
			first[k] = make(map[int]bool)
		}
		first[k][dice(1, n).IntN(10)] = true
	}
	for k, of := range first {
		if len(of) < 10 {
			t.Errorf("cases of %s first choose only %v of ten", k, of)
		}
	}
}

// TestDiffers_AllKinds shows that differences of all kinds are detected.
func TestDiffers_AllKinds(t *testing.T) {
	want := &results{stdout: "a\nb\n", files: map[string]string{"f": "-rw-r--r--\nx", "d/": "drwxr-xr-x"}}
	for _, c := range []struct {
		got  *results
		says string
	}{
		{&results{stdout: "a\nb\n", files: map[string]string{"f": "-rw-r--r--\nx", "d/": "drwxr-xr-x"}}, ""},
		{&results{stdout: "a\nb\nb\n", files: want.files}, "stdout"},
		{&results{stdout: "a\nb\n", status: 1, files: want.files}, "exit status"},
		{&results{stdout: "a\nb\n", files: map[string]string{"f": "-rw-r--r--\nx"}}, "d/ is missing"},
		{&results{stdout: "a\nb\n", files: map[string]string{"f": "-rw-------\nx", "d/": "drwxr-xr-x"}}, "file f"},
		{&results{stdout: "a\nb\n", files: map[string]string{"f": "-rw-r--r--\nx", "d/": "drwxr-xr-x", "g": ""}}, "file g"},
	} {
		if text := c.got.differs(want, true); !strings.Contains(text, c.says) || (text == "") != (c.says == "") {
			t.Errorf("%+v: %q, not %q", c.got, text, c.says)
		}
	}
}

// TestRecords_CampaignContinues shows that an interrupted campaign is
// continued, and that the last outcome of a case counts.
func TestRecords_CampaignContinues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	rec, err := openRecords(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*result{{Case: 1, Outcome: wrong, Real: true, Kind: "kill"}, {Case: 2, Outcome: same, Kind: "sim-x"}, {Case: 1, Outcome: same, Real: true, Kind: "kill"}, {Case: 3, Outcome: lost, Kind: "sim-x"}} {
		if err := rec.add(r); err != nil {
			t.Fatal(err)
		}
	}
	rec.close()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"case": 4, "outc`) // from a campaign that was killed
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if rec, err = openRecords(path); err != nil {
		t.Fatal(err)
	}
	defer rec.close()
	if bad := rec.bad(); len(bad) != 1 || bad[0].Case != 3 || rec.counted(true)+rec.counted(false) != 3 {
		t.Errorf("bad: %v; counted: %d", bad, rec.counted(true)+rec.counted(false))
	}
	o := &options{count: 5}
	if todo := o.todo(rec); len(todo) != 2 || todo[0] != 0 || todo[1] != 4 {
		t.Errorf("to do: %v", todo)
	}
	o.redo = true
	if todo := o.todo(rec); len(todo) != 3 || todo[0] != 3 {
		t.Errorf("to do again: %v", todo)
	}
}

// TestSimulation_FindsMistakes shows that the simulated program's own check
// detects a wrong state.
func TestSimulation_FindsMistakes(t *testing.T) {
	m := (&faultCase{r: rand.New(rand.NewPCG(1, 1))}).simulation()
	s := m.newState()
	for range 5 {
		s.advance()
	}
	if err := m.check(s); err != nil {
		t.Fatal(err)
	}
	s.Grid[len(s.Grid)-1]++
	if verdictOf(m.check(s)) == nil {
		t.Error("a wrong number is not seen")
	}
}

// counted returns how many cases disturbed something, with real processes or
// simulated.
func (r *records) counted(real bool) (n int) {
	for _, x := range r.last {
		if x.Real == real && x.Outcome != skipped && x.Outcome != missed {
			n++
		}
	}
	return n
}
