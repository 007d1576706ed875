// Command move measures migrations of ranks from host to host ('cairn migrate',
// docs/migration.md), and draws the results as docs/migration.svg. The figures
// are those of Cores et al.
//
//	go run ./internal/bench/move [-part pipeline,programs,pause] [-rounds N] [-o FILE]
//
// "make migration" runs it, as root: hosts are network namespaces of this
// machine, on links with a limited rate. Variants are measured in turn, round
// by round. Medians of ratios are shown, and bounds apply to them. Ratios of
// the shortest times are shown beside them: if these are much smaller, other
// programs were using the machine.
//
// The parts:
//
//	pipeline   a rank with 1 GiB of random bytes, without precopy: how long
//	           the move takes compared with the slowest of its three stages
//	           alone. The stages alone are
//	             write     finding and digesting the state, without sending it
//	             transfer  the same bytes from memory to memory, on the same link
//	             read      checking and placing them, from memory
//	           Also with chunks of several sizes, and with precopy; and the
//	           memory of source and destination, compared with what the
//	           program itself has
//	programs   NPB FT, MG and CG, 8 ranks on two hosts: 1, half and all ranks
//	           of one of them move
//	pause      a rank of 2 GiB that changes 5 % between two points, with
//	           precopy: its pause, compared with a copy of all of it
package main
