//go:build unix

package erasure

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/reedsolomon"
)

// The benchmarks print ratios to reedsolomon itself, measured in turn in the
// same run on as many bytes: to its coder of memory ("mem"), which reads and
// writes nothing, and to its coder of streams ("stream"), which reads and
// writes as this package does, but has no digests. Each is a ratio of the time
// that passes, and of processor time ("cpu").

var benchCodes = []Code{{4, 2}, {8, 2}, {8, 3}, {16, 4}}

const benchSize = 64 << 20

// benchInput is an object and its shards, as reedsolomon's coders want them.
func benchInput(b *testing.B, c Code) (object []byte, shards [][]byte) {
	object = randomBytes(rand.New(rand.NewPCG(6, 6)), benchSize)
	unit := benchSize / c.Data
	shards = units(object, make([]byte, unit*c.Parity), unit)
	e, err := reedsolomon.New(c.Data, c.Parity)
	if err == nil {
		err = e.Encode(shards)
	}
	if err != nil {
		b.Fatal(err)
	}
	return object, shards
}

// units cuts memory into units.
func units(data, parity []byte, unit int) (out [][]byte) {
	for _, m := range [][]byte{data, parity} {
		for ; len(m) > 0; m = m[unit:] {
			out = append(out, m[:unit:unit])
		}
	}
	return out
}

// pieces cuts shards into stripes with units of 1 MiB.
func pieces(shards [][]byte) (out [][][]byte) {
	const unit = 1 << 20
	for at := 0; at < len(shards[0]); at += unit {
		var s [][]byte
		for i := range shards {
			s = append(s, shards[i][at:min(at+unit, len(shards[i]))])
		}
		out = append(out, s)
	}
	return out
}

func BenchmarkEncode(b *testing.B) {
	for _, c := range benchCodes {
		b.Run(c.String(), func(b *testing.B) {
			object, shards := benchInput(b, c)
			src := source(object)
			src.Check = false // it was digested a moment ago
			w := make([]io.Writer, c.total())
			for i := 1; i < c.total(); i++ { // the owner keeps the object
				w[i] = io.Discard
			}
			mem, err := reedsolomon.New(c.Data, c.Parity, reedsolomon.WithMaxGoroutines(workers))
			if err != nil {
				b.Fatal(err)
			}
			stream, err := reedsolomon.NewStream(c.Data, c.Parity, reedsolomon.WithMaxGoroutines(workers), reedsolomon.WithStreamBlockSize(maxUnit))
			if err != nil {
				b.Fatal(err)
			}
			list := pieces(shards)
			compare(b, func() error {
				return Encode(src, c, w)
			}, func() (err error) {
				for _, s := range list {
					err = errors.Join(err, mem.Encode(s))
				}
				return err
			}, func() error {
				in := make([]io.Reader, c.Data)
				for i := range in {
					in[i] = bytes.NewReader(shards[i])
				}
				return stream.Encode(in, w[c.Data:])
			})
		})
	}
}

// BenchmarkRebuild loses as many data shards as it can.
func BenchmarkRebuild(b *testing.B) {
	for _, c := range benchCodes {
		b.Run(c.String(), func(b *testing.B) {
			object, shards := benchInput(b, c)
			ours := make([]io.ReaderAt, c.total())
			for i, s := range encoded(b, object, c) {
				if i >= c.Parity {
					ours[i] = bytes.NewReader(s)
				}
			}
			mem, err := reedsolomon.New(c.Data, c.Parity, reedsolomon.WithMaxGoroutines(workers))
			if err != nil {
				b.Fatal(err)
			}
			stream, err := reedsolomon.NewStream(c.Data, c.Parity, reedsolomon.WithMaxGoroutines(workers), reedsolomon.WithStreamBlockSize(maxUnit))
			if err != nil {
				b.Fatal(err)
			}
			list := pieces(shards)
			compare(b, func() error {
				_, err := Rebuild(ours, c, Digest{}, io.Discard)
				return err
			}, func() (err error) {
				for _, s := range list {
					for i := range c.Parity {
						s[i] = s[i][:0]
					}
					err = errors.Join(err, mem.ReconstructData(s))
				}
				return err
			}, func() error {
				in, out := make([]io.Reader, c.total()), make([]io.Writer, c.total())
				for i := range in {
					if i < c.Parity {
						out[i] = io.Discard
					} else {
						in[i] = bytes.NewReader(shards[i])
					}
				}
				return stream.Reconstruct(in, out)
			})
		})
	}
}

// compare runs all three in turn, and reports medians.
func compare(b *testing.B, ours, mem, stream func() error) {
	var speed, wallMem, wallStream, cpuMem, cpuStream []float64
	b.SetBytes(benchSize)
	measure := func(f func() error) (wall, cpu float64) {
		t, c := time.Now(), cpuTime()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(t)), float64(cpuTime() - c)
	}
	for b.Loop() {
		w0, c0 := measure(ours)
		w1, c1 := measure(mem)
		w2, c2 := measure(stream)
		speed = append(speed, benchSize/w0)
		wallMem, wallStream = append(wallMem, w1/w0), append(wallStream, w2/w0)
		cpuMem, cpuStream = append(cpuMem, c1/c0), append(cpuStream, c2/c0)
	}
	for _, x := range []struct {
		unit string
		list []float64
	}{{"GB/s", speed}, {"×mem", wallMem}, {"×mem-cpu", cpuMem}, {"×stream", wallStream}, {"×stream-cpu", cpuStream}} {
		slices.Sort(x.list)
		b.ReportMetric(x.list[len(x.list)/2], x.unit)
	}
	b.ReportMetric(0, "ns/op")
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
