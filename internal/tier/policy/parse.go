package policy

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxText bounds the size of a policy.
const maxText = 1 << 20

// Error is an error in the text of a policy.
type Error struct {
	Source string // name of the file, or "tiers"
	Line   int    // 1, 2, …
	Column int    // 1, 2, …; in bytes
	Reason string
	Remedy string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s; %s", e.Source, e.Line, e.Column, e.Reason, e.Remedy)
}

// Parse parses the text of a policy. The error is an *Error.
func Parse(text string) (*Policy, error) { return ParseFile("tiers", text) }

// ParseFile parses the content of a file with a policy.
func ParseFile(name, text string) (*Policy, error) {
	p := &parser{source: name, text: text, policy: &Policy{Scrub: DefaultScrub}}
	if len(text) > maxText {
		return nil, p.fail(0, fmt.Sprintf("the policy has %d bytes", len(text)), fmt.Sprintf("%d are allowed: is this another file?", maxText))
	}
	for {
		done, err := p.item()
		if err != nil {
			return nil, err
		}
		if done {
			break
		}
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	p.policy.sortTiers()
	return p.policy, nil
}

// parser reads a policy from left to right.
type parser struct {
	source string
	text   string
	at     int // offset of the next byte
	policy *Policy
	last   *Tier    // the tier that options belong to
	items  []placed // the tiers and settings so far
	opts   []string // the options of the last tier so far
}

// placed is the name of an item and where it stands.
type placed struct {
	name string
	at   int
}

// begin notes an item. It refuses one that was there before.
func (p *parser) begin(name string, start int) error {
	if slices.ContainsFunc(p.items, func(x placed) bool { return x.name == name }) {
		return p.fail(start, name+" is given twice", "leave one of them out")
	}
	p.items = append(p.items, placed{name, start})
	return nil
}

func (p *parser) fail(at int, reason, remedy string) error {
	before := p.text[:min(at, len(p.text))]
	return &Error{Source: p.source, Line: 1 + strings.Count(before, "\n"), Column: len(before) - strings.LastIndexByte(before, '\n'), Reason: reason, Remedy: remedy}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// skip passes blanks, and separators and comments if between is set.
func (p *parser) skip(between bool) {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case isBlank(c):
			p.at++
		case between && (c == ',' || c == '\n'):
			p.at++
		case between && c == '#':
			if n := strings.IndexByte(p.text[p.at:], '\n'); n >= 0 {
				p.at += n
			} else {
				p.at = len(p.text)
			}
		default:
			return
		}
	}
}

const tierNames = "a policy is made of local=DIR, partner, rs=4+2, shared=DIR, s3=s3://bucket/run, domains=FILE and scrub=7d"

var optionNames = []string{"every", "keep", "rate", "writers", "key", "files"}

// item reads an item, or an option after a comma. It reports whether the text
// is at its end.
func (p *parser) item() (done bool, err error) {
	p.skip(true)
	if p.at == len(p.text) {
		return true, nil
	}
	start := p.at
	name := p.word()
	switch {
	case name == "":
		return false, p.fail(start, fmt.Sprintf("%q is not the name of a tier", p.text[start:start+runeLen(p.text[start:])]), tierNames)
	case slices.Contains(optionNames, name):
		if p.last == nil {
			return false, p.fail(start, fmt.Sprintf("the option %s does not follow a tier", name), "write it after its tier, as in partner:keep=3")
		}
		if err := p.option(name, start); err != nil {
			return false, err
		}
	case slices.Contains(kinds, Kind(name)):
		if err := p.tier(Kind(name), start); err != nil {
			return false, err
		}
	case name == "domains" || name == "scrub":
		if err := p.setting(name, start); err != nil {
			return false, err
		}
	default:
		return false, p.fail(start, fmt.Sprintf("there is no tier or option %q", name), tierNames+", with the options "+strings.Join(optionNames, ", "))
	}
	return false, p.rest()
}

