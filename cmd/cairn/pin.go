package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
)

func pinCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pin [--name NAME] CHECKPOINT | --remove NAME [DIR]",
		Short: "keep a checkpoint, under a name",
		Long: `Keeps a checkpoint that the run would remove some time: when it has newer ones,
with --disk-limit, and when it has finished. The pinned checkpoint is in
DIR/pinned/NAME, as a checkpoint directory of its own: its files are hard links,
which need no space as long as the run has the checkpoint, too. All commands accept
it as a CHECKPOINT, and 'cairn run --from DIR/pinned/NAME' resumes a copy of it.
'cairn list' shows the pinned checkpoints of a directory.

If the run has tiers outside of its hosts (cairn run --tiers), each of them that has
the checkpoint keeps it, and 'cairn run --from PLACE@NAME' resumes it there. Neither
keep=N nor 'cairn gc' nor the end of the run removes it. If only the hosts' disks
have it (--local), the command copies it into RUN/pinned/NAME, because a host's disk
may be lost.

Without --name, the name is that of the checkpoint, such as ckpt-00000012. With
--remove, the command removes a pinned checkpoint.`,
		Example: `  cairn pin --name best sim.cairn@12       # keep checkpoint 12
  cairn inspect sim.cairn/ckpt/pinned/best
  cairn pin --remove best sim.cairn
  cairn run --from s3://bucket/run@best ./sim   # what is pinned on an object store`,
		Args:              takes(0, 1),
		ValidArgsFunction: c.completeCheckpoints,
	}
	f := cmd.Flags()
	name := f.String("name", "", "keep it as `NAME`")
	remove := f.String("remove", "", "remove the pinned checkpoint `NAME`")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		if err := c.noPlace("pin", "name the run directory"); err != nil {
			return err
		}
		if *remove != "" {
			if *name != "" {
				return usagef("pin: --name and --remove are both given")
			}
			return unpin(ctx, c, *remove)
		}
		return pin(ctx, c, *name)
	})
	return cmd
}

// pinned is the directory of pinned checkpoints in a checkpoint directory, or
// in the run directory if hosts share none.
const pinned = "pinned"

func pin(ctx context.Context, c *call, name string) error {
	arg, err := c.theRun()
	if err != nil {
		return err
	}
	if strings.ContainsAny(name, "/\x00") || name == "." || name == ".." || strings.HasSuffix(name, ".tmp") {
		return usagef("pin: --name %q: a name is that of a directory, such as best", name)
	}
	run, index := splitIndex(arg)
	if err := c.askHosts(run); err != nil {
		return err
	}
	if c.hosts != nil {
		return c.pinHosted(ctx, run, index, name)
	}
	g, err := c.theCheckpoint(arg)
	if err != nil {
		return err
	}
	if g.dir == "" || g.file {
		return usagef("pin: %s: only a checkpoint in a directory that is seen from here can be pinned; 'cairn export' and 'cairn copy' keep others", arg)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(g.dir), "host")); err == nil {
		return usagef("pin: %s is a host's part of a run, and is removed when the run has finished; name the run directory", arg)
	}
	from, err := c.soundCheckpoint(g)
	if err != nil {
		return err
	}
	name = cmp.Or(name, filepath.Base(from))
	to := filepath.Join(g.dir, pinned, name)
	put := func(tmp string) error {
		if err := linkCheckpoint(from, filepath.Join(tmp, filepath.Base(from))); err != nil {
			return err
		}
		out, err := supervise.OutputOf(g.dir)
		if err != nil || out == "" {
			return err
		}
		return pinOutput(ctx, tmp, func(rank int) (vfs.File, error) { return vfs.OS().Open(stdoutOf(out, rank)) })
	}
	if err := c.pinInto(to, arg, put); err != nil {
		return err
	}
	return c.pinnedAs([]pinnedCheckpoint{{name, g.index, to, ""}})
}

// splitIndex takes the index of a checkpoint off its directory: DIR@12. It is 0
// if there is none.
func splitIndex(arg string) (dir string, index uint64) {
	if at := strings.LastIndexByte(arg, '@'); at >= 0 {
		if n, err := strconv.ParseUint(arg[at+1:], 10, 64); err == nil {
			return cmp.Or(arg[:at], "."), n
		}
	}
	return arg, 0
}

// soundCheckpoint returns the directory of a checkpoint whose metadata is
// sound.
func (c *call) soundCheckpoint(g group) (string, error) {
	var ranks []int
	for _, p := range g.parts {
		ranks = append(ranks, p.rank)
	}
	if j := c.judge(member{g.dir, g.index, ranks}); j.status() != "ok" {
		return "", fmt.Errorf("checkpoint %d in %s is %s: %s", g.index, g.dir, j.status(), j.reason())
	}
	return filepath.Dir(store.Open(c.fsys, g.dir, 0).File(g.index)), nil
}

