// Package source holds the source code that 'cairn build' compiles into
// programs.
package source

import (
	"embed"
	_ "unsafe" // for go:linkname

	_ "github.com/cairnrun/cairn" // has the files
)

// Files are the files of package resume and of all packages of Cairn that it
// imports, by their paths in this module. They are the variable source of
// package cairn, at the root of the module: an embed pattern cannot lead out of
// its own directory.
//
//go:linkname Files github.com/cairnrun/cairn.source
var Files embed.FS
