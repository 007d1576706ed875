package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/hdf5"
)

func diffCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff [--key FILE] CHECKPOINT CHECKPOINT",
		Short: "show which variables differ between two checkpoints, and by how much",
		Long: `Compares the values of two checkpoints, variable by variable: how many numbers
differ, where the first difference is, and the largest difference, absolute and
relative to the larger of the two numbers. Blocks with equal digests are not
read. The exit code is 0 if all values are equal and 1 if not.

With several ranks, it compares each rank with the same rank of the other
checkpoint. The checkpoints may come from different directories, runs and
machines. In tables of references (pointers, maps), a reference is a position in
the checkpoint.`,
		Example: `  cairn diff ckpt@11 ckpt@12  # what changed from checkpoint 11 to 12
  cairn diff good.h5 ckpt     # an exported file and the newest checkpoint`,
		Args:              takes(2, 2),
		ValidArgsFunction: c.completeCheckpoints,
		RunE:              c.does(diff),
	}
	keyFlag(cmd.Flags(), c)
	return cmd
}

// diffDocument is what diff --json prints.
type diffDocument struct {
	First       diffSide     `json:"first"`
	Second      diffSide     `json:"second"`
	Equal       bool         `json:"equal"`
	Differences []difference `json:"differences"`
}

type diffSide struct {
	Index uint64 `json:"index"`
	Path  string `json:"path"`  // a file, or with several ranks the checkpoint's directory
	Ranks int    `json:"ranks"` // that are compared
}

// difference describes how one dataset differs between two checkpoints.
type difference struct {
	Rank     int      `json:"rank"`
	Variable string   `json:"variable"`
	Dataset  string   `json:"dataset"`
	Detail   string   `json:"detail,omitempty"` // why values could not be compared; then the rest is 0
	Values   int64    `json:"values"`
	Differ   int64    `json:"differ"`
	First    string   `json:"first,omitempty"` // the first value that differs
	MaxAbs   *float64 `json:"maxAbs"`          // null: not a finite number
	MaxRel   *float64 `json:"maxRel"`          // likewise
}

func diff(ctx context.Context, c *call) error {
	a, err := c.theCheckpoint(c.args[0])
	if err != nil {
		return err
	}
	b, err := c.theCheckpoint(c.args[1])
	if err != nil {
		return err
	}
	if a.parts, b.parts, err = c.pair(a, b); err != nil {
		return err
	}
	doc := diffDocument{First: a.side(), Second: b.side(), Differences: []difference{}}
	var found []ckpt.Difference // as they are in doc
	for i, j := 0, 0; i < len(a.parts) || j < len(b.parts); {
		only := ""
		switch {
		case j == len(b.parts) || i < len(a.parts) && a.parts[i].rank < b.parts[j].rank:
			only = "only the first checkpoint has this rank"
			doc.Differences = append(doc.Differences, difference{Rank: a.parts[i].rank, Detail: only})
			i++
		case i == len(a.parts) || b.parts[j].rank < a.parts[i].rank:
			only = "only the second checkpoint has this rank"
			doc.Differences = append(doc.Differences, difference{Rank: b.parts[j].rank, Detail: only})
			j++
		}
		if only != "" {
			found = append(found, ckpt.Difference{})
			continue
		}
		if err := c.diffRank(ctx, &doc, &found, a.parts[i], b.parts[j]); err != nil {
			return err
		}
		i, j = i+1, j+1
	}
	doc.Equal = len(found) == 0
	if c.json {
		err = c.document(doc)
	} else {
		c.diffText(&doc, found)
	}
	if err == nil && !doc.Equal {
		err = errFound
	}
	return err
}

