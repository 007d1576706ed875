// Package policy parses and prints the line that says on which storage tiers
// the checkpoints of a run are kept:
//
//	local=/scratch, partner, rs=4+2:every=4, shared=/gpfs/me:every=16,
//	s3=s3://bucket/run:every=32,keep=10
//
// The grammar, where a space or a tab may stand around separators:
//
//	policy  = item {"," item}
//	item    = tier {":" options} | setting
//	tier    = "local=" path | "partner" ["=" number] | "rs=" number "+" number
//	        | "shared=" path | "s3=" url
//	setting = "domains=" path | "scrub=" (age | "off")
//	options = option {"," option}
//	option  = "every=" number | "keep=" (number | "all") | "rate=" bytes
//	        | "writers=" number | "key=" path | "files=" number
//
// No option has the name of a tier or a setting: so the name after a comma says
// what it is. A value that contains a comma, a space, a quote, or a colon and
// an option, is written in double quotes, with \" and \\ inside. A newline
// separates items as a comma does, and # at the start of an item begins a
// comment: so a file with one item per line is a policy, too.
//
// The package does no I/O.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is the kind of a tier.
type Kind string

// The kinds of tiers, from the fastest to the most durable.
const (
	Local   Kind = "local"   // a directory of each host
	Partner Kind = "partner" // copies on other hosts
	RS      Kind = "rs"      // Reed–Solomon shards on other hosts
	Shared  Kind = "shared"  // a directory that all hosts see
	S3      Kind = "s3"      // an object store
)

var kinds = []Kind{Local, Partner, RS, Shared, S3}

// OnHosts reports whether the tier is made of the hosts' own disks.
func (k Kind) OnHosts() bool { return k == Local || k == Partner || k == RS }

// KeepAll, as Tier.Keep, means that no checkpoint is removed.
const KeepAll = -1

// Tier is a place where checkpoints are kept, and which of them.
type Tier struct {
	Kind   Kind
	Place  string // of Local and Shared: a directory; of S3: a URL
	Copies int    // of Partner: how many other hosts get a copy
	Data   int    // of RS: data shards
	Parity int    // of RS: parity shards

	Every   int    // it gets every n-th checkpoint
	Keep    int    // it keeps the newest n, or KeepAll
	Rate    int64  // bytes per second that a host sends to it; 0: no limit
	Writers int    // of Shared and S3: hosts that write at the same time
	Key     string // of Shared and S3: file with the key that encrypts; "": none
	Files   int    // of Shared: files that a host makes of a checkpoint, if it has more ranks; 0: each rank's files stay separate
}

// Policy says on which tiers checkpoints are kept.
type Policy struct {
	Tiers   []Tier        // in the order of kinds, each kind at most once
	Domains string        // file that says which hosts fail together; "": each alone
	Scrub   time.Duration // age at which what is kept of checkpoints is read again; 0: never
}

// DefaultScrub is Policy.Scrub where the text does not say.
const DefaultScrub = 7 * 24 * time.Hour

// Of returns the tier of a kind, or nil.
func (p *Policy) Of(k Kind) *Tier {
	for i := range p.Tiers {
		if p.Tiers[i].Kind == k {
			return &p.Tiers[i]
		}
	}
	return nil
}

// Outer returns the tiers outside of the hosts.
func (p *Policy) Outer() []*Tier { return p.of(Shared, S3) }

// OnOthers returns the tiers on other hosts than those of the ranks.
func (p *Policy) OnOthers() []*Tier { return p.of(Partner, RS) }

func (p *Policy) of(kinds ...Kind) (out []*Tier) {
	for _, k := range kinds {
		if t := p.Of(k); t != nil {
			out = append(out, t)
		}
	}
	return out
}

// Defaults returns a tier of a kind with the default values of its options.
func Defaults(k Kind) Tier {
	t := Tier{Kind: k, Every: 1, Keep: 2}
	switch k {
	case Partner:
		t.Copies = 1
	case RS:
		t.Every = 4
	case Shared:
		t.Every, t.Writers = 16, 16
	case S3:
		t.Every, t.Keep, t.Writers = 32, 4, 16
	}
	return t
}