// pinInto makes the directory of a pinned checkpoint, durably. put fills it.
func (c *call) pinInto(to, arg string, put func(tmp string) error) error {
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s exists; choose another name, or remove it with 'cairn pin --remove %s %s'", to, filepath.Base(to), arg)
	}
	tmp := to + ".tmp"
	err := os.RemoveAll(tmp) // of a command that was killed
	if err == nil {
		err = put(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, to)
	}
	if err == nil {
		err = errors.Join(vfs.OS().SyncDir(filepath.Dir(to)), vfs.OS().SyncDir(filepath.Dir(filepath.Dir(to))))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the checkpoint was removed meanwhile: %w", err)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}

// pinnedAs says where a checkpoint is kept.
func (c *call) pinnedAs(list []pinnedCheckpoint) error {
	if c.json {
		return c.document(list)
	}
	for _, p := range list {
		c.printf("checkpoint %d is kept as %s\n", p.Index, printable(p.Path))
	}
	return nil
}

// pinHosted pins a checkpoint of a run whose hosts share no files: on the tiers
// outside of the hosts that have it, or as a copy in the run directory.
func (c *call) pinHosted(ctx context.Context, run string, index uint64, name string) error {
	if index == 0 {
		index = c.newestHosted(ctx)
	}
	if f := supervise.Finished(ctx, run); index == 0 && f != nil {
		return &finishedError{run, f}
	}
	if index == 0 {
		return fmt.Errorf("%s: no checkpoint is complete on the hosts that answer, nor on a tier", run)
	}
	name = cmp.Or(name, fmt.Sprintf("ckpt-%08d", index))
	if err := tier.CheckPinName(name); err != nil {
		return usagef("pin: --name %v", err)
	}
	on, errs := c.hosts.Pin(ctx, index, name)
	var list []pinnedCheckpoint
	for _, p := range on {
		list = append(list, pinnedCheckpoint{p.Name, p.Index, p.Place, p.Tier})
	}
	if len(errs) > 0 {
		return errors.Join(append(errs, c.pinnedAs(list))...)
	}
	if len(list) > 0 {
		return c.pinnedAs(list)
	}
	g, err := c.theCheckpoint(fmt.Sprintf("%s@%d", run, index))
	if err != nil {
		return fmt.Errorf("checkpoint %d is on no tier outside of the hosts, and cannot be copied from their disks: %w", index, err)
	}
	from, err := c.soundCheckpoint(g)
	if err != nil {
		return err
	}
	to := filepath.Join(run, pinned, name)
	put := func(tmp string) error {
		if err := c.copyCheckpoint(ctx, from, filepath.Join(tmp, filepath.Base(from))); err != nil {
			return err
		}
		return pinOutput(ctx, tmp, c.hosts.OpenOutput)
	}
	if err := c.pinInto(to, run, put); err != nil {
		return err
	}
	return c.pinnedAs([]pinnedCheckpoint{{name, index, to, ""}})
}

// newestHosted returns the newest checkpoint of which every rank can get its
// files.
func (c *call) newestHosted(ctx context.Context) uint64 {
	list, _ := c.hosts.Tiers(ctx)
	for _, x := range list {
		if x.Complete {
			return x.Index
		}
	}
	if g, err := c.theCheckpoint(c.args[0]); err == nil && len(list) == 0 {
		return g.index
	}
	return 0
}

// copyCheckpoint copies a checkpoint from the hosts, and compares every block
// with its digest.
func (c *call) copyCheckpoint(ctx context.Context, from, to string) error {
	entries, err := c.fsys.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if err := c.copyFile(ctx, filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if _, ok := store.ParseRank(e.Name()); !ok {
			continue
		}
		f, err := ckpt.Open(vfs.OS(), filepath.Join(to, e.Name()))
		if err != nil {
			return err
		}
		damage, err := f.Verify(ctx, nil)
		f.Close()
		if err == nil && len(damage) > 0 {
			err = fmt.Errorf("%s: %w: %s", e.Name(), ckpt.ErrCorrupt, damage[0].Name)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(vfs.OS().SyncDir(to), vfs.OS().SyncDir(filepath.Dir(to)))
}

func (c *call) copyFile(ctx context.Context, from, to string) error {
	src, err := c.fsys.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	n, err := src.Size()
	if err != nil {
		return err
	}
	return copyBytes(ctx, to, src, n)
}

// copyBytes makes a file with the first n bytes of another, durably.
func copyBytes(ctx context.Context, to string, src io.ReaderAt, n int64) error {
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = tier.Copy(ctx, dst, io.NewSectionReader(src, 0, n), n)
	return errors.Join(err, dst.Sync(), dst.Close())
}

// stdoutOf returns the file of a rank's standard output.
func stdoutOf(dir string, rank int) string {
	return filepath.Join(dir, fmt.Sprintf("rank-%04d.out", rank))
}

// pinOutput adds to a pinned checkpoint what its ranks had printed until then:
// the run's files of that grow, and are written anew by the next run.
func pinOutput(ctx context.Context, dir string, open func(rank int) (vfs.File, error)) error {
	members, err := store.Members(vfs.OS(), dir)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, "output")
	if err := os.Mkdir(out, 0o700); err != nil {
		return err
	}
	for index, ranks := range members {
		for _, rank := range ranks {
			f, err := ckpt.Open(vfs.OS(), store.Open(vfs.OS(), dir, rank).File(index))
			if err != nil {
				return err
			}
			files, err := f.Files()
			f.Close()
			if err != nil {
				return err
			}
			i := slices.IndexFunc(files, func(e ckpt.FileEntry) bool { return e.Path == "/dev/stdout" && !e.Closed })
			if i < 0 {
				continue
			}
			src, err := open(rank)
			if err != nil {
				return err
			}
			err = copyBytes(ctx, stdoutOf(out, rank), src, files[i].Size)
			if err = errors.Join(err, src.Close()); err != nil {
				return fmt.Errorf("the output of rank %d: %w", rank, err)
			}
		}
	}
	return errors.Join(vfs.OS().SyncDir(out), vfs.OS().SyncDir(dir))
}

// linkCheckpoint makes links to all files of a checkpoint, those of the ranks
// last: if the run removes it meanwhile, one of them fails.
func linkCheckpoint(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return rankLast(a.Name()) - rankLast(b.Name()) })
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		if err := os.Link(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return errors.Join(vfs.OS().SyncDir(to), vfs.OS().SyncDir(filepath.Dir(to)))
}

func rankLast(name string) int {
	if _, ok := store.ParseRank(name); ok {
		return 1
	}
	return 0
}

// unpin removes a pinned checkpoint.
func unpin(ctx context.Context, c *call, name string) error {
	run, err := c.theRun()
	if err != nil {
		return err
	}
	dir, err := c.checkpointsIn(run)
	if err != nil {
		return err
	}
	if c.hosts != nil {
		dir = run
	}
	list, err := c.allPins(ctx, dir)
	if err != nil {
		return err
	}
	var gone []pinnedCheckpoint
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
		if p.Name == name {
			gone = append(gone, p)
		}
	}
	if len(gone) == 0 {
		return usagef("pin: %s has no pinned checkpoint %q%s", dir, name, suggest(name, names, ""))
	}
	var errs []error
	for _, p := range gone {
		if p.Tier == "" {
			errs = append(errs, os.RemoveAll(p.Path))
		}
	}
	if c.hosts != nil {
		_, more := c.hosts.Unpin(ctx, name)
		errs = append(errs, more...)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.json {
		return c.document(gone)
	}
	for _, p := range gone {
		where := ""
		if p.Tier != "" {
			where = " on " + p.Tier
		}
		c.printf("checkpoint %d is not kept as %s any more%s\n", p.Index, name, where)
	}
	return nil
}

// pinnedCheckpoint is a pinned checkpoint, as JSON documents show it.
type pinnedCheckpoint struct {
	Name  string `json:"name"`
	Index uint64 `json:"index"`
	Path  string `json:"path"`           // as 'cairn run --from' takes it
	Tier  string `json:"tier,omitempty"` // on which it is; none: in a directory
}

// allPins returns the pinned checkpoints of a directory, and those on tiers
// outside of the hosts.
func (c *call) allPins(ctx context.Context, dir string) ([]pinnedCheckpoint, error) {
	list := pins(dir)
	if c.hosts == nil {
		return list, nil
	}
	on, errs := c.hosts.Pins(ctx)
	for _, p := range on {
		list = append(list, pinnedCheckpoint{p.Name, p.Index, p.Place, p.Tier})
	}
	return list, errors.Join(errs...)
}

// pins returns the pinned checkpoints of a checkpoint directory, by name.
func pins(dir string) (list []pinnedCheckpoint) {
	entries, _ := os.ReadDir(filepath.Join(dir, pinned))
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		inside, _ := os.ReadDir(filepath.Join(dir, pinned, e.Name()))
		for _, x := range inside {
			if index, ok := store.ParseIndex(x.Name()); ok {
				list = append(list, pinnedCheckpoint{e.Name(), index, filepath.Join(dir, pinned, e.Name()), ""})
			}
		}
	}
	return list
}
