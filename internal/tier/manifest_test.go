package tier_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
)

const (
	runID     = "0123456789abcdef0123456789abcdef"
	attemptID = "ffffffffffffffff0000000000000000"
	digestID  = "00112233445566778899aabbccddeeff"
)

const goodManifest = `{"format": 1, "run": "RUN", "attempt": "ATTEMPT", "index": 12, "ranks": 3, "token": "t", "parts": [
	{"name": "RUN/parts/00000012-a-t-1.json", "size": 100, "digest": "DIGEST", "ranks": [0, 2]},
	{"name": "RUN/parts/00000012-b-t-1.json", "size": 100, "digest": "DIGEST", "ranks": [1]}]}`

const goodPart = `{"format": 1, "run": "RUN", "attempt": "ATTEMPT", "index": 12, "ranks": [
	{"rank": 0, "files": [{"index": 12, "header": "DIGEST", "name": "RUN/files/a.h5", "size": 1, "digest": "DIGEST"}, {"index": 10, "header": "DIGEST", "name": "RUN/files/b.h5", "size": 1, "digest": "DIGEST"}]},
	{"rank": 2, "files": [{"index": 12, "header": "DIGEST", "name": "RUN/files/c.h5", "size": 1, "digest": "DIGEST"}]}],
	"extra": [{"kind": "journal", "rank": 0, "path": "journal.kept/3", "name": "RUN/files/extra-t-0", "size": 5, "digest": "DIGEST"}]}`

func fill(text string) string {
	return strings.NewReplacer("RUN", runID, "ATTEMPT", attemptID, "DIGEST", digestID).Replace(text)
}