// Check returns an error if there are too few hosts for the policy. It is for
// the first start of a run: later, hosts may have been lost, and a run with
// less redundancy is better than none.
func (p *Policy) Check(hosts int) error {
	var errs []error
	if t := p.Of(Partner); t != nil && hosts < t.Copies+1 {
		remedy := "leave partner out"
		if hosts > 1 {
			remedy = fmt.Sprintf("use partner=%d", hosts-1)
		}
		errs = append(errs, fmt.Errorf("%s needs %d hosts, and there %s; %s, or start the run on more hosts", t.name(), t.Copies+1, areHosts(hosts), remedy))
	}
	if t := p.Of(RS); t != nil && hosts < t.Data+t.Parity {
		remedy := "leave rs out"
		if data := hosts - t.Parity; data >= 2 {
			remedy = fmt.Sprintf("use rs=%d+%d", data, t.Parity)
		} else if hosts >= 3 {
			remedy = fmt.Sprintf("use rs=%d+1", hosts-1)
		}
		errs = append(errs, fmt.Errorf("%s needs %d hosts, and there %s; %s, or start the run on more hosts", t.name(), t.Data+t.Parity, areHosts(hosts), remedy))
	}
	return errors.Join(errs...)
}

func areHosts(n int) string {
	if n == 1 {
		return "is 1"
	}
	return fmt.Sprintf("are %d", n)
}

// String returns the policy as a line that Parse reads.
func (p *Policy) String() string {
	var items []string
	for i := range p.Tiers {
		items = append(items, p.Tiers[i].String())
	}
	if p.Domains != "" {
		items = append(items, "domains="+quote(p.Domains))
	}
	if p.Scrub != DefaultScrub {
		items = append(items, "scrub="+ageText(p.Scrub))
	}
	return strings.Join(items, ", ")
}

// Name returns what messages call the tier: shared=/gpfs/me.
func (t *Tier) Name() string {
	switch t.Kind {
	case Local:
		return string(t.Kind)
	case Partner:
		return fmt.Sprintf("partner=%d", t.Copies)
	case RS:
		return fmt.Sprintf("rs=%d+%d", t.Data, t.Parity)
	}
	return string(t.Kind) + "=" + t.Place
}

// name returns the tier without its options.
func (t *Tier) name() string {
	switch t.Kind {
	case Partner:
		if t.Copies == 1 {
			return string(Partner)
		}
		return fmt.Sprintf("%s=%d", Partner, t.Copies)
	case RS:
		return fmt.Sprintf("%s=%d+%d", RS, t.Data, t.Parity)
	}
	return fmt.Sprintf("%s=%s", t.Kind, quote(t.Place))
}

// String returns the tier as an item of a policy. It omits default values.
func (t *Tier) String() string {
	d := Defaults(t.Kind)
	var opts []string
	add := func(differs bool, name, value string) {
		if differs {
			opts = append(opts, name+"="+value)
		}
	}
	keep := strconv.Itoa(t.Keep)
	if t.Keep == KeepAll {
		keep = "all"
	}
	add(t.Every != d.Every, "every", strconv.Itoa(t.Every))
	add(t.Keep != d.Keep, "keep", keep)
	add(t.Rate != d.Rate, "rate", rateText(t.Rate))
	add(t.Writers != d.Writers, "writers", strconv.Itoa(t.Writers))
	add(t.Key != d.Key, "key", quote(t.Key))
	add(t.Files != d.Files, "files", strconv.Itoa(t.Files))
	if len(opts) == 0 {
		return t.name()
	}
	return t.name() + ":" + strings.Join(opts, ",")
}

// quote returns a value as it is, or in quotes if it needs them.
func quote(value string) string {
	if value != "" && !strings.ContainsAny(value, "\", \t\n\\") && !strings.HasPrefix(value, "#") && optionAt(value) < 0 && !strings.HasSuffix(value, ":") {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

// RunDir returns the directory, or URL, of a run with this name on the tier:
// {run} in Place stands for the name; without it, Place is the parent of the
// runs' directories.
func (t *Tier) RunDir(name string) string {
	if strings.Contains(t.Place, "{run}") {
		return strings.ReplaceAll(t.Place, "{run}", name)
	}
	if t.Kind == S3 {
		return t.Place
	}
	return path.Join(t.Place, name)
}

// Parent returns the directory of a shared tier that all runs have in common:
// Place, or the directory in it that {run} is below.
func (t *Tier) Parent() string {
	before, _, has := strings.Cut(t.Place, "{run}")
	if !has {
		return t.Place
	}
	return path.Dir(before + "x")
}

// sortTiers puts tiers in the order of kinds.
func (p *Policy) sortTiers() {
	slices.SortStableFunc(p.Tiers, func(a, b Tier) int {
		return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind))
	})
}
