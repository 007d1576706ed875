package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/cairnrun/cairn/ckpt"
)

func listCommand() command {
	return command{
		name: "list", args: "DIR", min: 1, max: 1,
		brief: "show the sets in a run's folder, newest first",
		about: `Shows, for every set in DIR, when and why it was taken, the size of its own
file, how much of it lies in files of older sets (blocks that did not change),
the size of the program's state, and how long the program was held.

Only metadata is checked, which is quick: a set that can't be read is marked
damaged, with the reason, and the exit code is 1. 'cairn verify DIR' checks
every byte.`,
		examples: []example{
			{"cairn list ckpt", "the sets in folder ckpt"},
			{"cairn list --json ckpt | jq '.sets[0].set'", "the index of the newest"},
		},
		setup: func(*flag.FlagSet) action { return list },
	}
}

// listDocument is what list --json prints.
type listDocument struct {
	Dir        string       `json:"dir"`
	Sets       []listedSet  `json:"sets"`
	DiskBytes  int64        `json:"diskBytes"` // of all files in set folders, each counted once
	Unfinished []unfinished `json:"unfinished"`
}

// listedSet is a set, or why there is no more to say about it.
type listedSet struct {
	summary
	Status string `json:"status"` // "ok", "damaged" or "unreadable"
	Error  string `json:"error,omitempty"`
}

// unfinished is a set folder without a committed file.
type unfinished struct {
	Set  uint64 `json:"set"`
	Path string `json:"path"`
}

func list(ctx context.Context, c *call) error {
	dir := c.args[0]
	if err := c.runFolder(dir); err != nil {
		return err
	}
	sets, err := c.sets(dir)
	if err != nil {
		return err
	}
	doc := listDocument{Dir: dir, Sets: []listedSet{}, Unfinished: []unfinished{}}
	committed := make(map[uint64]bool)
	var failed error
	damaged := false
	for _, t := range sets {
		if err := ctx.Err(); err != nil {
			return err
		}
		committed[t.index] = true
		l, err := c.listSet(t)
		switch {
		case err != nil && l.Status == "damaged":
			damaged = true
		case errors.Is(err, fs.ErrNotExist): // the run has removed it meanwhile
			continue
		case err != nil && failed == nil:
			failed = err
		}
		doc.Sets = append(doc.Sets, l)
	}
	if err := c.listRest(&doc, committed); err != nil {
		return err
	}
	if c.json {
		err = c.document(doc)
	} else {
		c.listText(&doc)
	}
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case damaged:
		return errFound
	}
	return nil
}

// listSet looks at one set.
func (c *call) listSet(t target) (listedSet, error) {
	s, err := c.check(t)
	if err == nil {
		defer s.Close()
		return listedSet{summary: c.summarize(s), Status: "ok"}, nil
	}
	l := listedSet{summary: summary{Set: t.index, Path: t.file, Bases: []baseInfo{}}, Status: "unreadable", Error: reason(err, t.file)}
	if errors.Is(err, ckpt.ErrCorrupt) {
		l.Status = "damaged"
	}
	if st, err := c.fsys.Stat(t.file); err == nil {
		l.FileBytes = st.Size()
	}
	return l, err
}

// listRest adds what concerns the folder as a whole.
func (c *call) listRest(doc *listDocument, committed map[uint64]bool) error {
	folders, err := c.folders(doc.Dir)
	if err != nil {
		return err
	}
	var files []folderFile
	for n, path := range folders {
		found, err := c.files(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		files = append(files, found...)
		if !committed[n] {
			doc.Unfinished = append(doc.Unfinished, unfinished{n, path})
		}
	}
	doc.DiskBytes = distinct(files, nil)
	return nil
}

func (c *call) listText(doc *listDocument) {
	t := c.table("", "SET", "TIME", "AGE", "OWN FILE", "IN BASES", "STATE", "HELD", "WHY", "KIND")
	for i := range doc.Sets {
		l := &doc.Sets[i]
		n := strconv.FormatUint(l.Set, 10)
		if l.Status != "ok" {
			t.row(n, "-", "-", size(l.FileBytes), "-", "-", "-", "-", fmt.Sprintf("%s: %s", l.Status, l.Error))
			continue
		}
		at, ago := l.when(c.now)
		t.row(n, at, ago, size(l.FileBytes), size(l.BaseBytes), size(l.StateBytes), millis(l.HeldMS), l.Reason, l.kind())
	}
	t.flush()
	c.printf("\n%s, %s on disk\n", count(len(doc.Sets), "set"), size(doc.DiskBytes))
	for _, u := range doc.Unfinished {
		c.printf("set %d is being written, or was left by a crash ('cairn gc %s' removes it then)\n", u.Set, doc.Dir)
	}
}
