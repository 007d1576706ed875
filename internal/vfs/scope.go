package vfs

import "context"

type contextKey struct{}

// With returns a context that has a file system for Of. It is for simulations,
// which open runs through packages that do not deal with file systems.
func With(ctx context.Context, fsys FS) context.Context {
	return context.WithValue(ctx, contextKey{}, fsys)
}

// Of returns the file system that With put into a context.
func Of(ctx context.Context) (fsys FS, ok bool) {
	fsys, ok = ctx.Value(contextKey{}).(FS)
	return fsys, ok
}
