// Package journey takes a run of eight ranks through all kinds of
// interconnects and layouts: it lets examples/ring send its message around,
// stops it with a checkpoint after so many steps, and goes on elsewhere. It is
// the experiment of figure 2 in Hursey, Mattox and Lumsdaine, Interconnect
// agnostic checkpoint/restart in Open MPI (2009), with network namespaces for
// hosts.
//
// The end-to-end tests check what it finds; "make journey" draws it
// (docs/journey.svg).
package interconnects
