package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/erasure"
	"github.com/cairnrun/cairn/internal/tier/kept"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

const (
	fetches    = 4 // objects that are fetched at a time
	fetchTries = 3 // connections that are made for one object
	blockSize  = 512 << 10
	maxBlocks  = 3        // of a shard, in memory
	slowDisk   = 20 << 20 // bytes per second that any disk reads
)

// FetchError says why an object could not be fetched. Damaged are the hosts
// whose copy or shard is damaged, or is not there.
type FetchError struct {
	Item    recovery.Fetch
	Damaged []string
	Err     error
}

func (e *FetchError) Error() string {
	return fmt.Sprintf("fetching %s for rank %d: %v", e.Item.Object.Name, e.Item.Rank, e.Err)
}

func (e *FetchError) Unwrap() error { return e.Err }

// Fetch brings objects to this host: as copies from other hosts, or rebuilt
// from shards. It checks every byte, also of those that are here already.
// stores are the names of the inventory's stores. The error joins a *FetchError
// for each object that Fetch could not get.
func (s *Service) Fetch(ctx context.Context, stores []string, items []recovery.Fetch) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	var mu sync.Mutex
	var errs []error
	var jobs []func(context.Context) error
	for _, item := range items {
		if item.To != s.o.Self {
			continue
		}
		jobs = append(jobs, func(ctx context.Context) error {
			damaged, err := s.fetch(ctx, stores, &item)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, &FetchError{item, damaged, err})
			}
			return nil // the others are fetched all the same
		})
	}
	err := tier.Parallel(ctx, fetches, jobs)
	return errors.Join(append(errs, err)...)
}

// fetch brings one object.
func (s *Service) fetch(ctx context.Context, stores []string, item *recovery.Fetch) (damaged []string, err error) {
	id := copies.ID{Object: item.Object.Name}
	if _, err := kept.FileSize(id, item.Object.Size); err != nil {
		return nil, err
	}
	if s.o.Kept.Has(id) {
		err := s.o.Kept.Verify(ctx, id, nil)
		if err == nil {
			return nil, nil
		}
		if !errors.Is(err, tier.ErrDamaged) {
			return nil, err
		}
		s.rotten(kept.Rotten{ID: id, Err: err})
	}
	var hosts []string
	for _, from := range item.From {
		if from.Store < 0 || from.Store >= len(stores) {
			return nil, fmt.Errorf("there is no store %d", from.Store)
		}
		hosts = append(hosts, stores[from.Store])
	}
	if item.Data == 0 {
		if len(hosts) != 1 {
			return nil, fmt.Errorf("a copy from %d hosts", len(hosts))
		}
		err = s.fetchCopy(ctx, hosts[0], id, item.Object.Size)
		damaged = damagedAt(hosts[0], err)
	} else {
		damaged, err = s.rebuild(ctx, hosts, id, item)
	}
	if err == nil {
		s.do(func() { s.written(id, nil) })
	}
	return damaged, err
}

// isDamage reports whether an error means that a host does not have what it is
// thought to have.
func isDamage(err error) bool {
	return errors.Is(err, tier.ErrDamaged) || errors.Is(err, erasure.ErrDamaged) || errors.Is(err, tier.ErrNotExist)
}

// damagedAt returns the host if the error means that its copy or shard is
// damaged.
func damagedAt(host string, err error) []string {
	if isDamage(err) {
		return []string{host}
	}
	return nil
}

