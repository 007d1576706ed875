package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/store"
)

func pinCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pin [--name NAME] CHECKPOINT | --remove NAME [DIR]",
		Short: "keep a checkpoint, under a name",
		Long: `Keeps a checkpoint that the run would remove some time: when it has newer ones,
with --disk-limit, and when it has finished. The pinned checkpoint is in DIR/pinned/NAME,
as a checkpoint directory of its own: its files are hard links, which need no space
as long as the run has the checkpoint, too. All commands accept it as a CHECKPOINT,
and 'cairn run --from DIR/pinned/NAME' resumes a copy of it. 'cairn list' shows the
pinned checkpoints of a directory.

Without --name, the name is that of the checkpoint, such as ckpt-00000012. With
--remove, the command removes a pinned checkpoint.`,
		Example: `  cairn pin --name best sim.cairn@12       # keep checkpoint 12
  cairn inspect sim.cairn/ckpt/pinned/best
  cairn pin --remove best sim.cairn`,
		Args:              takes(0, 1),
		ValidArgsFunction: c.completeCheckpoints,
	}
	f := cmd.Flags()
	name := f.String("name", "", "keep it as `NAME`")
	remove := f.String("remove", "", "remove the pinned checkpoint `NAME`")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		if *remove != "" {
			if *name != "" {
				return usagef("pin: --name and --remove are both given")
			}
			return unpin(c, *remove)
		}
		return pin(c, *name)
	})
	return cmd
}

// pinned is the directory of pinned checkpoints in a checkpoint directory.
const pinned = "pinned"

func pin(c *call, name string) error {
	arg, err := c.theRun()
	if err != nil {
		return err
	}
	g, err := c.theCheckpoint(arg)
	if err != nil {
		return err
	}
	if c.hosts != nil || g.dir == "" || g.file {
		return usagef("pin: %s: only a checkpoint in a directory that is seen from here can be pinned; 'cairn export' and 'cairn copy' keep others", arg)
	}
	var ranks []int
	for _, p := range g.parts {
		ranks = append(ranks, p.rank)
	}
	if j := c.judge(member{g.dir, g.index, ranks}); j.status() != "ok" {
		return fmt.Errorf("checkpoint %d in %s is %s: %s", g.index, g.dir, j.status(), j.reason())
	}
	from := filepath.Dir(store.Open(c.fsys, g.dir, 0).File(g.index))
	if name == "" {
		name = filepath.Base(from)
	}
	if name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || strings.HasSuffix(name, ".tmp") {
		return usagef("pin: --name %q: a name is that of a directory, such as best", name)
	}
	to := filepath.Join(g.dir, pinned, name)
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s exists; choose another name, or remove it with 'cairn pin --remove %s %s'", to, name, arg)
	}
	tmp := to + ".tmp"
	err = linkCheckpoint(from, filepath.Join(tmp, filepath.Base(from)))
	if err == nil {
		err = os.Rename(tmp, to)
	}
	if err == nil {
		err = errors.Join(syncDir(filepath.Dir(to)), syncDir(g.dir))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("checkpoint %d was removed meanwhile: %w", g.index, err)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if c.json {
		return c.document(pinnedCheckpoint{name, g.index, to})
	}
	c.printf("checkpoint %d is kept as %s\n", g.index, to)
	return nil
}

// linkCheckpoint makes links to all files of a checkpoint, those of the ranks last:
// if the run removes it meanwhile, one of them fails.
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
	return errors.Join(syncDir(to), syncDir(filepath.Dir(to)))
}

func rankLast(name string) int {
	if _, ok := store.ParseRank(name); ok {
		return 1
	}
	return 0
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// unpin removes a pinned checkpoint.
func unpin(c *call, name string) error {
	dir, err := c.theRun()
	if err != nil {
		return err
	}
	if dir, err = c.checkpointsIn(dir); err != nil {
		return err
	}
	list := pins(dir)
	i := slices.IndexFunc(list, func(p pinnedCheckpoint) bool { return p.Name == name })
	if i < 0 {
		var names []string
		for _, p := range list {
			names = append(names, p.Name)
		}
		return usagef("pin: %s has no pinned checkpoint %q%s", dir, name, suggest(name, names, ""))
	}
	if err := os.RemoveAll(list[i].Path); err != nil {
		return err
	}
	if c.json {
		return c.document(list[i])
	}
	c.printf("checkpoint %d is not kept as %s any more\n", list[i].Index, name)
	return nil
}

// pinnedCheckpoint is a pinned checkpoint, as JSON documents show it.
type pinnedCheckpoint struct {
	Name  string `json:"name"`
	Index uint64 `json:"index"`
	Path  string `json:"path"`
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
				list = append(list, pinnedCheckpoint{e.Name(), index, filepath.Join(dir, pinned, e.Name())})
			}
		}
	}
	return list
}
