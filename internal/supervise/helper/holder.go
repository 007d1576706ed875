//go:build linux

package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/kept"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/pack"
	"github.com/cairnrun/cairn/internal/tier/peer"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/tier/recovery"
	"github.com/cairnrun/cairn/internal/vfs"
)

// holder is a host's part in the tiers partner and rs: it copies checkpoints of
// the ranks here to other hosts, and holds those of others.
type holder struct {
	host    string // its name
	dir     *local.Dir
	store   *kept.Store
	service *peer.Service
	kind    policy.Kind // a tier that the policy has
	send    func(control.Message)
	code    copies.View // with Data and Parity alone
	trusted bool        // nobody but this user can have made what hosts keep

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	orders chan *control.Keep
	linked map[uint64][]recovery.Part // the newest checkpoint's
}

// maxOrders bounds the orders that wait. More are dropped: then a newer
// checkpoint is copied.
const maxOrders = 16

// newHolder opens what the host keeps, if the policy has a tier on hosts.
func newHolder(d *local.Dir, host string, secret []byte, p *policy.Policy, send func(control.Message)) (*holder, error) {
	rates := make(map[copies.Tier]int64)
	h := &holder{host: host, dir: d, send: send, done: make(chan struct{}), orders: make(chan *control.Keep, maxOrders)}
	for _, k := range []policy.Kind{policy.Partner, policy.RS} {
		if t := p.Of(k); t != nil {
			h.kind = k
			rates[copies.Tier(k)] = t.Rate
			if k == policy.RS {
				h.code.Data, h.code.Parity = t.Data, t.Parity
			}
		}
	}
	if len(rates) == 0 {
		return nil, nil
	}
	var err error
	if h.store, err = kept.Open(vfs.OS(), keptDir(d), d.Run); err != nil {
		return nil, err
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.service, err = peer.Serve(h.ctx, peer.Options{Self: host, Kept: h.store, Secret: secret, Rates: rates, Report: h.report, Trouble: h.trouble, Rotten: func(r kept.Rotten) {
		send(&control.Stored{Tier: string(h.kind), Error: fmt.Sprintf("%s on this host is damaged: %v", r.ID, r.Err)})
	}})
	if err != nil {
		h.cancel()
		return nil, err
	}
	go h.work()
	return h, nil
}

// keptDir is where a host keeps what tiers on hosts need.
func keptDir(d *local.Dir) string { return filepath.Join(d.Path, "kept") }

func (h *holder) close() {
	if h != nil {
		h.cancel()
		<-h.done
		h.service.Close()
	}
}

// addresses returns where other hosts can send copies.
func (h *holder) addresses() []string {
	if h == nil || h.service == nil { // for a command that only looks
		return nil
	}
	return h.service.Addresses()
}

// inventory returns what the host keeps, in JSON.
func (h *holder) inventory() ([]byte, error) {
	if h == nil {
		return nil, nil
	}
	return json.Marshal(h.store.Inventory())
}

// report tells the supervisor that all holders have a checkpoint.
func (h *holder) report(r copies.Report) {
	if r.Missing == 0 {
		h.send(&control.Stored{Tier: string(r.Tier), Index: r.Checkpoint.Index, Over: true})
	}
}

// trouble tells the supervisor that a holder could not store something.
func (h *holder) trouble(t copies.Trouble) {
	kind, what := h.kind, ""
	switch {
	case t.Tier != "":
		kind, what = policy.Kind(t.Tier), fmt.Sprintf("the part of rank %d of %s on ", t.Of.Rank, tier.Title(t.Of.Index))
	case t.ID.Data > 0:
		kind, what = policy.RS, t.ID.String()+" on "
	case t.ID.Object != "":
		kind, what = policy.Partner, t.ID.String()+" on "
	}
	h.send(&control.Stored{Tier: string(kind), Error: fmt.Sprintf("%s%s: %s", what, t.Peer, t.Why)})
}

// setPeers says who the other hosts are.
func (h *holder) setPeers(m *control.Peers) {
	if h == nil {
		return
	}
	view := h.code
	view.Holders = make(map[copies.Tier][]string)
	for t, list := range m.Holders {
		view.Holders[copies.Tier(t)] = list
	}
	var hosts []peer.Host
	for _, x := range m.Hosts {
		hosts = append(hosts, peer.Host(x))
	}
	h.service.SetPeers(hosts, view)
}

// retain removes what no tier keeps any more.
func (h *holder) retain(m *control.Retain) {
	if h == nil {
		return
	}
	out := make(map[copies.Tier][]recovery.Checkpoint)
	for t, list := range m.Tiers {
		out[copies.Tier(t)] = nil
		for _, c := range list {
			out[copies.Tier(t)] = append(out[copies.Tier(t)], recovery.Checkpoint(c))
		}
	}
	h.service.Retain(out)
}

// keep takes an order to copy a checkpoint to other hosts.
func (h *holder) keep(m *control.Keep) {
	if h == nil {
		return
	}
	select {
	case h.orders <- m:
	default:
		h.send(&control.Stored{Tier: m.Tier, Index: m.Index, Error: "older checkpoints have not been linked yet", Over: true})
	}
}

func (h *holder) work() {
	defer close(h.done)
	for {
		select {
		case <-h.ctx.Done():
			return
		case m := <-h.orders:
			parts, err := h.link(m)
			if err == nil {
				err = h.service.Keep(copies.Tier(m.Tier), parts)
			}
			if err != nil && h.ctx.Err() == nil {
				h.send(&control.Stored{Tier: m.Tier, Index: m.Index, Error: err.Error(), Over: true})
			}
		}
	}
}

// link keeps the files of ranks, and their packs.
func (h *holder) link(m *control.Keep) (parts []recovery.Part, err error) {
	if m.Attempt != "" {
		return h.keptParts(m)
	}
	if parts = h.linked[m.Index]; parts != nil { // for another tier
		return parts, nil
	}
	dir := local.CheckpointDir(h.dir.Path)
	file := func(rank int) string { return store.Open(vfs.OS(), dir, rank).File(m.Index) }
	if m.Index == tier.EndIndex {
		file = nil
	}
	err = h.dir.WithPacks(h.ctx, m.Index, m.Ranks, m.All, file, func(packs []pack.Pack) error {
		for i := range packs {
			more := kept.More{Absent: packs[i].Absent()}
			for _, o := range packs[i].Objects {
				more.Packs = append(more.Packs, kept.Pack{Name: o.Name, Path: o.Path})
			}
			p, err := h.linkPacks(dir, &packs[i], more)
			if err != nil {
				return err
			}
			parts = append(parts, p)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	h.linked = map[uint64][]recovery.Part{m.Index: parts}
	return parts, nil
}

// linkPacks keeps a rank's pack with its file of the checkpoint, if there is
// one.
func (h *holder) linkPacks(dir string, x *pack.Pack, more kept.More) (recovery.Part, error) {
	if x.Index.Index != tier.EndIndex {
		return h.store.Link(h.ctx, dir, x.Index.Index, x.Rank, more)
	}
	return h.store.LinkEnd(h.ctx, recovery.Part{Checkpoint: recovery.Checkpoint{Index: tier.EndIndex, Attempt: x.Attempt}, Rank: x.Rank, Ranks: x.Ranks, Time: time.Now().UnixNano()}, more)
}

// keptParts returns the parts that an order names, which are kept already.
func (h *holder) keptParts(m *control.Keep) (parts []recovery.Part, err error) {
	if h == nil {
		return nil, errors.New("this helper keeps nothing for tiers on hosts")
	}
	_, all := h.store.Have()
	for _, p := range all {
		if p.Index == m.Index && p.Attempt == m.Attempt && slices.Contains(m.Ranks, p.Rank) {
			parts = append(parts, p)
		}
	}
	if len(parts) < len(m.Ranks) {
		return nil, fmt.Errorf("this host keeps the parts of %d ranks of checkpoint %d, not of %d", len(parts), m.Index, len(m.Ranks))
	}
	return parts, nil
}

// holdKept puts the files of kept parts into the directory that they are
// uploaded from, and their packs where this host has its own packs.
func (h *holder) holdKept(ctx context.Context, tier string, m *control.Keep) (out []local.RankPacks, err error) {
	parts, err := h.keptParts(m)
	if err != nil {
		return nil, err
	}
	dir, err := h.dir.HoldIn(tier, m.Index)
	if err != nil {
		return nil, err
	}
	for i := range parts {
		if err := h.store.Place(ctx, dir, parts[i]); err != nil {
			return nil, err
		}
		packs, err := h.exportPacks(ctx, &parts[i])
		if err != nil {
			return nil, err
		}
		out = append(out, local.RankPacks{Rank: parts[i].Rank, Absent: parts[i].Absent, Objects: packs})
	}
	return out, nil
}

// keepShared keeps a rank's part of a checkpoint that is on a tier.
func (h *holder) keepShared(ctx context.Context, t tier.Tier, m *tier.Manifest, rank int) error {
	if h == nil {
		return errors.New("this helper keeps nothing for tiers on hosts")
	}
	if m.Origin != "" {
		return fmt.Errorf("checkpoint %d was copied from run %s: hosts keep the next one", m.Index, m.Origin)
	}
	p, err := local.PartOf(ctx, t, m, rank)
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, m.Time)
	if err != nil {
		return err
	}
	part := recovery.Part{Checkpoint: recovery.Checkpoint{Index: m.Index, Attempt: m.Attempt}, Rank: rank, Ranks: m.Ranks, Time: at.UnixNano()}
	if part.Absent, err = local.Absent(ctx, t, m, rank); err != nil {
		return err
	}
	get := func(name string, o tier.Object) error {
		part.Objects = append(part.Objects, recovery.Object{Name: name, Size: o.Size})
		id := copies.ID{Object: name}
		if h.store.Has(id) && h.store.Verify(ctx, id, nil) == nil {
			return nil
		}
		in, err := h.store.Receive(id, o.Size)
		if err == nil && in.Offset() > 0 { // of a host that was lost
			in.Discard()
			in, err = h.store.Receive(id, o.Size)
		}
		if err != nil {
			return err
		}
		if err := tier.Download(ctx, t, o, in); err != nil {
			in.Discard()
			return err
		}
		return in.Commit(ctx)
	}
	for _, r := range p.Ranks {
		for _, f := range r.Files {
			if r.Rank == rank && err == nil {
				err = get(kept.ObjectName(rank, f), f.Object)
			}
		}
	}
	for _, e := range local.PackOf(p, rank) {
		if err == nil {
			err = get(e.Path, e.Object)
		}
	}
	if err != nil {
		return err
	}
	return h.store.StorePart(part)
}

// scrub reads all that the host keeps, and calls found for what is damaged.
func (h *holder) scrub(ctx context.Context, found func(kept.Rotten)) error {
	if h.service == nil { // for a command that only looks
		return h.store.Scrub(ctx, found)
	}
	return h.service.Scrub(ctx, found)
}

// KeptItem says how a host gets a rank's part of a checkpoint from what hosts
// keep.
type KeptItem struct {
	Part    recovery.Part
	Fetches []recovery.Fetch // objects that the host does not have
	Stores  []string         // the hosts that Fetches name
}

// fetch gets a rank's part of a checkpoint, and publishes it. The rank's
// program will be started in workDir. note gets why files of a run that has
// finished were left out.
func (h *holder) fetch(ctx context.Context, workDir string, item *control.FetchItem, note func(string)) error {
	if h == nil {
		return errors.New("this helper keeps nothing for other hosts")
	}
	var x KeptItem
	if err := json.Unmarshal(item.Kept, &x); err != nil {
		return err
	}
	if err := h.service.Fetch(ctx, x.Stores, x.Fetches); err != nil {
		return err
	}
	if item.KeepOnly {
		return h.store.StorePart(x.Part)
	}
	files := local.ProgramFiles{Home: workDir, Outside: h.trusted}
	if item.End != nil {
		packs, err := h.exportPacks(ctx, &x.Part)
		if err != nil {
			return err
		}
		return h.dir.UnpackEnd(ctx, item.Attempt, item.Rank, x.Part.Ranks, item.End.Time, packs, files, note)
	}
	if err := h.dir.MakeCheckpoints(); err != nil {
		return err
	}
	if err := h.store.Place(ctx, local.CheckpointDir(h.dir.Path), x.Part); err != nil {
		return err
	}
	if err := h.dir.VerifyPart(ctx, item.Rank, item.Index, item.Attempt); err != nil {
		return err
	}
	if !item.Own {
		return nil
	}
	packs, err := h.exportPacks(ctx, &x.Part)
	if err != nil {
		return err
	}
	// What hosts keep was made by helpers of this user, in directories that
	// nobody else can change.
	return h.dir.Unpack(ctx, h.dir.Run, item.Attempt, item.Index, item.Rank, x.Part.Ranks, packs, item.Line, files)
}

// exportPacks puts the packs of a part where this host has its own.
func (h *holder) exportPacks(ctx context.Context, p *recovery.Part) (packs []pack.Object, err error) {
	for _, o := range p.Objects {
		if IsPack(o.Name) {
			path, err := h.dir.PackPath(o.Name)
			if err == nil {
				err = h.store.Export(ctx, o.Name, path)
			}
			if err != nil {
				return nil, err
			}
			packs = append(packs, pack.Object{Name: o.Name, Path: path, Size: o.Size})
		}
	}
	return packs, nil
}

// IsPack reports whether an object that hosts keep is a pack.
func IsPack(object string) bool { return strings.HasSuffix(object, ".pack") }

// keptFailure completes a failure to get something from what hosts keep: it
// says whose copy or shard is damaged, so that another one is used.
func (h *holder) keptFailure(f *control.FetchFailure, err error) {
	var far *peer.FetchError
	var here *kept.ObjectError
	switch {
	case errors.As(err, &far):
		f.Object, f.Hosts = far.Item.Object.Name, far.Damaged
	case errors.As(err, &here) && h != nil:
		f.Object, f.Hosts = here.ID.Object, []string{h.host}
	}
}
