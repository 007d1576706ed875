package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/mem"
)

// bytes returns the state as bytes.
func (b *bench) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&b.state[0])), len(b.state)*8)
}

// memcpy measures a parallel copy of the state into warm memory: Go's copy, and
// Cairn's, which does not read what it overwrites. The faster one counts; Go's
// is shown, too.
func (b *bench) memcpy(name string) {
	dst, src := unsafe.Slice((*byte)(unsafe.Pointer(&b.copy[0])), len(b.copy)*8), b.bytes()
	best := math.Inf(1)
	for _, by := range []func(dst, src []byte){func(dst, src []byte) { copy(dst, src) }, mem.Copy} {
		t := time.Now()
		parallel(len(b.state), func(lo, hi int) { by(dst[8*lo:8*hi], src[8*lo:8*hi]) })
		if took := time.Since(t).Seconds(); math.IsInf(best, 1) {
			best = took
			b.add(name+" of Go", took)
		} else {
			best = min(best, took)
		}
	}
	b.add(name, best)
}

// rawWrite measures writing the state to a file.
func (b *bench) rawWrite(name string, direct bool) error {
	path := filepath.Join(b.dir, "raw")
	defer os.Remove(path)
	return b.time(name, func() error { return writeRaw(path, b.bytes(), direct) })
}

