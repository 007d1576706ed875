//go:build linux

package helper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/kept"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/vfs"
)

// localFiles is the directory of the run on this host, and its server for other
// helpers.
type localFiles struct {
	*local.Dir
	server     *local.Server
	secret     []byte
	supervisor string
	readOnly   bool                 // for a command that only looks
	uploaders  map[string]*uploader // by tier
	holder     *holder              // nil: there is no tier on hosts
	scrubber   *scrubber            // nil: nothing is read again
	lead       *os.File             // locked: of several helpers on this host, this one works for others
	requests   chan control.Message
	done       chan struct{} // closed when all requests are done
}

// maxRequests bounds the requests of a supervisor that wait.
const maxRequests = 1024

// fetches is how many items a helper gets at a time.
const fetches = 4

// setupLocal sets up the directory of the run on this host: it locks the host,
// and begins to serve other helpers. If helpers of another supervisor still run
// here, the error wraps ErrBusy and holder names one.
func (h *helper) setupLocal(name string, m *control.LocalDir) (holder string, err error) {
	release, err := local.Make(m.Dir, vfs.AccessFromEnv().With(m.Group, m.AnyOwner))
	if err != nil {
		return "", err
	}
	defer release()
	if holder, err := otherHelper(m.Dir, m.Supervisor); err != nil {
		return holder, err
	}
	lock, holder, err := lockHost(m.Dir, name)
	if err != nil {
		return holder, err
	}
	l := &localFiles{supervisor: m.Supervisor, secret: m.Secret, requests: make(chan control.Message, maxRequests), done: make(chan struct{})}
	if l.secret == nil && h.secret != nil {
		l.secret = control.Derive(h.secret, "files")
	}
	if l.Dir, err = local.Claim(m.Dir, m.Run, m.Replaces); err == nil {
		l.server, err = l.Dir.Serve(l.secret)
	}
	if err != nil {
		lock.Close()
		return "", err
	}
	if holder, err := l.openTiers(name, m, h.up.Send); err != nil {
		lock.Close()
		l.server.Close()
		return holder, err
	}
	go l.work(h.up)
	h.name, h.dir, h.lock, h.local = name, m.Dir, lock, l
	return "", nil
}

// otherRun returns the run whose files are in a host's directory, so that this
// run cannot use it, and the newest start of that run, if it is known. "": err
// has another cause.
func otherRun(m *control.LocalDir, err error) (run string, a *control.AttemptRecord) {
	var other *local.OtherRunError
	if !errors.As(err, &other) {
		return "", nil
	}
	if d, err := local.Open(m.Dir); err == nil {
		if a, err = d.Attempt(); err == nil && a != nil && a.Run == other.Run {
			return other.Run, a
		}
	}
	return other.Run, nil
}

// setupReader lets the supervisor, here a command, look at the directory of the
// run on this host.
func (h *helper) setupReader(name string, m *control.LocalDir) error {
	dir, err := local.Open(m.Dir)
	if err != nil {
		return err
	}
	if dir.Run != m.Run {
		return fmt.Errorf("%s has the files of another run (%s)", m.Dir, dir.Run)
	}
	looked, err := kept.Look(vfs.OS(), keptDir(dir), dir.Run)
	if err != nil {
		return err
	}
	h.name, h.dir = name, m.Dir
	h.local = &localFiles{Dir: dir, readOnly: true, holder: &holder{store: looked}, requests: make(chan control.Message, maxRequests), done: make(chan struct{})}
	go h.local.work(h.up)
	return nil
}

// otherHelper looks for helpers of another supervisor on this host. It ends the
// ranks of those that died. The caller has locked the setup, so that no other
// helper begins.
func otherHelper(dir, supervisor string) (holder string, err error) {
	names, err := filepath.Glob(filepath.Join(vfs.QuoteGlob(filepath.Dir(rundir.HostLock(dir, ""))), "*.lock"))
	if err != nil {
		return "", err
	}
	for _, name := range names {
		f, holder, err := rundir.TryLock(name)
		switch {
		case err == nil:
			endLeftOver(f)
			f.Close()
		case errors.Is(err, rundir.ErrBusy):
			var who rundir.Holder
			if text, rerr := os.ReadFile(name); rerr != nil || json.Unmarshal(text, &who) != nil || who.Supervisor != supervisor {
				return holder, busyHost{fmt.Errorf("%s: a helper of an earlier start is there: %s; it ends by itself when its ranks have saved and stopped", name, holder)}
			}
		default:
			return "", err
		}
	}
	return "", nil
}

