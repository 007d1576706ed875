// Command slogs covers logs that tell the function and the line they were
// written in, which are those of the original after a restart, too.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"progs/slogs/trace"
)

func sum(l *slog.Logger, n int) (total int) {
	for i := range n { //difftest:loop
		total += i * i
		l.Info("sum", "i", i, "total", total)
	}
	return total
}

func steps(l *slog.Logger) {
	for i := range 4 {
		n := sum(l, i)
		trace.Log(n)
	}
}

func main() {
	l := slog.New(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{
		AddSource: true,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch v := a.Value.Any().(type) {
			case *slog.Source:
				return slog.String("at", fmt.Sprint(v.Function, ":", v.Line))
			}
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	steps(l)
	l.Warn("end")
}