// rawRead measures reading a file of the state's size into warm memory.
func (b *bench) rawRead(name string) error {
	path := filepath.Join(b.dir, "raw")
	defer os.Remove(path)
	if err := writeRaw(path, b.bytes(), true); err != nil {
		return err
	}
	f, err := openDirect(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	dst := unsafe.Slice((*byte)(unsafe.Pointer(&b.copy[0])), len(b.copy)*8)
	return b.time(name, func() error {
		for len(dst) > 0 {
			n, err := f.Read(dst[:min(len(dst), 4<<20)])
			if err != nil {
				return err
			}
			dst = dst[n:]
		}
		return nil
	})
}

func writeRaw(path string, p []byte, direct bool) error {
	open := func() (*os.File, error) { return os.Create(path) }
	if direct {
		open = func() (*os.File, error) { return openDirect(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC) }
	}
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	for len(p) > 0 {
		n, err := f.Write(p[:min(len(p), 4<<20)])
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return f.Sync()
}

// point measures a point at which no checkpoint is due.
func (b *bench) point() error {
	return b.cairn(cairn.Options{}, func(p *cairn.Run, _ *cairn.CheckpointInfo) error {
		const n = 10_000_000
		t := time.Now()
		for range n {
			if err := p.Point(b.ctx); err != nil {
				return err
			}
		}
		b.add("point", time.Since(t).Seconds()/n)
		return nil
	})
}

// all measures a checkpoint after everything has changed, and restoring it.
func (b *bench) all() error {
	err := b.cairn(cairn.Options{Keep: 1}, func(p *cairn.Run, s *cairn.CheckpointInfo) error {
		for i := range 3 { // Cairn learns from the first two that everything changes
			if i == 2 {
				if err := b.settled(); err != nil {
					return err
				}
				b.memcpy("memcpy")
				if err := errors.Join(b.rawWrite("buffered write", false), b.rawWrite("direct write", true)); err != nil {
					return err
				}
			}
			b.change()
			t := time.Now()
			if err := p.Checkpoint(b.ctx); err != nil {
				return err
			}
			if i == 2 {
				b.add("pause all", s.Pause.Seconds())
				b.add("durable all", time.Since(t).Seconds())
			}
		}
		return b.keep()
	})
	if err != nil {
		return err
	}
	kept := filepath.Join(b.dir, "kept")
	defer os.RemoveAll(kept)
	p, err := cairn.Open(b.ctx, cairn.Options{Dir: kept, Signals: map[os.Signal]cairn.SignalAction{}})
	if err != nil {
		return err
	}
	defer p.Close()
	cairn.Protect(p, "state", &b.copy)
	if err := b.rawRead("direct read"); err != nil {
		return err
	}
	err = b.time("restore", func() error {
		_, err := p.Restore(b.ctx)
		return err
	})
	if err == nil && b.copy[len(b.copy)-1] != b.state[len(b.state)-1] {
		err = errors.New("restored another value")
	}
	return err
}

// settled waits until older checkpoints are removed, which happens in the
// background.
func (b *bench) settled() error {
	for {
		list, err := filepath.Glob(filepath.Join(b.dir, "ckpt", "ckpt-*"))
		if err != nil || len(list) == 1 {
			return err
		}
		if err := b.ctx.Err(); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// keep moves the checkpoints away, so that they are not removed.
func (b *bench) keep() error {
	return os.Rename(filepath.Join(b.dir, "ckpt"), filepath.Join(b.dir, "kept"))
}

// sparse measures checkpoints after 1 % of the blocks have changed.
func (b *bench) sparse(name string, noTracking bool) error {
	return b.cairn(cairn.Options{NoTracking: noTracking}, func(p *cairn.Run, s *cairn.CheckpointInfo) error {
		for i := range 6 { // full; learn what changed; start tracking; then steady state
			if i >= 3 {
				b.memcpy("memcpy " + name)
			}
			b.changeSome()
			if err := p.Checkpoint(b.ctx); err != nil {
				return err
			}
			if i >= 3 {
				b.add("pause "+name, s.Pause.Seconds())
				b.add("written "+name, float64(s.WrittenBytes)/float64(s.StateBytes))
			}
		}
		return nil
	})
}

func (b *bench) zeros() error {
	full := b.state
	defer func() { b.state = full }()
	b.state = b.copy
	for i := 0; i < len(b.state); i += 81920 {
		end := min(i+81920, len(b.state))
		copy(b.state[i:min(i+8192, end)], full[i:])
		clear(b.state[min(i+8192, end):end])
	}
	return b.cairn(cairn.Options{}, func(p *cairn.Run, s *cairn.CheckpointInfo) error {
		if err := p.Checkpoint(b.ctx); err != nil {
			return err
		}
		b.add("written zeros", float64(s.WrittenBytes)/float64(s.StateBytes))
		return nil
	})
}

// bounded measures the memory that a checkpoint takes in addition to the state.
func (b *bench) bounded() error {
	bound := int64(len(b.state)) * 8 / 4
	before := resident()
	return b.cairn(cairn.Options{Memory: bound}, func(p *cairn.Run, s *cairn.CheckpointInfo) error {
		b.change()
		if err := p.Checkpoint(b.ctx); err != nil {
			return err
		}
		if before > 0 {
			b.add("memory", float64(resident()-before)/float64(bound))
		}
		return nil
	})
}

// resident returns the resident memory of the process in bytes.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// peers measures how other libraries write the same state.
func (b *bench) peers() error {
	err := b.time("gob", func() error {
		f, err := os.Create(filepath.Join(b.dir, "gob"))
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		defer f.Close()
		if err := gob.NewEncoder(f).Encode(b.state); err != nil {
			return err
		}
		return f.Sync()
	})
	if err != nil {
		return err
	}
	prog, err := b.buildHDF5()
	if err != nil {
		b.log("libhdf5 is left out: %v", err)
		return nil
	}
	for range 3 {
		out := filepath.Join(b.dir, "lib.h5")
		text, err := exec.CommandContext(b.ctx, prog, out, strconv.Itoa(len(b.state))).Output()
		os.Remove(out)
		if err != nil {
			return fmt.Errorf("libhdf5: %w", err)
		}
		s, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		if err != nil {
			return err
		}
		b.add("libhdf5", s)
	}
	return nil
}

// hdf5Program writes a float64 dataset with the C library and prints the
// seconds until it was durable.
const hdf5Program = `
#include <hdf5.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
int main(int argc, char **argv) {
	hsize_t n = strtoull(argv[2], 0, 10);
	double *p = malloc(n * sizeof *p);
	for (hsize_t i = 0; i < n; i++) p[i] = 1.0 / (i + 1);
	double t = now();
	hid_t f = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), s = H5Screate_simple(1, &n, 0);
	hid_t d = H5Dcreate2(f, "state", H5T_NATIVE_DOUBLE, s, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
	if (H5Dwrite(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, p) < 0) return 1;
	H5Dclose(d); H5Sclose(s); H5Fclose(f);
	int fd = open(argv[1], O_RDWR);
	if (fd < 0 || fsync(fd) < 0) return 1;
	printf("%.6f\n", now() - t);
}
`

func (b *bench) buildHDF5() (string, error) {
	src := filepath.Join(b.dir, "lib.c")
	if err := os.WriteFile(src, []byte(hdf5Program), 0o666); err != nil {
		return "", err
	}
	out := filepath.Join(b.dir, "lib")
	args := []string{"-O2", src, "-o", out}
	if flags, err := exec.Command("pkg-config", "--cflags", "--libs", "hdf5").Output(); err == nil {
		args = append(args, strings.Fields(string(flags))...)
	} else {
		args = append(args, "-I/usr/include/hdf5/serial", "-L/usr/lib/x86_64-linux-gnu/hdf5/serial", "-lhdf5")
	}
	if msg, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building it (Debian: libhdf5-dev): %w: %s", err, firstLine(msg))
	}
	return out, nil
}

func firstLine(p []byte) string {
	line, _, _ := strings.Cut(string(p), "\n")
	return line
}