// rest reads the options after a colon, up to a separator.
func (p *parser) rest() error {
	for {
		p.skip(false)
		if p.at == len(p.text) || p.text[p.at] == ',' || p.text[p.at] == '\n' {
			return nil
		}
		start := p.at
		if p.text[p.at] != ':' {
			return p.fail(start, fmt.Sprintf("%q is not expected here", p.text[start:start+runeLen(p.text[start:])]), "separate tiers by commas, and begin a tier's options with a colon; put a value with blanks in double quotes")
		}
		p.at++
		p.skip(false)
		start = p.at
		name := p.word()
		if !slices.Contains(optionNames, name) {
			return p.fail(start, fmt.Sprintf("there is no option %q", name), "the options are "+strings.Join(optionNames, ", ")+"; put a value with a colon in double quotes")
		}
		if p.last == nil {
			return p.fail(start, fmt.Sprintf("the option %s follows a setting, not a tier", name), "write it after its tier, as in partner:keep=3")
		}
		if err := p.option(name, start); err != nil {
			return err
		}
	}
}

func runeLen(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}

// word reads a name.
func (p *parser) word() string {
	start := p.at
	for p.at < len(p.text) && (p.text[p.at] >= 'a' && p.text[p.at] <= 'z' || p.at > start && p.text[p.at] >= '0' && p.text[p.at] <= '9') {
		p.at++
	}
	return p.text[start:p.at]
}

// optionAt returns where in an unquoted value an option, or something that
// looks like one, begins; or -1.
func optionAt(s string) int {
	for i := range len(s) {
		if s[i] != ':' {
			continue
		}
		j := i + 1
		for j < len(s) && isBlank(s[j]) {
			j++
		}
		k := j
		for k < len(s) && (s[k] >= 'a' && s[k] <= 'z') {
			k++
		}
		ends := k == len(s) || s[k] == ',' || isBlank(s[k])
		if k > j && (!ends && s[k] == '=' || ends && slices.Contains(optionNames, s[j:k])) {
			return i
		}
	}
	return -1
}

// value reads "=" and what follows it. There may be none; then ok is false.
func (p *parser) value() (v string, at int, ok bool, err error) {
	p.skip(false)
	if p.at == len(p.text) || p.text[p.at] != '=' {
		return "", p.at, false, nil
	}
	p.at++
	p.skip(false)
	at = p.at
	if p.at < len(p.text) && p.text[p.at] == '"' {
		v, err = p.quoted()
		return v, at, true, err
	}
	end := strings.IndexAny(p.text[at:], ", \t\r\n\"")
	if end < 0 {
		end = len(p.text) - at
	}
	line := p.text[at:]
	if n := strings.IndexByte(line, '\n'); n >= 0 {
		line = line[:n]
	}
	if n := optionAt(line); n >= 0 {
		end = min(end, n)
	}
	p.at += end
	if p.at < len(p.text) && p.text[p.at] == '"' {
		return "", at, false, p.fail(p.at, "a double quote inside a value", `put the whole value in double quotes, and write \" for the one in it`)
	}
	if end == 0 {
		return "", at, false, p.fail(at, "the value is missing", "write it directly after the equals sign")
	}
	v = p.text[at:p.at]
	if strings.HasSuffix(v, ":") {
		return "", at, false, p.fail(p.at-1, "no option follows the colon", "the options are "+strings.Join(optionNames, ", ")+", as in :every=4")
	}
	return v, at, true, nil
}

func (p *parser) quoted() (string, error) {
	start := p.at
	var b strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			if b.Len() == 0 {
				return "", p.fail(start, "the value is empty", "write it between the quotes")
			}
			return b.String(), nil
		case c == '\n':
			return "", p.fail(start, "the quotes are not closed on their line", `write " at the end of the value`)
		case c == '\\':
			p.at++
			if p.at == len(p.text) || p.text[p.at] != '"' && p.text[p.at] != '\\' {
				return "", p.fail(p.at-1, "a single backslash in quotes", `write \\ for a backslash and \" for a quote`)
			}
			b.WriteByte(p.text[p.at])
		default:
			b.WriteByte(c)
		}
	}
	return "", p.fail(start, "the quotes are not closed", `write " at the end of the value`)
}

