package policy

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestParse checks how policies are printed that were parsed.
func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"local=/scratch, partner, rs=4+2:every=4, shared=/gpfs/me:every=16, s3=s3://bucket/run:every=32,keep=10",
			"local=/scratch, partner, rs=4+2, shared=/gpfs/me, s3=s3://bucket/run:keep=10"},
		{"local=/a", "local=/a"},
		{" local = /a : keep = 3 , partner = 2 , keep=4,", "local=/a:keep=3, partner=2:keep=4"},
		{"partner,local=/a", "local=/a, partner"},
		{"shared=/g:every=2:keep=all", "shared=/g:every=2,keep=all"},
		{"shared=/g:every=2,keep=5, writers=3, key=/k, files=2, rate=10MB/s", "shared=/g:every=2,keep=5,rate=10MB,writers=3,key=/k,files=2"},
		{`shared="/a, b:every=3":every=3`, `shared="/a, b:every=3":every=3`},
		{`shared="/a\"b\\c"`, `shared="/a\"b\\c"`},
		{"shared=/a:b/c:9", "shared=/a:b/c:9"},
		{"s3=s3://b/{run}?endpoint=http://127.0.0.1:9000&region=x:every=2", "s3=s3://b/{run}?endpoint=http://127.0.0.1:9000&region=x:every=2"},
		{"# a comment\nlocal=/a   \n\n partner\nevery=2 \n# another, with a comma\ndomains=racks.txt\nscrub=48h", "local=/a, partner:every=2, domains=racks.txt, scrub=2d"},
		{"local=/a, scrub=off", "local=/a, scrub=off"},
		{"local=/a, scrub=90m", "local=/a, scrub=1h30m0s"},
		{"local=/a, partner:rate=1536", "local=/a, partner:rate=1536B"},
		{"local=/a, partner:rate=3145728", "local=/a, partner:rate=3MiB"},
		{"local=/a#b", "local=/a#b"},
	} {
		p, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := p.String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
		checkAgain(t, p)
	}
}

// checkAgain checks that a policy is the same after printing and parsing.
func checkAgain(t *testing.T, p *Policy) {
	t.Helper()
	again, err := Parse(p.String())
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	if !reflect.DeepEqual(p, again) {
		t.Fatalf("%s: parsed again it is %+v, before %+v", p, again, p)
	}
}

