// Command callbacks does its work in functions that the standard library calls:
// for each file of a tree, for each step of a search, and once.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"sync"
)

var (
	hash int
	once sync.Once
)

func mix(s string, n int) {
	for i := range n { //difftest:loop
		for _, c := range s {
			hash = (hash*31 + int(c) + i) % 9001
		}
	}
}

func visit(path string, e fs.DirEntry, err error) error {
	once.Do(func() { mix("once", 2) })
	if err != nil {
		fmt.Println("error", path, errors.Is(err, fs.ErrNotExist))
		return nil
	}
	mix(path, 2)
	fmt.Println(path, e.IsDir(), hash)
	if e.Name() == "d2" {
		return fs.SkipDir
	}
	return nil
}

func main() {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for i := range 9 {
		sub := filepath.Join("tree", fmt.Sprint("d", i%4))
		if err := os.MkdirAll(sub, 0o777); err != nil {
			panic(err)
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprint("f", i)), []byte{byte(i)}, 0o666); err != nil {
			panic(err)
		}
	}
	fmt.Println(filepath.WalkDir("tree", visit), filepath.WalkDir("none", visit))
	seen := 0
	err = filepath.Walk(filepath.Join(dir, "tree"), func(path string, info fs.FileInfo, err error) error {
		seen++
		mix(info.Name(), 1)
		switch {
		case err != nil:
			return err
		case info.Name() == "d1":
			return filepath.SkipDir
		case seen > 8:
			return filepath.SkipAll
		}
		return nil
	})
	fmt.Println(seen, err, hash)
	err = fs.WalkDir(os.DirFS("tree"), ".", func(path string, e fs.DirEntry, err error) error {
		mix(path, 1)
		if e.Name() == "f6" {
			return errors.New("f6")
		}
		return err
	})
	fmt.Println(err, hash)
	at := sort.Search(1000, func(i int) bool {
		mix("search", 1)
		return i*i > 70000
	})
	fmt.Println(at, hash)
}
