package cairn

import "embed"

// source is the source code of package resume, of this package and of all
// packages of Cairn that they import, without tests. 'cairn build' compiles it
// into programs. Only this package can embed these files, and programs have no
// use for them; so internal/source reads the variable by its linker name, and
// only programs that import internal/source contain it.
//
// The patterns leave out files whose names end in _test.go.
//
//go:embed *[^t].go
//go:embed resume/*[^t].go resume/*.s
//go:embed internal/ckpt/*[^t].go internal/ckpt/*[^s]t.go
//go:embed internal/coord/*[^t].go internal/coord/*[^s]t.go
//go:embed internal/hdf5/*[^t].go internal/hdf5/*[^s]t.go
//go:embed internal/control/*[^t].go internal/control/*[^s]t.go
//go:embed internal/decode/*[^t].go
//go:embed internal/dl/*[^t].go
//go:embed internal/engine/*[^t].go internal/engine/*[^s]t.go internal/engine/*[^t]est.go
//go:embed internal/graph/*[^t].go internal/graph/*[^s]t.go internal/graph/*.s
//go:embed internal/journal/*[^t].go
//go:embed internal/migrate/*[^t].go
//go:embed internal/mem/*[^t].go internal/mem/*[^t]est.go internal/mem/*.s
//go:embed internal/p2p/*[^t].go internal/p2p/*[^s]t.go internal/p2p/*[^t]est.go
//go:embed internal/step/*[^t].go
//go:embed internal/vfs/*[^t].go
//go:embed mpi/*[^t].go mpi/*[^t]est.go
//go:embed internal/store/*[^t].go
//go:embed internal/transport/transport.go
//go:embed internal/transport/mem/*[^t].go
//go:embed internal/transport/mpilib/*[^t].go internal/transport/mpilib/*[^s]t.go
//go:embed internal/transport/shm/*[^t].go
//go:embed internal/transport/tcp/*[^t].go
var source embed.FS
