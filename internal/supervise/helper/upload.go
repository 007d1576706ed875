//go:build linux

package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/journal"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/dir"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/tier/s3"
	"github.com/cairnrun/cairn/internal/tier/seal"
	"github.com/cairnrun/cairn/internal/vfs"
)

// OpenTier opens a shared or s3 tier for the run with this name.
func OpenTier(ctx context.Context, p *policy.Tier, name string, a vfs.Access) (tier.Tier, error) {
	return openTier(ctx, p, name, a, watchShared(p, name))
}

// sharedTime is how long a shared directory may do nothing before an operation
// fails. A server that starts again may take minutes.
const sharedTime = 5 * time.Minute

// watchShared returns a watch of a shared directory.
func watchShared(p *policy.Tier, name string) *tier.Watch {
	return tier.NewWatch(p.RunDir(name), sharedTime)
}

// openWatched opens a shared directory.
func openWatched(w *tier.Watch, open func() (tier.Tier, error)) (tier.Tier, error) {
	var t tier.Tier
	if err := w.Do(func() (err error) {
		t, err = open()
		return err
	}); err != nil {
		return nil, err
	}
	return w.Tier(t), nil
}

func openTier(ctx context.Context, p *policy.Tier, name string, a vfs.Access, w *tier.Watch) (t tier.Tier, err error) {
	switch p.Kind {
	case policy.Shared:
		t, err = openWatched(w, func() (tier.Tier, error) { return OpenShared(p.RunDir(name), a) })
	case policy.S3:
		t, err = s3.Open(ctx, s3.Options{URL: p.RunDir(name)})
	default:
		err = fmt.Errorf("%s is a tier on hosts", p)
	}
	if err != nil {
		return nil, err
	}
	return wrapped(t, p)
}

// wrapped returns a tier with the encryption and the rate of a policy.
func wrapped(t tier.Tier, p *policy.Tier) (_ tier.Tier, err error) {
	if p.Key != "" {
		if t, err = sealed(t, p); err != nil {
			return nil, err
		}
	}
	if p.Rate > 0 {
		t = tier.Limit(t, tier.NewLimiter(p.Rate))
	}
	return t, nil
}

// marker is an object on a shared tier that is there from its first use on. If
// it is missing, another directory is in the place of the tier: mostly, its
// file system is not mounted.
const marker = "marker"

// ErrUnmarked says that a tier that was used before has no marker.
var ErrUnmarked = errors.New("what this run had there is missing")

func unmarked(p *policy.Tier, name string) error {
	return fmt.Errorf("%s: %w: its file system may not be mounted here. Mount it; if what it had is lost for good, let 'cairn repair --replace %s' begin it anew", p.RunDir(name), ErrUnmarked, p.Kind)
}

// OpenMarked opens a shared or s3 tier that the run has used before. A shared
// directory must have the marker that Mark has put there. Without it, its file
// system is probably not mounted: OpenMarked returns ErrUnmarked, and creates
// nothing.
func OpenMarked(ctx context.Context, p *policy.Tier, name string, a vfs.Access) (tier.Tier, error) {
	return openMarked(ctx, p, name, a, watchShared(p, name))
}

