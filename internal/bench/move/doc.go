// Command move measures what happens between hosts: migrations of ranks ('cairn
// migrate', docs/migration.md) and storage tiers (docs/tiers.md). It draws the
// results as docs/migration.svg and docs/tiers.svg. The figures of migrations
// are those of Cores et al.
//
//	go run ./internal/bench/move [-rounds N] [-figures FILE] [-o FILE]
//		[-part pipeline,programs,pause,tiers,slowdown,coder]
//
// "make migration" and "make tiers" run it, as root: hosts are network
// namespaces of this machine, on links with a limited rate. Variants are
// measured in turn, round by round. Medians of ratios are shown, and bounds
// apply to them. Ratios of the shortest times are shown beside them: if these
// are much smaller, other programs were using the machine.
//
// With -figures, parts may be measured in several calls: the file keeps the
// figures of earlier ones for the picture.
//
// The parts:
//
//	pipeline   a rank with 1 GiB of random bytes, without precopy: how long
//	           the move takes compared with the slowest of its three stages
//	           alone. The stages alone are
//	             write     finding and digesting the state, without sending it
//	             transfer  the same bytes from memory to memory, on the same
//	                       link
//	             read      checking and placing them, from memory
//	           Also with chunks of several sizes, and with precopy; and the
//	           memory of source and destination, compared with what the
//	           program itself has
//	programs   NPB FT, MG and CG, 8 ranks on two hosts: 1, half and all ranks
//	           of one of them move
//	pause      a rank of 2 GiB that changes 5 % between two points, with
//	           precopy: its pause, compared with a copy of all of it
//	tiers      ranks of 64 MiB that change all of it between two points: how
//	           long each tier takes to have a checkpoint after its commit,
//	           compared with a plain copy over the same link, or to the same
//	           disk; the pause, compared with that without tiers; with all
//	           tiers busy, the pause and the processor time of a helper as
//	           part of 30 s, and its memory
//	slowdown   how much less a program computes while all tiers are busy. Its
//	           host has one processor, which it uses all the time; every
//	           other window of 30 s has a checkpoint
//	coder      the benchmarks of package erasure
package main
