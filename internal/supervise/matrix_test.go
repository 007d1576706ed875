//go:build linux

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/placement"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
)

// The failure matrix: a run of six hosts with one rank each has checkpoints 1
// and 2 on its disks and on a tier, and checkpoint 3 on its disks: not yet,
// half or wholly on the tier. Then some hosts' disks are damaged in some way,
// or what a tier has for them, or both. A restart must restore the newest
// checkpoint that is left, or refuse and say what is missing.
//
// Hosts are directories, and their helpers real processes. The restart is that
// of Supervisor.prepareLocal, without ranks.

var matrixHosts = []string{"alpha", "bravo", "charlie", "delta", "echo", "foxtrot"}

const (
	sixCopied = 6 // hosts that have copied checkpoint 3 to the tier
	matrixRun = "sim-1"
)

// matrixCell is one case.
type matrixCell struct {
	tier   string // local, partner, rs, shared, s3
	target string // disks; of shared and s3 also both: disks and tier
	how    string
	where  string
	copied int // hosts that have copied checkpoint 3
}

func (c matrixCell) String() string {
	return fmt.Sprintf("%s, %s of %s: %s, %d of 6 hosts have copied the newest checkpoint", c.tier, c.target, c.where, c.how, c.copied)
}

var (
	matrixTiers  = []string{"local", "partner", "rs", "shared", "s3"}
	matrixWays   = []string{"files deleted", "directory deleted", "start overwritten", "middle overwritten", "end overwritten", "truncated", "stale file"}
	matrixWheres = []string{"one host", "two neighbours", "a group", "all hosts"}
	matrixTimes  = []int{0, 3, sixCopied}
)

// hosts returns the hosts that are hit. Neighbours hold for each other if they
// are in one group.
func (c matrixCell) hosts(groups [][]string) []string {
	switch c.where {
	case "one host":
		return groups[0][:1]
	case "two neighbours":
		return groups[0][:2]
	case "a group":
		return groups[0]
	}
	return matrixHosts
}

// expect returns the checkpoint that must be restored; 0: the run must refuse.
func (c matrixCell) expect(groups [][]string) uint64 {
	hit := c.hosts(groups)
	dirs := c.how == "directory deleted"
	onTier := c.copied == sixCopied
	switch c.tier {
	case "local":
		if dirs {
			return 0
		}
		return 2
	case "shared", "s3":
		switch {
		case c.target == "both" && dirs:
			return 0
		case c.target == "disks" && onTier:
			return 3
		}
		return 2
	}
	index := uint64(3)
	for _, h := range hit {
		g := groups[slices.IndexFunc(groups, func(g []string) bool { return slices.Contains(g, h) })]
		both := 0
		for _, x := range hit {
			if slices.Contains(g, x) {
				both++
			}
		}
		switch {
		case both > 1 && dirs: // more than the tier promises
			return 0
		case both > 1, slices.Index(matrixHosts, h) >= c.copied:
			index = 2
		}
	}
	return index
}

// groupsOf returns the hosts that hold for each other.
func groupsOf(tier string) [][]string {
	size := 3
	if tier == "partner" {
		size = 2
	}
	var hosts []placement.Host
	for _, h := range matrixHosts {
		hosts = append(hosts, placement.Host{Name: h})
	}
	return placement.Names(placement.Groups(nil, hosts, size))
}

// matrix makes the states that cells begin with.
type matrix struct {
	t      *testing.T
	top    string
	tier   string
	run    string
	groups [][]string
	server *s3test.Server
	prog   *tiertest.Program
	rec    *rundir.Record
}

// policyOf returns the policy of a run whose files are in a directory.
func (m *matrix) policyOf(root string) string {
	text := "local=" + filepath.Join(root, "me")
	switch m.tier {
	case "partner":
		text += ", partner"
	case "rs":
		text += ", rs=2+1:every=1"
	case "shared":
		text += ", shared=" + filepath.Join(root, "shared") + ":every=1"
	case "s3":
		text += ", s3=s3://" + s3test.Bucket + "/" + filepath.Base(root) + ":every=1"
	}
	return text
}

