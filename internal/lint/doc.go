// Package lint holds the rules that the module's source keeps, as a test:
// which package may import which, how long files are, and what libraries
// leave to programs. It has no code of its own.
package lint
