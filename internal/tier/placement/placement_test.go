package placement

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// hostsOf makes hosts of text: "a1 a2 b1" are three hosts in domains a and b.
func hostsOf(text string) (out []Host) {
	for _, name := range strings.Fields(text) {
		out = append(out, Host{name, name[:1]})
	}
	return out
}

func textOf(groups [][]Host) string {
	var out []string
	for _, g := range Names(groups) {
		out = append(out, strings.Join(g, " "))
	}
	return strings.Join(out, " | ")
}

// TestGroups checks how hosts are divided into groups, so that hosts of a
// domain are apart.
func TestGroups(t *testing.T) {
	for _, c := range []struct {
		prev, hosts string
		size        int
		want        string
	}{
		{"", "", 2, ""},
		{"", "a1", 2, "a1"},
		{"", "a1 a2 a3 b1 b2 c1 c2", 2, "a1 b1 c2 | a2 b2 | a3 c1"},
		{"", "a1 a2 a3 a4", 2, "a1 a3 | a2 a4"},
		{"", "a1 b1 c1 d1 e1", 6, "a1 b1 c1 d1 e1"},
		// One host is replaced: its group gets the new one.
		{"a1 b1 | a2 b2 | a3 b3", "a1 a2 a3 b1 b9 b3", 2, "a1 b1 | a2 b9 | a3 b3"},
		// One is lost: its partner joins another group.
		{"a1 b1 | a2 b2 | a3 b3", "a1 a2 a3 b1 b3", 2, "a1 b1 a2 | a3 b3"},
		// It comes back: groups of two again.
		{"a1 b1 a2 | a3 b3", "a1 a2 a3 b1 b2 b3", 2, "a1 b1 | a3 b3 | b2 a2"},
		// The domain of a host has changed.
		{"a1 b1 | a2 b2", "a1 a2 b1 b2", 2, "a1 b1 | a2 b2"},
	} {
		var prev [][]string
		for _, g := range strings.Split(c.prev, " | ") {
			if c.prev != "" {
				prev = append(prev, strings.Fields(g))
			}
		}
		if got := textOf(Groups(prev, hostsOf(c.hosts), c.size)); got != c.want {
			t.Errorf("%s, %s, %d: got %s, want %s", c.prev, c.hosts, c.size, got, c.want)
		}
	}
}

// check returns what is wrong with a division.
func check(groups [][]Host, hosts []Host, size int) error {
	seen := map[string]bool{}
	domains := map[string]int{}
	for _, h := range hosts {
		domains[h.domain()]++
	}
	q := max(1, len(hosts)/size)
	if len(groups) != q {
		return fmt.Errorf("%d groups, not %d", len(groups), q)
	}
	for _, g := range groups {
		if len(g) < size && q > 1 || len(g) == 0 {
			return fmt.Errorf("a group of %d", len(g))
		}
		for _, h := range g {
			if seen[h.Name] {
				return fmt.Errorf("%s is in two groups", h.Name)
			}
			seen[h.Name] = true
			if n := count(g, h.domain()); n > (domains[h.domain()]+q-1)/q {
				return fmt.Errorf("%d hosts of %s in one group, of %d in %d groups", n, h.domain(), domains[h.domain()], q)
			}
		}
	}
	if len(seen) != len(hosts) {
		return fmt.Errorf("%d of %d hosts", len(seen), len(hosts))
	}
	return nil
}

// changed counts the hosts of both divisions that have other neighbours.
func changed(a, b [][]Host) (n int) {
	of := func(groups [][]Host) map[string][]string {
		out := map[string][]string{}
		for _, g := range Names(groups) {
			g = slices.Sorted(slices.Values(g))
			for _, h := range g {
				out[h] = g
			}
		}
		return out
	}
	before, after := of(a), of(b)
	for h, g := range before {
		if now, ok := after[h]; ok && !slices.Equal(g, now) {
			n++
		}
	}
	return n
}

// TestGroups_Random divides random hosts, changes them a little, again and
// again, and checks every division. Hosts that come and are lost change few
// groups.
func TestGroups_Random(t *testing.T) {
	const runs = 300
	anew, steps := 0, 0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 19))
		size := 2 + r.IntN(7)
		racks := 1 + r.IntN(12)
		next := 0
		add := func(hosts []Host) []Host {
			next++
			domain := ""
			if racks > 1 {
				domain = fmt.Sprintf("rack%d", r.IntN(racks))
			}
			return append(hosts, Host{fmt.Sprintf("h%d", next), domain})
		}
		var hosts []Host
		for range 1 + r.IntN(60) {
			hosts = add(hosts)
		}
		groups := Groups(nil, hosts, size)
		if err := check(groups, hosts, size); err != nil {
			t.Fatalf("seed %d, new: %v", seed, err)
		}
		for range 20 {
			if r.IntN(2) == 0 && len(hosts) > 1 {
				i := r.IntN(len(hosts))
				hosts = slices.Delete(slices.Clone(hosts), i, i+1)
			} else {
				hosts = add(hosts)
			}
			r.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
			now := Groups(Names(groups), hosts, size)
			if err := check(now, hosts, size); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if again := Groups(Names(now), hosts, size); !reflect.DeepEqual(again, now) {
				t.Fatalf("seed %d: without a change %s became %s", seed, textOf(now), textOf(again))
			}
			steps++
			if n := changed(groups, now); n > 6*size {
				if racks == 1 {
					t.Fatalf("seed %d: one host changed, and %d of %d have other neighbours (groups of %d)", seed, n, len(hosts), size)
				}
				anew++
			}
			groups = now
		}
	}
	if anew*50 > steps { // where only a new division spreads the domains
		t.Errorf("%d of %d changes of one host changed many groups", anew, steps)
	}
	t.Logf("%d changes of one host, %d of them changed many groups", steps, anew)
}