// tier reads a tier up to its options.
func (p *parser) tier(k Kind, start int) error {
	if err := p.begin(string(k), start); err != nil {
		return err
	}
	v, at, has, err := p.value()
	if err != nil {
		return err
	}
	t := Defaults(k)
	switch k {
	case Partner:
		if has {
			if t.Copies, err = p.number(v, at, "partner", 1, 64); err != nil {
				return err
			}
		}
	case RS:
		data, parity, ok := strings.Cut(v, "+")
		if !has || !ok {
			return p.fail(at, "rs needs the numbers of data and parity shards", "write them as in rs=4+2: any 2 of 6 hosts may be lost then")
		}
		if t.Data, err = p.number(data, at, "the number of data shards", 2, 128); err != nil {
			return err
		}
		if t.Parity, err = p.number(parity, at+len(data)+1, "the number of parity shards", 1, 64); err != nil {
			return err
		}
	default:
		if !has {
			return p.fail(start, fmt.Sprintf("%s names no place", k), map[Kind]string{
				Local: "name a directory of each host, as in local=/scratch", Shared: "name a directory that all hosts see, as in shared=/gpfs/me", S3: "name a bucket, as in s3=s3://bucket/run"}[k])
		}
		if err := p.place(k, v, at); err != nil {
			return err
		}
		t.Place = v
	}
	p.policy.Tiers = append(p.policy.Tiers, t)
	p.last, p.opts = &p.policy.Tiers[len(p.policy.Tiers)-1], nil
	return nil
}

// place checks a directory or URL.
func (p *parser) place(k Kind, v string, at int) error {
	rest := strings.ReplaceAll(v, "{run}", "run")
	if i := strings.IndexAny(rest, "{}"); i >= 0 {
		return p.fail(at, fmt.Sprintf("%q has a brace in it", v), "only {run}, the name of the run, may stand in braces")
	}
	if i := strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
		return p.fail(at, fmt.Sprintf("%q has a control character in it", v), "leave it out")
	}
	if k != S3 {
		if !path.IsAbs(v) {
			return p.fail(at, fmt.Sprintf("%s=%s is a relative path", k, v), "write an absolute path, which is the same on every host")
		}
		return nil
	}
	url, ok := strings.CutPrefix(v, "s3://")
	if !ok {
		return p.fail(at, fmt.Sprintf("%q is no S3 place", v), "write it as s3://bucket/run")
	}
	bucket, _, _ := strings.Cut(url, "/")
	bucket, _, _ = strings.Cut(bucket, "?")
	if strings.Contains(bucket, "@") {
		return p.fail(at, "the policy contains credentials", "remove them: they come from the environment, a credentials file or the instance")
	}
	if bucket == "" {
		return p.fail(at, fmt.Sprintf("%q names no bucket", v), "write it as s3://bucket/run")
	}
	if why, remedy := wrongURL(v, strings.ReplaceAll(url, "{run}", "run")); why != "" {
		return p.fail(at, why, remedy)
	}
	return nil
}

// CheckURL checks the bucket and the prefix of an object store's URL. The text
// of the error begins with the URL.
func CheckURL(v string) error {
	if why, remedy := wrongURL(v, strings.TrimPrefix(v, "s3://")); why != "" {
		return fmt.Errorf("%s; %s", why, remedy)
	}
	return nil
}

// wrongURL returns what is wrong in the URL v of an object store, and what to
// do; "": nothing. rest is what follows s3:// in v.
func wrongURL(v, rest string) (why, remedy string) {
	rest, _, _ = strings.Cut(rest, "?") // options of the store follow
	i := strings.IndexFunc(rest, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-/", r)
	})
	if i < 0 {
		return "", ""
	}
	bad, _ := utf8.DecodeRuneInString(rest[i:])
	remedy = "a bucket and a prefix have letters, digits, '.', '_', '-' and '/'"
	if bad == '@' || bad == '#' {
		remedy += "; a checkpoint is chosen with --from s3://bucket/run@12"
	}
	return fmt.Sprintf("%q has the character %q", v, bad), remedy
}

func (p *parser) setting(name string, start int) error {
	if err := p.begin(name, start); err != nil {
		return err
	}
	p.last = nil
	v, at, has, err := p.value()
	if err != nil {
		return err
	}
	if name == "domains" {
		if !has {
			return p.fail(start, "domains names no file", "name a file with a host and its domain on each line, as in domains=racks.txt")
		}
		p.policy.Domains = v
		return nil
	}
	if !has {
		return p.fail(start, "scrub has no value", "write scrub=7d, or scrub=off")
	}
	p.policy.Scrub, err = parseAge(v)
	if err != nil {
		return p.fail(at, fmt.Sprintf("scrub=%s: %v", v, err), "write an age such as 7d or 36h, or off")
	}
	return nil
}