// close ends the server, when all requests are done.
func (l *localFiles) close() {
	if l != nil {
		close(l.requests)
		<-l.done
		l.endUploads()
		if l.server != nil {
			l.server.Close()
		}
		if l.lead != nil {
			l.lead.Close()
		}
	}
}

// leads makes this helper the one of its directory that works for others, if
// none is yet. A launcher starts several on a host, and a host may have two
// names. If the one of an earlier start is still there, the error wraps ErrBusy
// and holder names it.
func (l *localFiles) leads(m *control.LocalDir) (holder string, err error) {
	name := filepath.Join(m.Dir, "hosts", "tiers")
	lock, holder, err := rundir.TryLock(name)
	if err == nil {
		if err = rundir.RecordProcesses(lock, m.Supervisor, m.Launch, nil); err != nil {
			lock.Close()
			return "", err
		}
		l.lead = lock
		return "", nil
	}
	if !errors.Is(err, rundir.ErrBusy) {
		return "", err
	}
	var who rundir.Holder
	if text, rerr := os.ReadFile(name); rerr == nil && json.Unmarshal(text, &who) == nil && who.Supervisor == m.Supervisor && who.Launch == m.Launch {
		return "", nil
	}
	return holder, busyHost{fmt.Errorf("%s: a helper of an earlier start is there: %s", name, holder)}
}

// openTiers prepares uploads to the tiers that a policy names. It opens none: a
// tier may be out of order, and the run starts nevertheless. Errors are as
// those of leads.
func (l *localFiles) openTiers(host string, m *control.LocalDir, send func(control.Message)) (holder string, err error) {
	if m.Policy == "" {
		return "", nil
	}
	p, err := policy.Parse(m.Policy)
	if err != nil {
		return "", err
	}
	for _, v := range m.Env {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return "", err
		}
	}
	if holder, err := l.leads(m); err != nil {
		return holder, err
	}
	access := vfs.AccessFromEnv().With(m.Group, m.AnyOwner)
	if l.lead != nil {
		if l.holder, err = newHolder(l.Dir, cmp.Or(m.Peer, host), l.secret, p, send); err != nil {
			l.lead.Close()
			return "", err
		}
	}
	if l.holder != nil {
		l.holder.trusted = !access.AnyOwner
	}
	l.uploaders = make(map[string]*uploader)
	for _, t := range p.Outer() {
		name := string(t.Kind)
		open := Opener(t, m.Name, access)
		marked := func(ctx context.Context) (tier.Tier, error) { return open(ctx, true) } // the supervisor has marked it
		l.uploaders[name] = newUploader(name, l.Dir, marked, send)
		l.uploaders[name].holder, l.uploaders[name].files = l.holder, t.Files
		l.uploaders[name].trusted = t.Key != "" || t.Kind == policy.Shared && !access.AnyOwner
	}
	if p.Scrub > 0 {
		l.scrubber = newScrubber(l, cmp.Or(m.Peer, host), p, send)
		l.scrubber.leads = func() bool { // the first helper may have ended
			if l.lead == nil {
				l.leads(m)
			}
			return l.lead != nil
		}
	}
	return "", nil
}

// scrub begins to read old checkpoints again. It does when ranks are started: a
// command that repairs a run reads everything by itself.
func (l *localFiles) scrub() {
	if l.scrubber != nil {
		l.scrubber.begin.Do(func() { go l.scrubber.work() })
	}
}

// endUploads ends all uploads and copies.
func (l *localFiles) endUploads() {
	l.scrubber.close()
	if !l.readOnly {
		l.holder.close()
	}
	l.holder = nil
	for _, u := range l.uploaders {
		u.close()
	}
}

// addresses returns where other helpers get files.
func (l *localFiles) addresses() []string {
	if l.server == nil {
		return nil
	}
	return l.server.Addresses()
}

