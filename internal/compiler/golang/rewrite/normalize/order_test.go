package normalize

import (
	"errors"
	"fmt"
	"go/token"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/closures"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/rewritetest"
)

// TestFunctions_EvaluationOrder compares the order of reads and calls with the
// Go compiler's, by generated statements. After normalization, where calls on
// the path to a point stand alone, they must print the same as before.
// CAIRN_LONG=1 tries many more; CAIRN_SEED selects others.
func TestFunctions_EvaluationOrder(t *testing.T) {
	seeds, n := 1, len(orderStmts)
	if os.Getenv("CAIRN_LONG") != "" {
		seeds, n = 40, 6*len(orderStmts)
	}
	first, _ := strconv.ParseInt(os.Getenv("CAIRN_SEED"), 10, 64)
	for seed := first; seed < first+int64(seeds); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			gen := &orderGen{Rand: rand.New(rand.NewSource(seed))}
			cases := gen.cases(n)
			var q *rewrite.Package
			refused := 0
			for q == nil {
				src := orderProgram(cases)
				p := rewritetest.Load(t, "main.go", src, "go1.26")
				var err error
				q, err = orderPasses(p)
				var r *rewrite.Refusal
				if errors.As(err, &r) {
					i := strings.Count(strings.Join(strings.SplitAfter(src, "\n")[:r.Pos.Line], ""), "\tstart(") - 1
					if i < 0 {
						t.Fatal(r)
					}
					t.Logf("refused: %s\n%s", r, cases[i])
					cases[i] = "show(0)"
					refused++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if refused > n/50 {
				t.Errorf("%d of %d statements are refused", refused, n)
			}
			text := string(rewrite.StripLineComments(rewrite.StripMarks(q.Source["main.go"])))
			a, b := runBoth(t, "go1.26", orderProgram(cases), text)
			want, got := strings.Split(a, "case ")[1:], strings.Split(b, "case ")[1:]
			bad := 0
			for i := range want {
				if want[i] == got[i] {
					continue
				}
				if bad++; bad <= 12 {
					a, b := strings.Split(want[i], "\n"), strings.Split(got[i], "\n")
					k := 0
					for k < len(a) && k < len(b) && a[k] == b[k] {
						k++
					}
					t.Errorf("case %d:\n\t%s\nplain:     %.300s\nrewritten: %.300s\n%s", i, cases[i], strings.Join(a[k:], "\n"), strings.Join(b[k:], "\n"), caseText(text, i))
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d differ", bad, n)
			}
		})
	}
}

// orderPasses runs the passes up to the normal form.
func orderPasses(p *rewrite.Package) (*rewrite.Package, error) {
	in := normalizePath(p)
	marks := map[token.Pos]string{}
	for c := range in.Calls {
		marks[c.Lparen+1] = rewrite.CallMark
	}
	p, err := Mark(p, marks)
	if err != nil {
		return nil, err
	}
	if p, err = MoveResults(p, (*rewrite.Package).ResumablePath); err != nil {
		return nil, err
	}
	p, _ = closures.Lift(p)
	p, made, err := closures.Convert(p, p.MustConvert)
	if err != nil {
		return nil, err
	}
	if made.Stuck != nil {
		return nil, made.Stuck
	}
	return Functions(p, p.ResumablePath())
}

// caseText returns a case of a program.
func caseText(text string, i int) string {
	_, s, _ := strings.Cut(text, fmt.Sprintf("start(%d)", i))
	s, _, _ = strings.Cut(s, "stop()")
	return s
}