// option reads an option of the last tier.
func (p *parser) option(name string, start int) error {
	t := p.last
	if slices.Contains(p.opts, name) {
		return p.fail(start, fmt.Sprintf("%s is given twice for %s", name, t.Kind), "leave one of them out")
	}
	p.opts = append(p.opts, name)
	v, at, has, err := p.value()
	if err != nil {
		return err
	}
	if !has {
		return p.fail(start, fmt.Sprintf("the option %s has no value", name), fmt.Sprintf("write it as in %s=%s", name, map[string]string{"every": "4", "keep": "2", "rate": "200MB", "writers": "16", "key": "FILE", "files": "1"}[name]))
	}
	switch name {
	case "every":
		if t.Kind == Local {
			return p.fail(start, "local gets every checkpoint", "leave every out; the program, --every or --every-points say how often checkpoints are taken")
		}
		t.Every, err = p.number(v, at, "every", 1, math.MaxInt32)
	case "keep":
		if v == "all" {
			t.Keep = KeepAll
			return nil
		}
		t.Keep, err = p.number(v, at, "keep", 1, math.MaxInt32)
	case "rate":
		if t.Kind == Local {
			return p.fail(start, "nothing is sent to local", "leave rate out")
		}
		if t.Rate, err = parseRate(v); err != nil {
			return p.fail(at, fmt.Sprintf("rate=%s: %v", v, err), "write bytes per second, as in 200MB or 1GiB")
		}
	case "writers", "key":
		if t.Kind.OnHosts() {
			return p.fail(start, fmt.Sprintf("%s has no option %s", t.Kind, name), fmt.Sprintf("leave it out; %s belongs to shared and s3", name))
		}
		if name == "key" {
			t.Key = v
			return nil
		}
		t.Writers, err = p.number(v, at, "writers", 1, math.MaxInt32)
	case "files":
		if t.Kind != Shared {
			return p.fail(start, fmt.Sprintf("%s has no option files", t.Kind), "leave it out; files belongs to shared")
		}
		t.Files, err = p.number(v, at, "files", 1, math.MaxInt32)
	}
	return err
}

func (p *parser) number(v string, at int, what string, low, high int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high || strconv.Itoa(n) != v {
		bound := fmt.Sprintf("write a whole number from %d to %d", low, high)
		if high == math.MaxInt32 {
			bound = fmt.Sprintf("write a whole number from %d on", low)
		}
		return 0, p.fail(at, fmt.Sprintf("%q is no number for %s", v, what), bound)
	}
	return n, nil
}

// check refuses tiers that do not fit together.
func (p *parser) check() error {
	if len(p.policy.Tiers) == 0 {
		return p.fail(len(p.text), "the policy names no tier", tierNames)
	}
	for _, x := range p.items {
		if k := Kind(x.name); (k == Partner || k == RS) && p.policy.Of(Local) == nil {
			return p.fail(x.at, fmt.Sprintf("%s is given without local", k), "add local=DIR: a directory on each host, for its own files and for those of other hosts")
		}
	}
	return nil
}

// units of rates.
var units = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1}, {"", 1}}

func parseRate(v string) (int64, error) {
	v = strings.TrimSuffix(v, "/s")
	for _, u := range units {
		digits, ok := strings.CutSuffix(v, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case err != nil || strconv.FormatInt(n, 10) != digits || n < 1:
			return 0, errors.New("it is no number of bytes")
		case n > math.MaxInt64/u.bytes:
			return 0, errors.New("it is too large")
		}
		return n * u.bytes, nil
	}
	return 0, errors.New("it is no number of bytes")
}

func rateText(n int64) string {
	for _, u := range units {
		if u.name != "" && n%u.bytes == 0 {
			return fmt.Sprintf("%d%s", n/u.bytes, u.name)
		}
	}
	return strconv.FormatInt(n, 10)
}

func parseAge(v string) (time.Duration, error) {
	if v == "off" {
		return 0, nil
	}
	var d time.Duration
	if days, ok := strings.CutSuffix(v, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		if err != nil || n > 36500 {
			return 0, errors.New("it is no number of days")
		}
		d = time.Duration(n) * 24 * time.Hour
	} else {
		var err error
		if d, err = time.ParseDuration(v); err != nil {
			return 0, errors.New("it is no age")
		}
	}
	if d < time.Minute {
		return 0, errors.New("it is less than a minute")
	}
	return d, nil
}

func ageText(d time.Duration) string {
	switch {
	case d == 0:
		return "off"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return d.String()
}
