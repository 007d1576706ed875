"""Heat in a plate, by rows, on all processes of an MPI program.

    mpirun -n 4 python3 -m mpi4py heat.py 2000 1000    # kill it, start it again: it resumes
    cairn run --launcher mpirun -n 4 python3 -m mpi4py heat.py 2000 1000   # … by itself

With "-m mpi4py", an exception on one rank ends all of them.
"""

import sys

import cairn
import numpy as np
from mpi4py import MPI


def main(steps: int = 1000, n: int = 500, every_points: int = 0, directory: str = "heat.ckpt") -> None:
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    rows = n // ranks + (rank < n % ranks) + 2  # two belong to the neighbours
    up = rank - 1 if rank > 0 else MPI.PROC_NULL
    down = rank + 1 if rank < ranks - 1 else MPI.PROC_NULL
    u = np.zeros((rows, n))
    if rank == 0:
        u[0] = 100  # a hot edge
    step = np.zeros((), np.int32)  # as in C and Fortran; run.state.step would do for Python alone

    with cairn.open(directory, every_points=every_points, comm=world) as run:
        run.protect("step", step)
        run.protect("u", u)
        if run.restore() and rank == 0:
            print("resumed at step", step, file=sys.stderr)

        while step < steps:
            try:
                run.point()  # all messages were received: a safe point
            except cairn.NotSaved as e:
                print(f"rank {rank}: {e}", file=sys.stderr)
            world.Sendrecv(u[1], up, 0, u[-1], down, 0)
            world.Sendrecv(u[-2], down, 1, u[0], up, 1)
            u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
            step += 1

        # cumsum adds one number after the other, as C and Fortran do.
        total = world.reduce(u[1:-1].cumsum()[-1], MPI.SUM)
        if rank == 0:
            print(f"heat {total:.17g}", flush=True)
        run.finish()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*map(int, arguments[:3]), *arguments[3:])