// pair returns the files to compare. A file that was named by itself is
// compared with that of the same rank.
func (c *call) pair(a, b group) (as, bs []target, err error) {
	if a.file && !b.file {
		bs, as, err = c.pair(b, a)
		return as, bs, err
	}
	if !b.file {
		return a.parts, b.parts, nil
	}
	one := b.parts[0]
	if a.file {
		other := a.parts[0]
		other.rank = one.rank
		return []target{other}, b.parts, nil
	}
	s, err := c.open(one)
	if err != nil {
		return nil, nil, err
	}
	one.rank = s.Header.Rank
	s.Close()
	for _, t := range a.parts {
		if t.rank == one.rank {
			return []target{t}, []target{one}, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: this is rank %d's file, and rank %d has none in %s; name another checkpoint", one.file, one.rank, one.rank, filepath.Dir(a.parts[0].file))
}

func (g *group) side() diffSide {
	s := diffSide{g.index, g.parts[0].file, len(g.parts)}
	if len(g.parts) > 1 {
		s.Path = filepath.Dir(s.Path)
	}
	s.Path = withSlashes(s.Path)
	return s
}

// diffRank compares the files of one rank.
func (c *call) diffRank(ctx context.Context, doc *diffDocument, found *[]ckpt.Difference, t, u target) error {
	a, err := c.open(t)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := c.open(u)
	if err != nil {
		return err
	}
	defer b.Close()
	doc.First.Index, doc.Second.Index = a.Header.Index, b.Header.Index
	label := "comparing"
	if doc.First.Ranks > 1 {
		label = fmt.Sprintf("comparing rank %d", t.rank)
	}
	p := c.progress(label, 2*a.State()+b.State())
	list, err := ckpt.Diff(ctx, a, b, p.at)
	p.end()
	if err != nil {
		return fmt.Errorf("%s and %s: %w", a.Path, b.Path, err)
	}
	for i := range list {
		d := describeDifference(a, &list[i])
		d.Rank = a.Header.Rank
		doc.Differences = append(doc.Differences, d)
	}
	*found = append(*found, list...)
	return nil
}

func describeDifference(a *ckpt.File, d *ckpt.Difference) difference {
	out := difference{
		Variable: d.Var, Dataset: "/" + d.Path, Detail: d.Detail,
		Values: d.Values, Differ: d.Differ, MaxAbs: finite(d.MaxAbs), MaxRel: finite(d.MaxRel),
	}
	if d.Differ > 0 {
		out.First = d.Var + place(a, d)
		if function, ok := strings.CutPrefix(out.Dataset, "/Context/Pointers/frames/"); ok {
			if field, ok := strings.CutPrefix(out.First, "frames[0]."); ok && onlyOne(a, d.Path) {
				out.First = function + "." + field // a variable of a function
			}
		}
	}
	return out
}

// onlyOne reports whether a dataset has one element.
func onlyOne(s *ckpt.File, path string) bool {
	return slices.ContainsFunc(s.Header.Datasets, func(d ckpt.Dataset) bool { return d.Path == path && d.Count() == 1 })
}

// place returns the position of the first difference as Go would write it:
// [3][17].x
func place(s *ckpt.File, diff *ckpt.Difference) string {
	for i := range s.Header.Datasets {
		d := &s.Header.Datasets[i]
		dims := d.Dims
		if n := diff.Name; n != nil && d.Pool == n.Pool {
			dims = n.Dims
		} else if d.Path != diff.Path {
			continue
		}
		t, err := hdf5.ParseType(d.Type)
		if err != nil {
			break
		}
		n := leafCount(t)
		at := diff.First / n
		var index []string
		for k := len(dims) - 1; k >= 0 && dims[k] > 0; k-- {
			index = append([]string{"[" + strconv.FormatInt(at%int64(dims[k]), 10) + "]"}, index...)
			at /= int64(dims[k])
		}
		return strings.Join(index, "") + leafName(t, diff.First%n)
	}
	return ""
}

// leafCount returns how many numbers an element has, as ckpt.Diff counts them.
func leafCount(t hdf5.Type) int64 {
	switch t.Class {
	case hdf5.Compound:
		n := int64(0)
		for _, f := range t.Fields {
			n += leafCount(f.Type)
		}
		return max(n, 1)
	case hdf5.Array:
		return max(int64(t.Size/t.Elem.Size)*leafCount(*t.Elem), 1)
	case hdf5.String:
		return int64(t.Size)
	}
	return 1
}

// leafName names number k of an element.
func leafName(t hdf5.Type, k int64) string {
	switch t.Class {
	case hdf5.Compound:
		for _, f := range t.Fields {
			if n := leafCount(f.Type); k >= n {
				k -= n
				continue
			}
			return "." + f.Name + leafName(f.Type, k)
		}
	case hdf5.Array:
		n := leafCount(*t.Elem)
		return fmt.Sprintf("[%d]%s", k/n, leafName(*t.Elem, k%n))
	case hdf5.String:
		return fmt.Sprintf("[%d]", k)
	}
	return ""
}

func (c *call) diffText(doc *diffDocument, found []ckpt.Difference) {
	c.printf("first   checkpoint %d, %s\nsecond  checkpoint %d, %s\n\n", doc.First.Index, doc.First.Path, doc.Second.Index, doc.Second.Path)
	several := max(doc.First.Ranks, doc.Second.Ranks) > 1
	switch {
	case doc.Equal && several:
		c.printf("all values of %s are equal\n", control.Count(doc.First.Ranks, "rank"))
	case doc.Equal:
		c.printf("all values are equal\n")
	default:
		c.differences(doc.Differences, found, several, false)
		c.differences(doc.Differences, found, several, true)
	}
}

// differences shows the differences in values, or in tables of references.
func (c *call) differences(all []difference, found []ckpt.Difference, several, references bool) {
	var rows [][]string
	var ranks []string // of the rows
	header := []string{"VARIABLE", "DATASET", "DIFFER", "FIRST AT", "MAX ABS", "MAX REL"}
	for i, d := range all {
		switch {
		case isReferences(d.Dataset) != references:
		case d.Detail != "":
			header = append(header[:6], "NOTE")
			name, dataset := d.Variable, d.Dataset
			if name == "" {
				name, dataset = "-", "-"
			}
			rows = append(rows, []string{name, dataset, "-", "-", "-", "-", d.Detail})
		default:
			differ := fmt.Sprintf("%d of %d", d.Differ, d.Values)
			rows = append(rows, []string{d.Variable, d.Dataset, differ, d.First, number(found[i].MaxAbs), number(found[i].MaxRel)})
		}
		if several && len(rows) > len(ranks) {
			ranks = append(ranks, strconv.Itoa(d.Rank))
		}
	}
	if len(rows) == 0 {
		return
	}
	if references {
		c.printf("\nTables of references and values beside them. A reference is a position in\nthe checkpoint; it changes when something is added or removed before it.\n\n")
	}
	if several {
		header = append([]string{"RANK"}, header...)
		for i := range rows {
			rows[i] = append([]string{ranks[i]}, rows[i]...)
		}
	}
	t := c.table("", header...)
	for _, row := range rows {
		t.row(row...)
	}
	t.flush()
}