// fetchCopy gets an object from a host. If the connection breaks, it continues.
func (s *Service) fetchCopy(ctx context.Context, host string, id copies.ID, size int64) error {
	g := &getter{s: s, ctx: ctx, host: host, id: id, size: size}
	defer g.close()
	var err error
	for range fetchTries {
		in, rerr := s.o.Kept.Receive(id, size)
		if rerr != nil {
			return rerr
		}
		local := false // the error is of this host's disk
		err = g.get(in.Offset(), in.Left(), func(p []byte) error {
			_, err := in.Write(p)
			local = err != nil
			return err
		})
		if err == nil {
			return in.Commit(ctx)
		}
		if local || isDamage(err) {
			in.Discard()
			return err
		}
		in.Pause()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}

// rebuild makes an object from shards.
func (s *Service) rebuild(ctx context.Context, hosts []string, id copies.ID, item *recovery.Fetch) (damaged []string, err error) {
	code := erasure.Code{Data: item.Data, Parity: item.Parity}
	shards := make([]io.ReaderAt, max(0, item.Data)+max(0, item.Parity))
	at := map[int]string{}
	for i, from := range item.From {
		x := copies.ID{Object: id.Object, Shard: from.Shard, Data: item.Data, Parity: item.Parity}
		n, err := kept.FileSize(x, item.Object.Size)
		if err != nil {
			return nil, err
		}
		at[from.Shard] = hosts[i]
		if hosts[i] == s.o.Self {
			if err := s.o.Kept.Verify(ctx, x, nil); err != nil {
				if errors.Is(err, tier.ErrDamaged) {
					s.rotten(kept.Rotten{ID: x, Err: err})
				}
				return damagedAt(hosts[i], err), err
			}
			f, _, err := s.o.Kept.OpenFile(x)
			if err != nil {
				return damagedAt(hosts[i], err), err
			}
			defer f.Close()
			shards[from.Shard] = f
			continue
		}
		g := &getter{s: s, ctx: ctx, host: hosts[i], id: x, size: n}
		defer g.close()
		shards[from.Shard] = &remoteFile{g: g}
	}
	digest, err := kept.DigestOf(id.Object)
	if err != nil {
		return nil, err
	}
	in, err := s.o.Kept.Receive(id, item.Object.Size)
	if err != nil {
		return nil, err
	}
	found, err := erasure.Rebuild(shards, code, erasure.Digest(digest), &skipWriter{in, in.Offset()})
	for _, d := range found {
		if isDamage(d.Err) {
			damaged = append(damaged, at[d.Shard])
		}
		err = errors.Join(err, fmt.Errorf("shard %d of %s: %w", d.Shard, at[d.Shard], d.Err))
	}
	if err != nil {
		in.Discard()
		return damaged, err
	}
	return nil, in.Commit(ctx)
}

// Recover brings an object to this host from any host that has a copy of it, or
// enough shards of a code, if data is not 0. It asks all hosts, and returns
// those that had it.
func (s *Service) Recover(ctx context.Context, o recovery.Object, data, parity int) (from []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	id := copies.ID{Object: o.Name}
	if _, err := kept.FileSize(id, o.Size); err != nil {
		return nil, err
	}
	s.mu.Lock()
	hosts := slices.Sorted(maps.Keys(s.hosts))
	s.mu.Unlock()
	var errs []error
	failed := func(err error) {
		if !isDamage(err) { // that a host does not have it is no news
			errs = append(errs, err)
		}
	}
	for _, h := range hosts {
		if err := s.fetchCopy(ctx, h, id, o.Size); err != nil {
			failed(err)
			continue
		}
		s.Restored(id)
		return []string{h}, nil
	}
	item := recovery.Fetch{To: s.o.Self, Object: o, Data: data, Parity: parity}
	for number := range data + parity {
		x := copies.ID{Object: o.Name, Shard: number, Data: data, Parity: parity}
		n, err := kept.FileSize(x, o.Size)
		if err != nil {
			return nil, err
		}
		for i, h := range append([]string{s.o.Self}, hosts...) {
			if len(item.From) == data {
				break
			}
			if i == 0 {
				if err = s.Verify(ctx, x, nil); err != nil {
					continue
				}
			} else {
				g := &getter{s: s, ctx: ctx, host: h, id: x, size: n}
				err = g.get(0, min(1, n), func([]byte) error { return nil })
				g.close()
				if err != nil {
					failed(err)
					continue
				}
			}
			item.From = append(item.From, recovery.Source{Store: i, Shard: number})
			from = append(from, h)
			break
		}
	}
	if data == 0 || len(item.From) < data {
		return nil, errors.Join(append(errs, errors.New("no other host has it"))...)
	}
	if _, err := s.rebuild(ctx, from, id, &item); err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	s.Restored(id)
	return slices.Compact(slices.Sorted(slices.Values(from))), nil
}

// skipWriter passes bytes on, but not the first ones.
type skipWriter struct {
	w    io.Writer
	skip int64
}

func (w *skipWriter) Write(p []byte) (int, error) {
	skip := min(w.skip, int64(len(p)))
	w.skip -= skip
	if int(skip) == len(p) {
		return len(p), nil
	}
	n, err := w.w.Write(p[skip:])
	return n + int(skip), err
}

// getter asks a host for bytes of an object. It connects when it has to.
type getter struct {
	s    *Service
	ctx  context.Context
	host string
	id   copies.ID
	size int64    // of the copy or the shard
	conn net.Conn // nil: not connected
	c    *control.Conn
	buf  tier.Chunk
	stop func() bool
}

func (g *getter) close() {
	if g.conn != nil {
		g.stop()
		g.conn.Close()
		g.conn = nil
	}
}

func (g *getter) connect() (err error) {
	if g.conn != nil {
		return nil
	}
	g.s.mu.Lock()
	r := g.s.hosts[g.host]
	g.s.mu.Unlock()
	if r == nil {
		return fmt.Errorf("host %s is not there", g.host)
	}
	if g.conn, g.c, err = control.Dial(g.ctx, r.addresses, g.s.secret, nil); err != nil {
		g.conn = nil
		return fmt.Errorf("host %s: %w", g.host, err)
	}
	if g.s.o.wrap != nil {
		g.conn = g.s.o.wrap(g.host, g.conn)
		g.c = control.New(g.conn)
	}
	g.c.SetLimit(maxMessage)
	conn := g.conn
	g.stop = context.AfterFunc(g.ctx, func() { conn.Close() })
	return nil
}

// get passes n bytes of the object from an offset on to f. If that fails, it
// may have passed some. The connection is closed then.
func (g *getter) get(offset, n int64, f func([]byte) error) (err error) {
	if n == 0 {
		return nil
	}
	if err := g.connect(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			g.close()
			err = fmt.Errorf("host %s: %w", g.host, err)
		}
	}()
	// Before the first bytes come, the host reads those before the offset, or
	// all of a shard, to check them.
	conn, patience := g.conn, idleTime+time.Duration(g.size/slowDisk)*time.Second
	deadline := func() {
		conn.SetDeadline(time.Now().Add(patience))
	}
	deadline()
	if err := g.c.Send(&control.GetObject{Object: g.id.Object, Shard: g.id.Shard, Data: g.id.Data, Parity: g.id.Parity, Offset: offset, Bytes: n}); err != nil {
		return err
	}
	for n > 0 {
		deadline()
		m, err := g.c.Recv()
		if err != nil {
			return err
		}
		patience = idleTime
		head, ok := m.(*control.PeerBytes)
		switch {
		case !ok:
			return fmt.Errorf("%w: %s answers %s", control.ErrMalformed, m.Kind(), (*control.GetObject)(nil).Kind())
		case head.Damaged:
			return fmt.Errorf("%w: %s", tier.ErrDamaged, head.Error)
		case head.Error != "":
			return errors.New(head.Error)
		case int64(head.Bytes) > n:
			return fmt.Errorf("%w: %d bytes, and %d are missing", tier.ErrAltered, head.Bytes, n)
		}
		if len(g.buf.Data()) < head.Bytes {
			g.buf = tier.NewChunk(int64(head.Bytes))
		}
		deadline()
		data, err := g.buf.Receive(g.conn, int64(head.Bytes))
		if err != nil {
			return err
		}
		if err := f(data); err != nil {
			return err
		}
		n -= int64(len(data))
	}
	return nil
}

