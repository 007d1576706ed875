// Command move measures what it takes to move ranks from host to host
// ('cairn migrate', docs/migration.md), and draws it as docs/migration.svg. The
// figures are those of Cores et al.
//
//	go run ./internal/bench/move [-part pipeline,programs,pause] [-rounds N] [-o FILE]
//
// "make migration" runs it, as root: hosts are network namespaces of this
// machine, on links whose rate is limited. What is compared is measured in turn,
// round by round; medians are shown, as ratios, and it is these that bounds are
// for. Ratios of the shortest times are shown beside them: where these are much
// smaller, others were using the machine.
//
// The parts:
//
//	pipeline   a rank with 1 GiB of random bytes, that are not sent ahead: how
//	           long it takes against the slowest of its three stages alone, and
//	           against doing them one after the other. The stages alone are
//	             write     finding and digesting the state, to nowhere
//	             transfer  the same bytes from memory to memory, on the same link
//	             read      checking and placing them, from memory
//	           Likewise with chunks of several sizes, and sent ahead; and
//	           memory of source and destination, against what the program has by
//	           itself
//	programs   NPB FT, MG and CG, 8 ranks on two hosts: 1, half and all ranks
//	           of one of them move
//	pause      a rank of 2 GiB that changes 5 % between two points, sent ahead:
//	           how long it is held, against a copy of all of it
package main
