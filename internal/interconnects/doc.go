// Package interconnects takes one run of eight ranks through all kinds of
// interconnects and layouts. It lets examples/ring send its message around,
// stops it with a checkpoint after a number of steps, and resumes it elsewhere.
// This is the experiment of figure 2 in Hursey, Mattox and Lumsdaine,
// Interconnect agnostic checkpoint/restart in Open MPI (2009), with network
// namespaces for hosts.
//
// The end-to-end tests check what it finds; "make interconnects" draws it
// (docs/interconnects.svg).
package interconnects