// record returns text, a JSON object, as a record with its digest.
func record(t testing.TB, text string) []byte {
	t.Helper()
	b, err := store.EncodeRecord(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestParse_Hostile refuses manifests that are damaged or cut, or have what no
// upload writes.
func TestParse_Hostile(t *testing.T) {
	parse := func(text []byte, part bool) error {
		if part {
			_, err := tier.ParsePart(text)
			return err
		}
		_, err := tier.ParseManifest(text)
		return err
	}
	for _, part := range []bool{false, true} {
		good := fill(goodManifest)
		if part {
			good = fill(goodPart)
		}
		text := record(t, good)
		if err := parse(text, part); err != nil {
			t.Fatal(err)
		}
		for i := range text {
			bad := []byte(string(text))
			bad[i] ^= 1 << (i % 8)
			if parse(bad, part) == nil {
				t.Fatalf("byte %d was changed, and nothing said so", i)
			}
			if parse(text[:i], part) == nil {
				t.Fatalf("cut at %d, and nothing said so", i)
			}
		}
	}
	huge := strings.Repeat("0,", 3000)
	for _, c := range []struct {
		part     bool
		from, to string
	}{
		{false, `"format": 1`, `"format": 2`},
		{false, `"run": "`, `"run": "..`},
		{false, `"run": "` + runID, `"run": "` + attemptID},
		{false, `"attempt": "`, `"attempt": "x`},
		{false, `"index": 12`, `"index": 0`},
		{false, `"index": 12`, `"index": -1`},
		{false, `"ranks": 3`, `"ranks": 4`},
		{false, `"ranks": 3`, `"ranks": 2`},
		{false, `"ranks": 3`, `"ranks": 0`},
		{false, `"ranks": 3`, `"ranks": 2000000000`},
		{false, `"ranks": 3`, `"ranks": 99999999999999999999`},
		{false, `"ranks": [1]`, `"ranks": [2]`},
		{false, `"ranks": [1]`, `"ranks": [-1]`},
		{false, `"ranks": [1]`, `"ranks": []`},
		{false, `"ranks": [0, 2]`, `"ranks": [2, 0]`},
		{false, `"ranks": [0, 2]`, `"ranks": [` + huge + `2]`},
		{false, runID + `/parts/00000012-b`, runID + `/../b`},
		{false, runID + `/parts/00000012-b`, `/etc/b`},
		{false, runID + `/parts/00000012-b`, runID + `/files/b`},
		{false, runID + `/parts/00000012-b`, runID + `/parts/x/b`},
		{false, runID + `/parts/00000012-b`, attemptID + `/parts/b`},
		{false, `"size": 100`, `"size": -1`},
		{false, `"size": 100`, `"size": 9223372036854775807`},
		{false, digestID, digestID[1:]},
		{true, `"format": 1`, `"format": 0`},
		{true, `"run": "` + runID, `"run": "` + attemptID},
		{true, `"index": 12, "ranks"`, `"index": 13, "ranks"`},
		{true, `"index": 10`, `"index": 12`},
		{true, `"index": 10`, `"index": 13`},
		{true, `"index": 10`, `"index": 0`},
		{true, `"header": "` + digestID, `"header": "../../x`},
		{true, `"rank": 2`, `"rank": 0`},
		{true, `"rank": 0, "files"`, `"rank": -1, "files"`},
		{true, runID + `/files/b.h5`, `../../etc/passwd`},
		{true, runID + `/files/b.h5`, runID + `/files/../b`},
		{true, runID + `/files/b.h5`, runID + `/checkpoints/00000011.json`},
		{true, `"size": 1,`, `"size": -1,`},
		{true, `"size": 1,`, `"size": 1125899906842625,`},
		{true, `journal.kept/3`, `../../etc/cron.d/x`},
		{true, `journal.kept/3`, `/etc/passwd`},
		{true, `journal.kept/3`, `a//b`},
		{true, `journal.kept/3`, `C:\\x`},
		{true, `journal.kept/3`, ``},
		{true, `journal.kept/3`, strings.Repeat("x", 5000)},
		{true, `"kind": "journal", "rank": 0`, `"kind": "journal", "rank": -1`},
		{true, runID + `/files/extra-t-0`, `x`},
	} {
		good := fill(goodManifest)
		if c.part {
			good = fill(goodPart)
		}
		if !strings.Contains(good, c.from) {
			t.Fatalf("%s is not there", c.from)
		}
		err := parse(record(t, strings.Replace(good, c.from, c.to, 1)), c.part)
		if err == nil || strings.Contains(c.from, "format") == errors.Is(err, tier.ErrDamaged) {
			t.Errorf("%.60s → %.60s: %v", c.from, c.to, err)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func fuzz(f *testing.F, good string, parse func(text []byte) (run string, names []string, err error)) {
	f.Add(fill(good))
	f.Fuzz(func(t *testing.T, text string) {
		parse([]byte(text))
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &members) != nil || len(members) == 0 {
			return
		}
		run, names, err := parse(record(t, text))
		if err != nil {
			return
		}
		for _, name := range names {
			if err := tier.CheckName(name); err != nil || !strings.HasPrefix(name, run+"/") || len(run) != 32 {
				t.Errorf("run %q has object %q: %v", run, name, err)
			}
		}
	})
}

// FuzzParseManifest shows that a text is refused, or is a manifest with valid
// names.
func FuzzParseManifest(f *testing.F) {
	fuzz(f, goodManifest, func(text []byte) (string, []string, error) {
		m, err := tier.ParseManifest(text)
		if err != nil {
			return "", nil, err
		}
		var names []string
		for _, p := range m.Parts {
			names = append(names, p.Name)
		}
		if !m.Abandoned && len(names) == 0 {
			err = fmt.Errorf("no parts")
		}
		return m.Run, names, err
	})
}

// FuzzParsePart shows the same for the parts of checkpoints.
func FuzzParsePart(f *testing.F) {
	fuzz(f, goodPart, func(text []byte) (string, []string, error) {
		p, err := tier.ParsePart(text)
		if err != nil {
			return "", nil, err
		}
		var names []string
		for _, r := range p.Ranks {
			for _, file := range r.Files {
				names = append(names, file.Name)
			}
		}
		for _, e := range p.Extra {
			names = append(names, e.Name)
		}
		return p.Run, names, nil
	})
}
