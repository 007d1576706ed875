package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/mpilib"
	"github.com/cairnrun/cairn/internal/transport/shm"
	"github.com/cairnrun/cairn/internal/transport/tcp"
	"github.com/cairnrun/cairn/internal/vfs"
)

// identity is who this process is in its run: its rank, the number of ranks,
// and how it exchanges endpoints with the others. It comes from the supervisor
// or from the launcher of an MPI library or Slurm. A process without either is
// alone.
type identity struct {
	control.Welcome
	supervisor  *supervisor    // nil: there is none
	writer      *net.UnixConn  // to the helper's writer; nil: the writer is in this process
	tiers       *tierHelper    // if this process has started it; then it is also the supervisor
	mpi         *mpilib.Driver // if an MPI library's launcher started this process
	exchange    func(ctx context.Context, endpoint []byte) ([][]byte, error)
	driven      bool               // see Options.Driver
	testDrivers []transport.Driver // for tests: used by drivers
}

// singleIdentity is the identity of a process without other ranks.
func singleIdentity() *identity { return &identity{Welcome: control.Welcome{Size: 1}} }

// findIdentity finds out who this process is.
func findIdentity(ctx context.Context, opts *Options, log *slog.Logger) (*identity, error) {
	conn, writer, err := control.Inherit()
	switch {
	case err == nil:
		if opts.Tiers != "" { // those of 'cairn run' count
			opts.Dir, opts.PerHost = "", false
		}
		w, err := control.Join(conn, opts.Dir, opts.PerHost, opts.Tiers)
		if err != nil {
			return nil, fmt.Errorf("cairn: %w", err)
		}
		s := &identity{Welcome: *w, writer: writer, supervisor: supervised(conn), driven: opts.Driver != nil}
		if opts.Driver != nil {
			if err := opts.Driver.fits(w); err != nil {
				return nil, err
			}
		}
		s.exchange = s.supervisor.exchange
		if opts.Dir == "" || w.PerHost {
			opts.Dir = w.Dir
		}
		opts.PerHost = w.PerHost // otherwise the supervisor makes sure that there is one host
		opts.GroupReadable, opts.AnyOwner = opts.GroupReadable || w.Group, opts.AnyOwner || w.AnyOwner
		return s, nil
	case !errors.Is(err, control.ErrAlone):
		return nil, fmt.Errorf("cairn: %w", err)
	}
	if tiers := tiersOf(opts); tiers != "" {
		return joinTiers(ctx, opts, tiers, log)
	}
	if err := refuseRunDir(opts); err != nil {
		return nil, err
	}
	if opts.Driver != nil {
		return opts.Driver.identity(ctx)
	}
	s := singleIdentity()
	rank, size, launch, err := launched()
	if err != nil || size == 0 {
		return s, err
	}
	s.Rank, s.Size, s.Launch = rank, size, launch
	if size == 1 {
		return s, nil
	}
	if list := os.Getenv(envTransport); list != "" {
		s.Transports = strings.Split(list, ",")
	}
	if s.mpi, err = s.openMPI(); err == nil {
		if s.mpi.Rank() != rank || s.mpi.Size() != size {
			return nil, fmt.Errorf("cairn: the launcher says rank %d of %d, but the MPI library %s says rank %d of %d: name the library that belongs to the launcher in CAIRN_LIBMPI", rank, size, s.mpi.Library(), s.mpi.Rank(), s.mpi.Size())
		}
		s.exchange = func(_ context.Context, endpoint []byte) ([][]byte, error) { return s.mpi.Allgather(endpoint) }
	} else {
		if opts.PerHost {
			return nil, fmt.Errorf("cairn: rank %d of %d cannot find the others, since hosts do not share the directory %s: %w; or start the program with 'cairn run -n %d --local DIR'", rank, size, opts.Dir, err, size)
		}
		log.Info("cairn: no MPI library, ranks exchange their endpoints through the checkpoint directory", "reason", err)
		if launch == "" {
			return nil, fmt.Errorf("cairn: rank %d of %d cannot find the others: %w; or start the program with 'cairn run -n %d'", rank, size, err, size)
		}
		if err := vfs.MakeDir(opts.Dir, vfs.AccessFromEnv().With(opts.GroupReadable, opts.AnyOwner)); err != nil {
			return nil, fmt.Errorf("cairn: %w", err)
		}
		m := &fileBootstrap{dir: filepath.Join(opts.Dir, "bootstrap-"+launch), rank: rank, size: size}
		s.exchange = m.exchange
	}
	return s, s.agreeOnSecret(ctx)
}

// openMPI opens the MPI library if the launcher can connect it. Under an srun
// without --mpi the library would end the process: then openMPI does not try,
// unless the user names the library or the transport.
func (s *identity) openMPI() (*mpilib.Driver, error) {
	offered := slices.Contains(s.Transports, "mpi")
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_FD", "PMIX_RANK", mpilib.EnvLibrary} {
		offered = offered || os.Getenv(name) != ""
	}
	if !offered {
		return nil, errors.New("srun offers no MPI library a connection; give it --mpi=pmix or --mpi=pmi2 to use one")
	}
	return mpilib.Open(mpilib.Options{})
}

// joinMPI opens the MPI library in a destination, if the environment says that
// it can join the other ranks.
func (s *identity) joinMPI() (err error) {
	if os.Getenv(control.EnvJoin) == "" {
		return errors.New("with this launcher, later processes cannot join")
	}
	if _, size, _, err := launched(); err != nil || size != 1 {
		return errors.Join(errors.New("no launcher has started this process as a world of its own"), err)
	}
	if s.mpi, err = s.openMPI(); err != nil {
		return err
	}
	return s.mpi.OpenPort()
}