func (m *matrix) dir(root, host string) string { return filepath.Join(root, host, "me", matrixRun) }

// open starts the helpers of all hosts.
func (m *matrix) open(root string) *repairer {
	m.t.Helper()
	rec := *m.rec
	rec.Policy = m.policyOf(root)
	pol, err := policy.Parse(rec.Policy)
	if err != nil {
		m.t.Fatal(err)
	}
	if m.tier == "shared" {
		rec.UsedTiers = []string{pol.Of(policy.Shared).Name()}
	}
	r := &repairer{rec: &rec, pol: pol, v: &HostView{rec: &rec}, out: new(RepairedRun), bad: make(map[copyOf]string)}
	setup := control.LocalDir{Run: m.run, Supervisor: randomName(), Secret: randomBytes(32), Policy: rec.Policy, Name: matrixRun, Env: storeEnv(pol)}
	for _, name := range matrixHosts {
		h, s := &ViewedHost{Name: name}, setup
		s.Dir = m.dir(root, name)
		if err := os.MkdirAll(filepath.Dir(filepath.Dir(s.Dir)), 0o700); err != nil {
			m.t.Fatal(err)
		}
		if h.Err = h.open(m.t.Context(), as("helper"), true, &s); h.Err != nil {
			m.t.Fatalf("%s: %v", name, h.Err)
		}
		r.v.Hosts = append(r.v.Hosts, h)
	}
	return r
}

