// Package lint checks rules for the module's source, as a test: which package
// may import which, how long files may be, and what only programs may do. It
// has no code of its own.
package lint
