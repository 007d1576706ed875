package vfs

import "context"

type contextKey struct{}

// With returns a context in which Of finds fsys: for simulations, whose runs
// are opened by packages that know nothing of file systems.
func With(ctx context.Context, fsys FS) context.Context {
	return context.WithValue(ctx, contextKey{}, fsys)
}

// Of returns the file system that With has put into a context, if there is one.
func Of(ctx context.Context) (fsys FS, ok bool) {
	fsys, ok = ctx.Value(contextKey{}).(FS)
	return fsys, ok
}