func openMarked(ctx context.Context, p *policy.Tier, name string, a vfs.Access, w *tier.Watch) (tier.Tier, error) {
	if p.Kind != policy.Shared {
		return openTier(ctx, p, name, a, w)
	}
	t, err := openWatched(w, func() (tier.Tier, error) { return openExisting(p.RunDir(name), a) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unmarked(p, name)
	}
	if err == nil {
		t, err = wrapped(t, p)
	}
	if err != nil {
		return nil, err
	}
	if _, err := t.Stat(ctx, marker); errors.Is(err, tier.ErrNotExist) {
		return nil, unmarked(p, name)
	} else if err != nil {
		return nil, err
	}
	return t, nil
}

// openExisting opens a directory that must exist.
func openExisting(path string, a vfs.Access) (tier.Tier, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return dir.OpenExisting(vfs.OS(), path, a)
}

// Mark puts the marker on a shared tier.
func Mark(ctx context.Context, p *policy.Tier, t tier.Tier) error {
	if p.Kind != policy.Shared {
		return nil
	}
	return t.Create(ctx, marker, []byte("{}\n"))
}

// LookAtTier opens a tier outside of the hosts for reading. It changes nothing
// there.
func LookAtTier(ctx context.Context, p *policy.Tier, name string, a vfs.Access) (t tier.Tier, err error) {
	if p.Kind == policy.S3 {
		t, err = s3.Open(ctx, s3.Options{URL: p.RunDir(name), ReadOnly: true})
	} else {
		t, err = openWatched(watchShared(p, name), func() (tier.Tier, error) { return openExisting(p.RunDir(name), a) })
	}
	if err == nil && p.Key != "" {
		t, err = sealed(t, p)
	}
	return t, err
}

// sealed returns a tier that encrypts with the key of a policy.
func sealed(t tier.Tier, p *policy.Tier) (tier.Tier, error) {
	key, err := seal.ReadKey(p.Key)
	if err != nil {
		return nil, err
	}
	return seal.New(t, key), nil
}

// Opener returns a function that opens a tier; used says that this run has used
// it before. A store is opened once, a directory each time: its file system may
// not be mounted any more.
func Opener(p *policy.Tier, name string, a vfs.Access) func(ctx context.Context, used bool) (tier.Tier, error) {
	var mu sync.Mutex
	var open tier.Tier
	w := watchShared(p, name)
	return func(ctx context.Context, used bool) (t tier.Tier, err error) {
		mu.Lock()
		defer mu.Unlock()
		if open != nil {
			return open, nil
		}
		if used {
			t, err = openMarked(ctx, p, name, a, w)
		} else if t, err = openTier(ctx, p, name, a, w); err == nil {
			err = Mark(ctx, p, t)
		}
		if err == nil && p.Kind != policy.Shared {
			open = t
		}
		return t, err
	}
}

// OpenShared opens the directory of a run on the shared tier. It creates this
// directory and its parent if they are missing, but nothing above them: if more
// is missing, a file system may not be mounted.
func OpenShared(path string, a vfs.Access) (tier.Tier, error) {
	if err := vfs.OS().Mkdir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: is its file system mounted on this host?", err)
		}
		return nil, err
	}
	return dir.Open(vfs.OS(), path, a)
}

// An upload that failed is tried again after FirstPause. Each further pause is
// twice as long as the one before, up to LastPause.
const (
	FirstPause = time.Second
	LastPause  = 5 * time.Minute
)

// uploadEndTime is how long the end of a helper waits for an upload to stop. A
// file system may hang.
const uploadEndTime = 5 * time.Second

// uploader uploads checkpoints to a tier in the background, one at a time. At
// most one more waits: the newest.
type uploader struct {
	tier string // its kind
	// trusted says that nobody but this user can have made what is on the tier.
	trusted bool
	holder  *holder // of the tiers on hosts; nil: there is none
	files   int     // as in tier.UploadOptions
	dir     *local.Dir
	open    func(context.Context) (tier.Tier, error)
	send    func(control.Message)
	first   time.Duration // the first pause after a failure

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{} // has an element if next was set
	turn   chan struct{} // has an element if the supervisor has given a turn

	mu   sync.Mutex
	now  *control.Keep // it is being uploaded
	next *control.Keep // it waits
}