// remoteFile reads a shard of another host in blocks, and keeps the last few.
type remoteFile struct {
	g *getter

	mu     sync.Mutex
	blocks []block // the newest last
}

type block struct {
	at   int64
	data []byte
}

func (r *remoteFile) ReadAt(p []byte, off int64) (done int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for done < len(p) {
		at := off + int64(done)
		if at >= r.g.size {
			return done, io.EOF
		}
		data, err := r.block(at / blockSize * blockSize)
		if err != nil {
			return done, err
		}
		done += copy(p[done:], data[at%blockSize:])
	}
	return done, nil
}

// block returns a block of the shard.
func (r *remoteFile) block(at int64) ([]byte, error) {
	for _, b := range r.blocks {
		if b.at == at {
			return b.data, nil
		}
	}
	data := make([]byte, 0, min(blockSize, r.g.size-at))
	if len(r.blocks) == maxBlocks {
		data = r.blocks[0].data[:0]
		r.blocks = append(r.blocks[:0], r.blocks[1:]...)
	}
	var err error
	for range fetchTries {
		data = data[:0]
		err = r.g.get(at, min(blockSize, r.g.size-at), func(p []byte) error {
			data = append(data, p...)
			return nil
		})
		if err == nil {
			r.blocks = append(r.blocks, block{at, data})
			return data, nil
		}
		if isDamage(err) || r.g.ctx.Err() != nil {
			break
		}
	}
	return nil, err
}