// work answers the supervisor's requests about files, one after the other.
func (l *localFiles) work(up *control.SendQueue) {
	defer close(l.done)
	for m := range l.requests {
		switch m := m.(type) {
		case *control.ListFiles:
			files, err := l.List(m.Rank, m.Ranks, m.Index)
			up.Send(&control.FileList{Files: files, Error: textOf(err)})
		case *control.VerifyPart:
			up.Send(l.verify(m))
		case *control.Scan:
			files, err := l.scan()
			up.Send(&control.Scanned{Files: files, Error: textOf(err)})
		case *control.Fetch:
			up.Send(l.fetch(m))
		case *control.StoreAttempt:
			err := errReadOnly
			if !l.readOnly {
				err = l.SetAttempt(&m.AttemptRecord)
			}
			up.Send(&control.AttemptStored{Error: textOf(err)})
		case *control.ReadFile:
			answer := new(control.FileData)
			var err error
			if m.Sum {
				answer.Sum, answer.Size, err = l.Sum(m.Path)
			} else {
				answer.Data, answer.Size, err = l.Read(m.Path, m.Offset, control.MaxFileData)
			}
			answer.Error = textOf(err)
			up.Send(answer)
		case *control.Keep:
			if k := policy.Kind(m.Tier); k.OnHosts() {
				l.holder.keep(m)
			} else {
				l.uploaders[m.Tier].keep(m)
			}
		case *control.Peers:
			l.holder.setPeers(m)
		case *control.Retain:
			l.holder.retain(m)
		case *control.Discard:
			up.Send(&control.Discarded{Error: textOf(l.discard(m))})
		}
	}
}

func (l *localFiles) verify(m *control.VerifyPart) *control.PartVerified {
	answer := new(control.PartVerified)
	if m.Kept {
		if l.holder != nil {
			ids, _ := l.holder.store.Have()
			answer.Checked = len(ids)
			answer.Error = textOf(l.holder.scrub(context.Background(), func(r kept.Rotten) {
				answer.Damage = append(answer.Damage, control.BlockDamage{Block: r.ID.String(), Reason: r.Err.Error()})
			}))
		}
		return answer
	}
	found, err := l.Damage(context.Background(), m.Rank, m.Index)
	for _, d := range found {
		answer.Damage = append(answer.Damage, control.BlockDamage{Block: d.Name, Reason: d.Err.Error()})
	}
	answer.Error, answer.Corrupt = textOf(err), errors.Is(err, ckpt.ErrCorrupt)
	return answer
}

func (l *localFiles) discard(m *control.Discard) error {
	if l.readOnly {
		return errReadOnly
	}
	if m.All && m.End && l.holder != nil {
		store := l.holder.store
		l.endUploads()
		if err := store.RetainEnd(); err != nil {
			return err
		}
		return l.DiscardButEnd()
	}
	if m.All {
		l.endUploads()
		return l.DiscardAll()
	}
	return l.Discard(m.Ranks, m.Keep)
}

// scan returns what the host has.
func (l *localFiles) scan() (*control.HostFiles, error) {
	files, err := l.Scan()
	if err == nil {
		files.Kept, err = l.holder.inventory()
	}
	return files, err
}

// errReadOnly is the answer to an order that a helper which only reads cannot
// carry out.
var errReadOnly = errors.New("this helper changes nothing")

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// fetch gets what ranks need from other hosts, some items at a time.
func (l *localFiles) fetch(m *control.Fetch) *control.Fetched {
	answer := new(control.Fetched)
	if l.readOnly {
		for _, item := range m.Items {
			answer.Failed = append(answer.Failed, control.FetchFailure{Rank: item.Rank, Index: item.Index, Host: item.Host, Error: errReadOnly.Error()})
		}
		return answer
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	room := make(chan struct{}, fetches)
	for _, item := range m.Items {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			note := func(why string) {
				mu.Lock()
				defer mu.Unlock()
				answer.Notes = append(answer.Notes, why)
			}
			if err := l.fetchItem(m, &item, note); err != nil {
				mu.Lock()
				defer mu.Unlock()
				f := control.FetchFailure{Rank: item.Rank, Index: item.Index, Host: item.Host, Damaged: errors.Is(err, local.ErrDamaged), Error: err.Error()}
				l.holder.keptFailure(&f, err)
				answer.Failed = append(answer.Failed, f)
			}
		})
	}
	wg.Wait()
	return answer
}

func (l *localFiles) fetchItem(m *control.Fetch, item *control.FetchItem, note func(string)) error {
	ctx := context.Background()
	if len(item.Kept) > 0 {
		return l.holder.fetch(ctx, m.WorkDir, item, note)
	}
	if item.Tier != "" {
		return l.fetchTier(ctx, m.WorkDir, item, note)
	}
	if len(item.Addresses) == 0 { // it is here
		return l.VerifyPart(ctx, item.Rank, item.Index, item.Attempt)
	}
	c, err := local.Dial(ctx, item.Addresses, l.secret)
	if err != nil {
		return err
	}
	defer c.Close()
	if item.Index > 0 {
		if err := l.FetchPart(ctx, c, item.Rank, m.Ranks, item.Index, item.Attempt); err != nil {
			return err
		}
	}
	if item.Own {
		return l.FetchOwn(c, item.Rank, m.Ranks, !item.Moved)
	}
	return nil
}
