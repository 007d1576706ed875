package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// streams reads and writes the standard streams by name.
func streams() error {
	in, err := os.Open("/dev/stdin")
	if err != nil {
		return err
	}
	out, err := os.Create("/dev/stdout")
	if err != nil {
		return err
	}
	other, err := os.OpenFile("/proc/self/fd/1", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	sum, lines := 0, bufio.NewScanner(in)
	for lines.Scan() {
		n := 0
		if _, err := fmt.Sscan(lines.Text(), &n); err != nil {
			return err
		}
		sum += n
		fmt.Println("line", n)
		fmt.Fprintln(out, "out", sum)
		fmt.Fprintln(other, "other", sum)
		if n == 20 {
			if err := os.WriteFile("/dev/stdout", []byte("half\n"), 0o644); err != nil {
				return err
			}
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	fmt.Println("sum", sum)
	return nil
}

// killed kills the process, once, at a place of an iteration.
func killed(round int, place string) {
	me := fmt.Sprintf("%d.%s", round, place)
	if strings.Contains(","+*die+",", ","+me+",") && syscall.Mkdir(filepath.Join(*marks, me), 0o700) == nil {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

// solo changes files in ways that depend on their permissions, on their links,
// and on the working directory.
func solo() error {
	if err := os.Symlink("loop", "loop"); err != nil {
		return err
	}
	if err := os.WriteFile("one", []byte(strings.Repeat("one ", 100)), 0o644); err != nil {
		return err
	}
	if err := os.Link("one", "two"); err != nil {
		return err
	}
	if err := os.Mkdir("sub", 0o755); err != nil {
		return err
	}
	open, err := os.OpenFile("./open", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	for round := range *rounds {
		if _, err := os.OpenFile("loop", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("a link that leads to itself: %v", err)
		}
		if err := linked(round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := guarded(round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := elsewhere(round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if _, err := fmt.Fprintln(open, round, open.Name()); err != nil {
			return err
		}
		if round%4 == 3 { // it gets shorter
			if err := open.Truncate(int64(round)); err != nil {
				return err
			}
			if _, err := open.Seek(0, 2); err != nil {
				return err
			}
		}
		killed(round, "end")
	}
	return open.Close()
}

// linked changes a file by both of its names.
func linked(round int) error {
	f, err := os.OpenFile("one", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(fmt.Append(nil, "<", round, ">"), int64(10*round)); err != nil {
		return err
	}
	if err := os.Truncate("two", int64(300-round)); err != nil {
		return err
	}
	killed(round, "linked")
	if _, err := f.WriteAt(fmt.Append(nil, "(", round, ")"), int64(290-round)); err != nil {
		return err
	}
	return f.Close()
}

// guarded changes files and directories that may not be written before and
// afterwards.
func guarded(round int) error {
	name := filepath.Join("sub", fmt.Sprint(round))
	if err := os.Chmod("sub", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name, []byte("text"), 0o444); err != nil {
		return err
	}
	if round > 2 {
		old := filepath.Join("sub", fmt.Sprint(round-2))
		if err := os.Chmod(old, 0o200); err != nil {
			return err
		}
		f, err := os.OpenFile(old, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprint(f, round); err != nil {
			return err
		}
		if err := errors.Join(f.Chmod(0o400), f.Close()); err != nil {
			return err
		}
	}
	if round%3 == 2 {
		if err := os.Remove(filepath.Join("sub", fmt.Sprint(round-1))); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join("sub", fmt.Sprint(round-1)), []byte("again"), 0o644); err != nil {
			return err
		}
	}
	if err := os.Chmod("sub", 0o555); err != nil {
		return err
	}
	killed(round, "guarded")
	return nil
}

// elsewhere works in another directory.
func elsewhere(round int) error {
	dir := fmt.Sprintf("work%d", round%2)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	f, err := os.OpenFile("names", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, round, f.Name()); err != nil {
		return err
	}
	killed(round, "elsewhere")
	return errors.Join(f.Close(), os.Chdir(".."))
}
