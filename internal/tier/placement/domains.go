package placement

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Domains says in which domain a host is. It comes from a file:
//
//	# host or /pattern/    domain
//	login1                 services
//	/(r\d+)n\d+/           $1
//	/node0[1-8]/           rack-a
//
// The first line that fits a host counts. A pattern is a regular expression for
// the whole name; $1 stands for its first group. A host that fits no line is a
// domain of its own.
type Domains struct{ rules []rule }

type rule struct {
	host    string // or:
	pattern *regexp.Regexp
	domain  string
}

// maxDomains bounds the size of a file of domains.
const maxDomains = 16 << 20

// ReadDomains reads a file of domains.
func ReadDomains(name string) (*Domains, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return ParseDomains(name, string(text))
}

// ParseDomains parses the content of a file, which errors name.
func ParseDomains(name, text string) (*Domains, error) {
	if len(text) > maxDomains {
		return nil, fmt.Errorf("%s: it has %d bytes, %d are allowed: is this another file?", name, len(text), maxDomains)
	}
	d := new(Domains)
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		fail := func(reason, remedy string) error {
			return fmt.Errorf("%s:%d:%d: %s; %s", name, i+1, 1+strings.Index(line, words[0]), reason, remedy)
		}
		const remedy = "write a host and its domain, as in 'node07 rack-a', or a pattern and a domain, as in '/(r[0-9]+)n.*/ $1'"
		if len(words) != 2 {
			return nil, fail(fmt.Sprintf("the line has %d words", len(words)), remedy)
		}
		r := rule{host: words[0], domain: words[1]}
		if strings.HasPrefix(r.host, "/") {
			pattern, ok := strings.CutSuffix(r.host[1:], "/")
			if !ok {
				return nil, fail("the pattern is not closed", remedy)
			}
			var err error
			if r.pattern, err = regexp.Compile("^(?:" + pattern + ")$"); err != nil {
				return nil, fail(err.Error(), "correct the regular expression")
			}
		}
		d.rules = append(d.rules, r)
	}
	return d, nil
}

// Of returns the domain of a host, or "" if it is one of its own. d may be nil.
func (d *Domains) Of(host string) string {
	if d == nil {
		return ""
	}
	for _, r := range d.rules {
		if r.pattern == nil {
			if r.host == host {
				return r.domain
			}
			continue
		}
		if m := r.pattern.FindStringSubmatchIndex(host); m != nil {
			return string(r.pattern.ExpandString(nil, r.domain, host, m))
		}
	}
	return ""
}