func newUploader(tier string, d *local.Dir, open func(context.Context) (tier.Tier, error), send func(control.Message)) *uploader {
	u := &uploader{tier: tier, dir: d, open: open, send: send, first: FirstPause, done: make(chan struct{}), wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	go u.work()
	return u
}

// close ends uploads. It waits for them, but not for a file system that hangs.
func (u *uploader) close() {
	if u == nil {
		return
	}
	u.cancel()
	select {
	case <-u.done:
	case <-time.After(uploadEndTime):
	}
}

// keep takes an order. It makes links to the files at once, before ranks may
// remove them. One goroutine calls it.
func (u *uploader) keep(m *control.Keep) {
	if u == nil || u.ctx.Err() != nil || u.has(m.Index) {
		return
	}
	if m.Attempt != "" || m.Index == tier.EndIndex { // what is kept stays, and nothing changes after the end
	} else if err := u.dir.Hold(u.tier, m.Index, m.Ranks); err != nil {
		u.send(&control.Stored{Tier: u.tier, Index: m.Index, Error: err.Error(), Over: true})
		return
	}
	u.mu.Lock()
	old := u.next
	u.next = m
	u.mu.Unlock()
	if old != nil {
		u.dir.Release(u.tier, old.Index)
	}
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// has reports whether there is an order for a checkpoint already.
func (u *uploader) has(index uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.now != nil && u.now.Index == index || u.next != nil && u.next.Index == index
}

// waits reports whether an order waits.
func (u *uploader) waits() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.next != nil
}

// take returns the order that waits, or nil.
func (u *uploader) take() *control.Keep {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now, u.next = u.next, nil
	return u.now
}

func (u *uploader) work() {
	defer close(u.done)
	for {
		m := u.take()
		if m == nil {
			select {
			case <-u.wake:
			case <-u.ctx.Done():
				return
			}
			continue
		}
		u.upload(m)
		u.dir.Release(u.tier, m.Index)
	}
}

// upload uploads a checkpoint, and tries again until it succeeds or there is a
// newer order.
func (u *uploader) upload(m *control.Keep) {
	for pause := u.first; ; pause = min(2*pause, LastPause) {
		if m.Turns && !u.awaitTurn() {
			return
		}
		step.At("upload.begin")
		up, err := u.try(m)
		step.At("upload.end")
		if m.Turns {
			u.send(&control.Turn{Tier: u.tier, Over: true})
		}
		if u.ctx.Err() != nil {
			return
		}
		if err == nil {
			text, err := json.Marshal(&up)
			u.send(&control.Stored{Tier: u.tier, Index: m.Index, Part: text, Error: textOf(err), Over: true})
			return
		}
		over := errors.Is(err, tier.ErrAbandoned) || errors.Is(err, ckpt.ErrCorrupt) || errors.Is(err, journal.ErrPassed)
		u.send(&control.Stored{Tier: u.tier, Index: m.Index, Error: err.Error(), Over: over})
		if over {
			return
		}
		if !u.pause(pause) {
			return
		}
	}
}

// awaitTurn waits until this host may write to the tier. It reports false if
// there is a newer order then, or at the end.
func (u *uploader) awaitTurn() bool {
	u.send(&control.Turn{Tier: u.tier})
	step.At("upload.turn")
	select {
	case <-u.turn:
	case <-u.ctx.Done():
		return false
	}
	if u.waits() {
		u.send(&control.Turn{Tier: u.tier, Over: true})
		return false
	}
	return true
}

// begins takes a turn that the supervisor gives.
func (u *uploader) begins() {
	if u == nil {
		return
	}
	select {
	case u.turn <- struct{}{}:
	default:
	}
}

// pause waits before the next try. It reports false if there is a newer order,
// or at the end.
func (u *uploader) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for !u.waits() {
		select {
		case <-t.C:
			return true
		case <-u.wake: // it may be that of an order that was taken
		case <-u.ctx.Done():
			return false
		}
	}
	return false
}

func (u *uploader) try(m *control.Keep) (tier.Uploaded, error) {
	t, err := u.open(u.ctx)
	if err != nil {
		return tier.Uploaded{}, err
	}
	if m.Index == tier.EndIndex {
		return u.dir.UploadEnd(u.ctx, t, m.Ranks, m.All)
	}
	if m.Attempt == "" {
		return u.dir.Upload(u.ctx, t, u.tier, m.Index, m.Ranks, m.All, u.files)
	}
	packs, err := u.holder.holdKept(u.ctx, u.tier, m)
	if err != nil {
		return tier.Uploaded{}, err
	}
	return u.dir.UploadKept(u.ctx, t, u.tier, m.Index, packs, u.files)
}

// fetchTier gets a rank's files from a tier. note gets why some were left out.
func (l *localFiles) fetchTier(ctx context.Context, workDir string, item *control.FetchItem, note func(string)) error {
	u := l.uploaders[item.Tier]
	if u == nil {
		return fmt.Errorf("this helper knows no tier %s", item.Tier)
	}
	m := new(tier.Manifest)
	if err := json.Unmarshal(item.Manifest, m); err != nil {
		return err
	}
	t, err := u.open(ctx)
	if err != nil {
		return err
	}
	if item.KeepOnly {
		return l.holder.keepShared(ctx, t, m, item.Rank)
	}
	if item.End != nil {
		return l.FetchEnd(ctx, t, m, item.Rank, local.ProgramFiles{Home: workDir, Outside: u.trusted}, note)
	}
	return l.FetchShared(ctx, t, m, item.Rank, item.Own, item.Line, local.ProgramFiles{Home: workDir, Outside: u.trusted})
}