// outer returns the tier outside of the hosts, or nil.
func (m *matrix) outer(r *repairer) tier.Tier {
	m.t.Helper()
	t := r.pol.Of(policy.Kind(m.tier))
	if t.Kind.OnHosts() {
		return nil
	}
	x, err := helper.OpenTier(m.t.Context(), t, matrixRun, vfs.Access{})
	if err == nil {
		err = helper.Mark(m.t.Context(), t, x)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return x
}

// copies lets some hosts copy a checkpoint to the tier. If all have, it counts
// there.
func (m *matrix) copies(r *repairer, index uint64, from, to int) (parts []tier.Uploaded) {
	m.t.Helper()
	for rank := from; rank < to; rank++ {
		if m.tier == "local" {
			continue
		}
		s, err := r.keep(m.t.Context(), r.v.Hosts[rank], &control.Keep{Tier: m.tier, Index: index, Ranks: []int{rank}, All: len(matrixHosts)})
		if err != nil {
			m.t.Fatal(err)
		}
		var up tier.Uploaded
		if len(s.Part) > 0 {
			if err := json.Unmarshal(s.Part, &up); err != nil {
				m.t.Fatal(err)
			}
			parts = append(parts, up)
		}
	}
	return parts
}

// build makes the three states: top/0, top/3 and top/6.
func (m *matrix) build() {
	t := m.t
	base := filepath.Join(m.top, "base")
	var dirs []string
	for _, h := range matrixHosts {
		dirs = append(dirs, local.CheckpointDir(m.dir(base, h)))
	}
	started := new(control.AttemptRecord).Next(0, "")
	started.Run, started.Ranks, started.Host = m.run, len(matrixHosts), "here"
	m.rec = &rundir.Record{ID: m.run, Name: matrixRun, Ranks: len(matrixHosts), Started: started, Quiet: true, Last: &control.CheckpointState{Index: 3}}
	r := m.open(base)
	defer func() { r.v.Close() }()
	r.tellPeers()
	m.groups = groupsOf(m.tier)
	for _, dir := range dirs {
		if err := vfs.SubDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	m.prog = tiertest.NewProgramOn(t, vfs.OS(), m.run, dirs)
	started.Line[0].Attempt = m.prog.Attempt
	for _, h := range r.v.Hosts {
		started.Homes = append(started.Homes, control.Home{Host: h.Name, Dir: h.Files.ID})
	}
	for _, h := range r.v.Hosts {
		if _, err := ask[control.Message](h, &control.StoreAttempt{AttemptRecord: *started}); err != nil {
			t.Fatal(err)
		}
	}
	x := m.outer(r)
	if x != nil {
		if _, err := createAttempt(t.Context(), x, started); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(parts []tier.Uploaded) {
		t.Helper()
		if len(parts) > 0 {
			if _, err := tier.Commit(t.Context(), x, parts); err != nil {
				t.Fatal(err)
			}
		}
	}
	snapshot := func(copied int) {
		t.Helper()
		to := m.state(copied)
		if out, err := exec.Command("cp", "-a", base, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if m.tier == "s3" {
			m.copyStore(base, to)
		}
	}
	for index := uint64(1); index <= 3; index++ {
		if m.prog.Save() != index {
			t.Fatal("another checkpoint")
		}
		for rank, dir := range dirs {
			own := store.ForHelper(vfs.OS(), dir, rank, nil)
			own.PerHost()
			if err := errors.Join(own.SetID(m.run), own.SetLine(store.Line{Index: index, Ranks: len(dirs), Run: m.run, Attempt: m.prog.Attempt})); err != nil {
				t.Fatal(err)
			}
		}
		if index < 3 {
			commit(m.copies(r, index, 0, 6))
		}
	}
	snapshot(0)
	parts := m.copies(r, 3, 0, 3)
	snapshot(3)
	commit(append(parts, m.copies(r, 3, 3, 6)...))
	snapshot(sixCopied)
}

func (m *matrix) state(copied int) string { return filepath.Join(m.top, fmt.Sprint("state", copied)) }

// copyStore copies the objects of one prefix to another.
func (m *matrix) copyStore(from, to string) {
	m.t.Helper()
	open := func(root string) tier.Tier {
		m.t.Helper()
		pol, err := policy.Parse(m.policyOf(root))
		if err != nil {
			m.t.Fatal(err)
		}
		x, err := helper.OpenTier(m.t.Context(), pol.Of(policy.S3), matrixRun, vfs.Access{})
		if err != nil {
			m.t.Fatal(err)
		}
		return x
	}
	a, b := open(from), open(to)
	for info, err := range a.List(m.t.Context(), "") {
		if err != nil {
			m.t.Fatal(err)
		}
		text, err := tier.ReadAll(m.t.Context(), a, info.Name, 1<<30)
		if err == nil {
			err = b.Put(m.t.Context(), info.Name, tier.BytesSource(text))
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// spoil returns what damage makes of a content; old is that of checkpoint 2.
func spoil(how string, data, old []byte) []byte {
	out := slices.Clone(data)
	n := min(64, len(out))
	at := map[string]int{"middle overwritten": (len(out) - n) / 2, "end overwritten": len(out) - n}[how]
	switch how {
	case "truncated":
		return out[:len(out)/2]
	case "stale file":
		return old
	}
	for i := range n {
		out[at+i] ^= 0x5a
	}
	return out
}

// damageDisk damages what a host has of checkpoint 3.
func (m *matrix) damageDisk(root string, rank int, how string) {
	t := m.t
	t.Helper()
	dir := m.dir(root, matrixHosts[rank])
	if how == "directory deleted" {
		if err := os.RemoveAll(filepath.Join(root, matrixHosts[rank])); err != nil {
			t.Fatal(err)
		}
		return
	}
	names, err := filepath.Glob(filepath.Join(dir, "kept", "*", "*", "*-00000003-*"))
	if err != nil {
		t.Fatal(err)
	}
	own := store.Open(vfs.OS(), local.CheckpointDir(dir), rank)
	var done []os.FileInfo // what is kept are links to the rank's file
	for _, name := range append(names, own.File(3)) {
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(how, "overwritten") && slices.ContainsFunc(done, func(x os.FileInfo) bool { return os.SameFile(x, st) }) {
			continue
		}
		done = append(done, st)
		if how == "files deleted" {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
			continue
		}
		old, _ := os.ReadFile(own.File(2))
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if how == "stale file" { // a file of its own, under this name
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(name, spoil(how, data, old), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// damageTier damages what a tier has of a rank's checkpoint 3, or removes all.
func (m *matrix) damageTier(root string, x tier.Tier, ranks []int, how string) {
	t, ctx := m.t, m.t.Context()
	t.Helper()
	if how == "directory deleted" {
		if m.tier == "shared" {
			if err := os.RemoveAll(filepath.Join(root, "shared")); err != nil {
				t.Fatal(err)
			}
			return
		}
		if _, err := tier.RemoveRun(ctx, x, m.run); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, rank := range ranks {
		var old []byte
		for info, err := range x.List(ctx, fmt.Sprintf("%s/files/rank-%04d-00000002-", m.run, rank)) {
			if err == nil {
				old, err = tier.ReadAll(ctx, x, info.Name, 1<<30)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for info, err := range x.List(ctx, fmt.Sprintf("%s/files/rank-%04d-00000003-", m.run, rank)) {
			if err != nil {
				t.Fatal(err)
			}
			data, err := tier.ReadAll(ctx, x, info.Name, 1<<30)
			if err == nil {
				err = x.Remove(ctx, info.Name)
			}
			if err == nil && how != "files deleted" {
				err = x.Put(ctx, info.Name, tier.BytesSource(spoil(how, data, old)))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// restart decides what ranks restore, and brings the files to the hosts, as
// Supervisor.prepareLocal does.
func (m *matrix) restart(r *repairer) (index uint64, at, said []string, err error) {
	t := m.t
	t.Helper()
	l := newLocalRun(&rundir.Record{CheckpointDir: "/"})
	r.tellPeers()
	for range 100 {
		p := r.v.inventory()
		p.damaged, p.rotten, p.tiers, p.last = l.damaged, l.rotten, l.stored, r.rec.Last.Index
		l.found = p
		var dirs []string
		for _, h := range r.v.Hosts {
			dirs = append(dirs, h.Files.ID)
		}
		at = make([]string, len(dirs))
		for i, ranks := range p.place([]int{1, 1, 1, 1, 1, 1}, dirs) {
			for _, rank := range ranks {
				at[rank] = dirs[i]
			}
		}
		plan, err := p.plan(at)
		if l.stored == nil && (m.tier == "shared" || m.tier == "s3") && p.needsTiers(plan, err) {
			l.stored = []*tierStore{}
			kind := r.pol.Of(policy.Kind(m.tier))
			st := &tierStore{name: kind.Name(), kind: kind.Kind}
			x, terr := lookAt(t.Context(), kind, r.rec)
			if terr == nil {
				_, terr = readStore(t.Context(), x, m.run, st)
			}
			if terr == nil {
				l.stored = append(l.stored, st)
				continue
			}
			err = errors.Join(err, terr)
		}
		if err != nil {
			return 0, nil, said, err
		}
		if plan == nil {
			t.Fatal("the run would begin anew, although checkpoint 3 was complete")
		}
		items := p.fetches(plan, at)
		if len(items) == 0 { // ranks find what is damaged
			for rank, id := range at {
				items[id] = append(items[id], control.FetchItem{Rank: rank, Index: plan.Index, Attempt: plan.Attempt, Host: p.dirs[id].host})
			}
		}
		failed := 0
		for _, h := range r.v.Hosts {
			if len(items[h.Files.ID]) == 0 {
				continue
			}
			answer, err := ask[*control.Fetched](h, &control.Fetch{Run: m.run, Ranks: len(at), Items: items[h.Files.ID]})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range answer.Failed {
				failed++
				said = append(said, fmt.Sprintf("rank %d's file of checkpoint %d from %s: %s", f.Rank, f.Index, f.Host, f.Error))
				l.fetchFailed(&f)
			}
			if err := h.rescan(); err != nil {
				t.Fatal(err)
			}
		}
		if failed == 0 {
			if why := p.skipped(plan); why != "" {
				said = append(said, why)
			}
			return plan.Index, at, said, nil
		}
	}
	t.Fatal("it plans without end")
	return 0, nil, nil, nil
}

// try tries a cell. It returns what was restored; 0: it was refused.
func (m *matrix) try(c matrixCell, number int) uint64 {
	t := m.t
	t.Helper()
	root := filepath.Join(m.top, fmt.Sprint("cell", number))
	if out, err := exec.Command("cp", "-a", m.state(c.copied), root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer os.RemoveAll(root)
	if m.tier == "s3" {
		m.copyStore(m.state(c.copied), root)
	}
	var ranks []int
	hit := c.hosts(m.groups)
	for _, h := range hit {
		ranks = append(ranks, slices.Index(matrixHosts, h))
	}
	if c.target == "both" {
		pol, _ := policy.Parse(m.policyOf(root))
		x, err := helper.OpenTier(t.Context(), pol.Of(policy.Kind(m.tier)), matrixRun, vfs.Access{})
		if err != nil {
			t.Fatal(err)
		}
		m.damageTier(root, x, ranks, c.how)
	}
	for _, rank := range ranks {
		m.damageDisk(root, rank, c.how)
	}
	r := m.open(root)
	defer r.v.Close()
	index, at, said, err := m.restart(r)
	if want := c.expect(m.groups); index != want {
		t.Errorf("%v: restored checkpoint %d, want %d: %v\n%s", c, index, want, err, strings.Join(said, "\n"))
	}
	if err != nil {
		names := append(slices.Clone(hit), m.tier+"=")
		if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(err.Error(), name) }) {
			t.Errorf("%v: the error names neither a host nor a tier: %v", c, err)
		}
		return 0
	}
	for rank, id := range at {
		dir := local.CheckpointDir(m.dir(root, r.v.hostOf(id).Name))
		got := tiertest.Load(t, vfs.OS(), dir, index, rank)
		want := tiertest.Load(t, vfs.OS(), local.CheckpointDir(m.dir(filepath.Join(m.top, "base"), matrixHosts[rank])), index, rank)
		if !reflect.DeepEqual(got.Grid, want.Grid) || got.Name != want.Name {
			t.Errorf("%v: rank %d has other values", c, rank)
		}
	}
	return index
}

// TestTiers_Matrix tries every cell of the matrix with CAIRN_LONG=1, and else a
// few of each tier.
func TestTiers_Matrix(t *testing.T) {
	server := s3test.New()
	t.Cleanup(server.Close)
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.SecretKey, "AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "us-east-1"} {
		t.Setenv(name, value)
	}
	long := os.Getenv("CAIRN_LONG") == "1"
	for k, on := range matrixTiers {
		t.Run(on, func(t *testing.T) {
			m := &matrix{t: t, top: t.TempDir(), tier: on, run: store.NewID(), server: server}
			m.build()
			var cells []matrixCell
			targets := []string{"disks"}
			if on == "shared" || on == "s3" {
				targets = append(targets, "both")
			}
			for _, target := range targets {
				for _, how := range matrixWays {
					for _, where := range matrixWheres {
						for _, copied := range matrixTimes {
							cells = append(cells, matrixCell{on, target, how, where, copied})
						}
					}
				}
			}
			outcomes := make(map[uint64]int)
			for i, c := range cells {
				if long || i%36 == k || on == "partner" && c.how == "stale file" && i%12 == 2 {
					outcomes[m.try(c, i)]++
				}
			}
			t.Logf("%s: of %d cells, %d restored the newest checkpoint, %d the one before it, %d refused", on, outcomes[3]+outcomes[2]+outcomes[1]+outcomes[0], outcomes[3], outcomes[2], outcomes[0])
			if outcomes[1] > 0 {
				t.Errorf("%d restored the oldest checkpoint", outcomes[1])
			}
		})
	}
}