// TestGroups_Large divides 10,000 hosts. The loss of a rack changes few groups.
func TestGroups_Large(t *testing.T) {
	var hosts []Host
	for i := range 10000 {
		hosts = append(hosts, Host{fmt.Sprintf("r%03dn%02d", i/40, i%40), fmt.Sprintf("r%03d", i/40)})
	}
	groups := Groups(nil, hosts, 6)
	if err := check(groups, hosts, 6); err != nil {
		t.Fatal(err)
	}
	less := slices.DeleteFunc(slices.Clone(hosts), func(h Host) bool { return h.Domain == "r007" })
	now := Groups(Names(groups), less, 6)
	if err := check(now, less, 6); err != nil {
		t.Fatal(err)
	}
	if n := changed(groups, now); n > 40*6*6 {
		t.Errorf("a rack of 40 was lost, and %d hosts have other neighbours", n)
	}
}

// TestHolders checks which hosts hold for which.
func TestHolders(t *testing.T) {
	for _, c := range []struct {
		group string
		size  int
		want  string
	}{
		{"a1", 2, "a1:"},
		{"a1 b1", 2, "a1:b1 b1:a1"},
		{"a1 b1 c1", 2, "a1:b1 b1:c1 c1:a1"},
		{"a1 b1 c1", 6, "a1:b1,c1 b1:c1,a1 c1:a1,b1"},
		{"a1 a3 b2", 2, "a1:b2 a3:b2 b2:a1"},
		{"a1 b1 c1 d1 e1", 4, "a1:b1,c1,d1 b1:c1,d1,e1 c1:d1,e1,a1 d1:e1,a1,b1 e1:a1,b1,c1"},
	} {
		group := hostsOf(c.group)
		got := []string{}
		holders := Holders(group, c.size)
		for _, h := range group {
			got = append(got, h.Name+":"+strings.Join(holders[h.Name], ","))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s, %d: got %s, want %s", c.group, c.size, s, c.want)
		}
	}
}

// TestHolders_Random checks that a host has the right number of holders, never
// itself, and that hosts hold for about as many others.
func TestHolders_Random(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 20))
		size := 2 + r.IntN(6)
		racks := 1 + r.IntN(8)
		var group []Host
		for i := range 1 + r.IntN(2*size-1) {
			group = append(group, Host{fmt.Sprintf("h%d", i), fmt.Sprintf("d%d", r.IntN(racks))})
		}
		load := map[string]int{}
		domains := map[string]int{}
		for _, h := range group {
			domains[h.Domain]++
		}
		for name, list := range Holders(group, size) {
			if len(list) != min(size, len(group))-1 || slices.Contains(list, name) {
				t.Fatalf("seed %d: %s has %v", seed, name, list)
			}
			sorted := slices.Sorted(slices.Values(list))
			if len(slices.Compact(sorted)) != len(list) {
				t.Fatalf("seed %d: %s has %v", seed, name, list)
			}
			for _, x := range list {
				load[x]++
			}
		}
		if len(domains) == len(group) { // nothing is in the way
			for _, h := range group {
				if load[h.Name] != min(size, len(group))-1 {
					t.Fatalf("seed %d: %v", seed, load)
				}
			}
		}
	}
}

// TestDomains checks the domains that rules give to hosts, and the errors in
// rules.
func TestDomains(t *testing.T) {
	d, err := ParseDomains("racks", "# hosts\nlogin1 services\n/(r\\d+)n(\\d)/  $1\n\t/node0[1-4]/ rack-a\n/x(.)/ ${1}y\n")
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{"login1": "services", "login2": "", "r12n3": "r12", "r12n34": "", "node03": "rack-a", "xq": "qy"} {
		if got := d.Of(host); got != want {
			t.Errorf("%s: got %q, want %q", host, got, want)
		}
	}
	if got := (*Domains)(nil).Of("a"); got != "" {
		t.Errorf("no rules: %q", got)
	}
	for text, want := range map[string]string{
		"a":             "f:1:1: the line has 1 words; write a host and its domain",
		"\n  a b c":     "f:2:3: the line has 3 words",
		"/a b":          "f:1:1: the pattern is not closed",
		"/(/ b":         "f:1:1: error parsing regexp",
		"a b\n/[/ rack": "f:2:1: error parsing regexp",
	} {
		if _, err := ParseDomains("f", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// FuzzParseDomains shows that a text is refused with its position, or gives
// rules that can be used.
func FuzzParseDomains(f *testing.F) {
	f.Add("a b\n/(x.)y/ $1\n# c")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := ParseDomains("f", text); err == nil {
			d.Of("host1")
		} else if !strings.HasPrefix(err.Error(), "f:") {
			t.Fatal(err)
		}
	})
}