// envTransport lists the transports of a run without a supervisor.
const envTransport = "CAIRN_TRANSPORT"

// launched looks for a launcher in the environment. launch is a name for this
// start that all ranks know, if the launcher gives one.
func launched() (rank, size int, launch string, err error) {
	for _, l := range []struct{ rank, size, launch string }{
		{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"},
		{"PMI_RANK", "PMI_SIZE", ""},
		{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID"},
	} {
		r, n := os.Getenv(l.rank), os.Getenv(l.size)
		if r == "" || n == "" {
			continue
		}
		rank, err1 := strconv.Atoi(r)
		size, err2 := strconv.Atoi(n)
		if err1 != nil || err2 != nil || size < 1 || rank < 0 || rank >= size {
			return 0, 0, "", fmt.Errorf("cairn: the launcher left %s=%q and %s=%q in the environment, which make no sense", l.rank, r, l.size, n)
		}
		launch := os.Getenv(l.launch)
		if l.launch == "SLURM_JOB_ID" && launch != "" {
			launch += "." + os.Getenv("SLURM_STEP_ID") + "." + os.Getenv("SLURM_RESTART_COUNT")
		}
		launch = strings.Map(func(r rune) rune {
			if r == '/' || r < ' ' {
				return '_'
			}
			return r
		}, launch)
		return rank, size, launch, nil
	}
	return 0, 0, "", nil
}

// agreeOnSecret lets ranks without a supervisor agree on a launch name and a
// secret.
func (s *identity) agreeOnSecret(ctx context.Context) error {
	type greeting struct {
		Launch string
		Secret []byte
	}
	g := greeting{Launch: rand.Text(), Secret: make([]byte, 32)}
	rand.Read(g.Secret)
	raw, err := json.Marshal(g)
	if err != nil {
		return err
	}
	all, err := s.exchange(ctx, raw)
	if err != nil {
		return fmt.Errorf("cairn: the ranks cannot exchange their endpoints: %w", err)
	}
	if err := json.Unmarshal(all[0], &g); err != nil {
		return fmt.Errorf("cairn: greeting of rank 0: %w", err)
	}
	s.Launch, s.Secret = g.Launch, g.Secret
	s.Host, err = hostID()
	return err
}

// hostID identifies the host: ranks with the same ID share memory.
func hostID() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("cairn: %w", err)
	}
	net, _ := os.Readlink("/proc/self/ns/net")
	return name + " " + machineID() + " " + net, nil
}

// machineID identifies the machine whose processors the ranks share.
func machineID() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(boot))
}

// drivers opens the transports to use, in order of preference: shared memory
// inside a host; between hosts the MPI library whose launcher started this
// process, else TCP.
func (s *identity) drivers(log *slog.Logger) (list []transport.Driver, err error) {
	if s.testDrivers != nil {
		return s.testDrivers, nil
	}
	names := s.Transports
	chosen := len(names) > 0
	if !chosen {
		names = []string{"shm", "mpi", "tcp"}
		if s.driven { // the MPI library is the program's
			names = []string{"shm", "tcp"}
		}
	}
	defer func() {
		if err != nil {
			for _, d := range list {
				d.Close()
			}
		}
	}()
	if s.supervisor != nil && chosen && slices.Contains(names, "mpi") { // a destination may not belong to the library
		names = append(slices.Clone(names), "shm", "tcp")
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		if s.Move != nil && name == "mpi" {
			if err := s.joinMPI(); err != nil {
				log.Debug("cairn: a transport is not used", "transport", name, "reason", err)
			} else {
				list = append(list, s.mpi)
			}
			continue
		}
		var d transport.Driver
		var err error
		switch name {
		case "shm":
			d, err = shm.Open(shm.Options{Rank: s.Rank, Size: s.Size, Host: s.Host, Run: s.Launch})
		case "tcp", "tcp-reopen":
			d, err = tcp.Open(tcp.Options{Rank: s.Rank, Size: s.Size, Host: s.Host, Secret: s.Secret, Reopen: name == "tcp-reopen"})
		case "mpi":
			if rank, size, _, _ := launched(); s.mpi == nil && (size != s.Size || rank != s.Rank) {
				err = errors.New("the ranks were not started by the launcher of an MPI library; use 'cairn run --launcher mpirun'")
			} else if s.mpi == nil {
				s.mpi, err = s.openMPI()
			}
			d = s.mpi
		default:
			err = errors.New("there is no such transport; there are shm, tcp and mpi")
		}
		if err != nil && chosen {
			return list, fmt.Errorf("cairn: transport %s: %w", name, err)
		}
		if err != nil {
			if name != "mpi" || s.supervisor == nil {
				log.Debug("cairn: a transport is not used", "transport", name, "reason", err)
			}
			continue
		}
		list = append(list, d)
	}
	if s.mpi != nil && !slices.Contains(list, transport.Driver(s.mpi)) {
		list = append(list, &unused{s.mpi}) // the MPI library is connected with all ranks, and all must close it together
	}
	return list, nil
}

// unused is a driver that reaches no rank.
type unused struct{ transport.Driver }

func (u *unused) Name() string        { return "unused" }
func (u *unused) Address() []byte     { return nil }
func (u *unused) Reaches([]byte) bool { return false }
