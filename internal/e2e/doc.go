// Package e2e tests Cairn from the outside: it builds programs that use it,
// starts them, kills them, starts them again, also on other architectures,
// and compares what they leave behind with an uninterrupted run, byte for
// byte. It has no code of its own.
//
// The tests need a Unix system. What else one needs (qemu, h5dump, h5py, the
// right to mount or to make network namespaces, mpirun, Slurm) it says when it
// skips. With CAIRN_LONG=1 there are ten times as many kills; CAIRN_SEED
// chooses the moments of those in runs of several ranks.
package e2e