// TestParse_Values checks the values of each tier, given and by default.
func TestParse_Values(t *testing.T) {
	p, err := Parse("local=/l, partner=2:rate=2GiB, rs=8+3, shared=/s:writers=4,key=/k,files=1, s3=s3://b:keep=all, domains=d, scrub=3d")
	if err != nil {
		t.Fatal(err)
	}
	want := &Policy{
		Tiers: []Tier{
			{Kind: Local, Place: "/l", Every: 1, Keep: 2},
			{Kind: Partner, Copies: 2, Every: 1, Keep: 2, Rate: 2 << 30},
			{Kind: RS, Data: 8, Parity: 3, Every: 4, Keep: 2},
			{Kind: Shared, Place: "/s", Every: 16, Keep: 2, Writers: 4, Key: "/k", Files: 1},
			{Kind: S3, Place: "s3://b", Every: 32, Keep: KeepAll, Writers: 16},
		},
		Domains: "d", Scrub: 72 * time.Hour,
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

// TestParse_Errors checks the position and the message of each error.
func TestParse_Errors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "tiers:1:1: the policy names no tier; a policy is made of local=DIR"},
		{"# nothing", "tiers:1:10: the policy names no tier"},
		{"domains=x", "tiers:1:10: the policy names no tier"},
		{"locl=/a", `tiers:1:1: there is no tier or option "locl"; a policy is made of`},
		{"Local=/a", `tiers:1:1: "L" is not the name of a tier`},
		{"é", `tiers:1:1: "é" is not the name of a tier`},
		{"local", "tiers:1:1: local names no place; name a directory of each host, as in local=/scratch"},
		{"local=", "tiers:1:7: the value is missing; write it directly after the equals sign"},
		{`local=""`, "tiers:1:7: the value is empty"},
		{"local=scratch", "tiers:1:7: local=scratch is a relative path; write an absolute path"},
		{"local=/a\nlocal=/b", "tiers:2:1: local is given twice; leave one of them out"},
		{"local=/a, partner=0", `tiers:1:19: "0" is no number for partner; write a whole number from 1 to 64`},
		{"local=/a, partner=+1", `tiers:1:19: "+1" is no number for partner`},
		{"local=/a, partner:evry=2", `tiers:1:19: there is no option "evry"; the options are every, keep, rate`},
		{"shared=/a:evry=2", `tiers:1:11: there is no option "evry"; the options are`},
		{"shared=/a:every", "tiers:1:11: the option every has no value"},
		{"shared=/a:", "tiers:1:10: no option follows the colon"},
		{"shared=/a:every=0", `tiers:1:17: "0" is no number for every; write a whole number from 1 on`},
		{"shared=/a:every=2,every=3", "tiers:1:19: every is given twice for shared"},
		{"shared=/a b", `tiers:1:11: "b" is not expected here; separate tiers by commas`},
		{`shared=/a"b`, "tiers:1:10: a double quote inside a value"},
		{`shared="/a`, "tiers:1:8: the quotes are not closed"},
		{"shared=\"/a\n\"", "tiers:1:8: the quotes are not closed on their line"},
		{`shared="/a\b"`, "tiers:1:11: a single backslash in quotes"},
		{"shared=/a/{host}", `tiers:1:8: "/a/{host}" has a brace in it; only {run}`},
		{"keep=2, local=/a", "tiers:1:1: the option keep does not follow a tier"},
		{"local=/a, scrub=off:keep=2", "tiers:1:21: the option keep follows a setting, not a tier"},
		{"local=/a, scrub=off, keep=2", "tiers:1:22: the option keep does not follow a tier"},
		{"local=/a, scrub=soon", "tiers:1:17: scrub=soon: it is no age; write an age such as 7d"},
		{"local=/a, scrub=1s", "tiers:1:17: scrub=1s: it is less than a minute"},
		{"local=/a, domains", "tiers:1:11: domains names no file"},
		{"local=/a:every=2", "tiers:1:10: local gets every checkpoint"},
		{"local=/a:files=1", "tiers:1:10: local has no option files"},
		{"local=/a, partner:key=/k", "tiers:1:19: partner has no option key; leave it out; key belongs to shared and s3"},
		{"local=/a, partner:rate=fast", "tiers:1:24: rate=fast: it is no number of bytes; write bytes per second"},
		{"local=/a, partner:rate=9300000TB", "tiers:1:24: rate=9300000TB: it is too large"},
		{"local=/a, shared=/b:files=some", "tiers:1:27: \"some\" is no number for files"},
		{"partner", "tiers:1:1: partner is given without local; add local=DIR"},
		{"rs=4+2", "tiers:1:1: rs is given without local"},
		{"local=/a, rs=4", "tiers:1:14: rs needs the numbers of data and parity shards; write them as in rs=4+2"},
		{"local=/a, rs=1+1", `tiers:1:14: "1" is no number for the number of data shards`},
		{"local=/a, rs=4+0", `tiers:1:16: "0" is no number for the number of parity shards`},
		{"s3=bucket", `tiers:1:4: "bucket" is no S3 place; write it as s3://bucket/run`},
		{"local=/a, s3=s3://bucket/a#13", `tiers:1:14: "s3://bucket/a#13" has the character '#'; a bucket and a prefix have letters, digits, '.', '_', '-' and '/'; a checkpoint is chosen with --from`},
		{"s3=s3://bucket/a@13", `tiers:1:4: "s3://bucket/a@13" has the character '@'`},
		{"s3=s3:///run", `tiers:1:4: "s3:///run" names no bucket`},
		{"s3=s3://key:secret@bucket/run", "tiers:1:4: the policy contains credentials; remove them: they come from the environment"},
		{"shared=\"/a\x01\"", "tiers:1:8: \"/a\\x01\" has a control character in it"},
		{strings.Repeat(" ", maxText+1), "tiers:1:1: the policy has 1048577 bytes"},
	} {
		_, err := Parse(c.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: got error %v, want %s", c.text, err, c.want)
			continue
		}
		if got := err.Error(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
		if e.Remedy == "" {
			t.Errorf("%q: no remedy", c.text)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
	if _, err := ParseFile("sim.tiers", "local=/a\nwhat=3"); err == nil || !strings.HasPrefix(err.Error(), "sim.tiers:2:1: ") {
		t.Errorf("the name of the file is missing: %v", err)
	}
}

// TestCheck checks the message for a policy that needs more hosts than there
// are.
func TestCheck(t *testing.T) {
	p, err := Parse("local=/l, partner=2, rs=4+2")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		hosts int
		want  string
	}{
		{6, ""},
		{5, "rs=4+2 needs 6 hosts, and there are 5; use rs=3+2, or start the run on more hosts"},
		{3, "rs=4+2 needs 6 hosts, and there are 3; use rs=2+1, or start the run on more hosts"},
		{2, "partner=2 needs 3 hosts, and there are 2; use partner=1, or start the run on more hosts\nrs=4+2 needs 6 hosts, and there are 2; leave rs out, or start the run on more hosts"},
		{1, "partner=2 needs 3 hosts, and there is 1; leave partner out, or start the run on more hosts\nrs=4+2 needs 6 hosts, and there is 1; leave rs out, or start the run on more hosts"},
	} {
		got := ""
		if err := p.Check(c.hosts); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%d hosts: got %s, want %s", c.hosts, got, c.want)
		}
	}
}

// TestTier_RunDir checks the directory of a run on each tier.
func TestTier_RunDir(t *testing.T) {
	for _, c := range []struct {
		t    Tier
		want string
	}{
		{Tier{Kind: Local, Place: "/scratch"}, "/scratch/sim-1234"},
		{Tier{Kind: Shared, Place: "/gpfs/{run}/ckpt"}, "/gpfs/sim-1234/ckpt"},
		{Tier{Kind: S3, Place: "s3://bucket/run"}, "s3://bucket/run"},
		{Tier{Kind: S3, Place: "s3://bucket/{run}?region=x"}, "s3://bucket/sim-1234?region=x"},
	} {
		if got := c.t.RunDir("sim-1234"); got != c.want {
			t.Errorf("%+v: got %s", c.t, got)
		}
	}
}

// FuzzParse checks that every text is refused with a position in it, or is the
// same policy after printing and parsing.
func FuzzParse(f *testing.F) {
	f.Add("local=/scratch, partner=2, rs=4+2:every=4, shared=\"/a b\":every=16, s3=s3://bucket/run:every=32,keep=10")
	f.Add("# c\nlocal=/a:keep=all\npartner:rate=3MiB\nshared=/s:files=3\ndomains=d\nscrub=off\n")
	f.Add(`shared="/a\"\\":key="k:every=2"`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err == nil {
			checkAgain(t, p)
			return
		}
		var e *Error
		if !errors.As(err, &e) || e.Reason == "" || e.Remedy == "" {
			t.Fatalf("%T %v", err, err)
		}
		lines := strings.Split(text, "\n")
		if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len(lines[e.Line-1])+1 {
			t.Fatalf("position %d:%d is not in the text", e.Line, e.Column)
		}
	})
}
