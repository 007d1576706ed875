! Heat in a plate, by rows, on all processes of an MPI program.
!
!     mpif90 $(pkg-config --variable=fortran_mpi cairn) heat.f90 $(pkg-config --cflags --libs cairn) -o heat
!     mpirun -n 4 ./heat 2000 1000       # kill it, start it again: it resumes
!     cairn run --launcher mpirun -n 4 ./heat 2000 1000   # ... by itself
program heat
  use cairn
  use mpi_f08
  use, intrinsic :: iso_fortran_env, only: error_unit, output_unit, real64
  implicit none
  type(cairn_run) :: run
  type(cairn_options) :: options
  integer, target :: step
  real(real64), allocatable, target :: u(:, :)
  real(real64), allocatable :: next(:, :)
  real(real64) :: total, everything
  integer :: rank, ranks, up, down, n, rows, steps, i, k
  logical :: resumed, stopped
  character(len=200) :: dir

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  steps = argument(1, 1000)
  n = argument(2, 500)
  options%every_points = argument(3, 0)
  dir = "heat.ckpt"
  if (command_argument_count() >= 4) call get_command_argument(4, dir)

  rows = n / ranks + merge(1, 0, rank < mod(n, ranks)) + 2 ! two belong to the neighbours
  up = merge(rank - 1, MPI_PROC_NULL, rank > 0)
  down = merge(rank + 1, MPI_PROC_NULL, rank < ranks - 1)
  allocate (u(n, rows), next(n, rows), source=0.0_real64)
  if (rank == 0) u(:, 1) = 100 ! a hot edge
  step = 0
  stopped = .false.

  call cairn_open_mpi(run, MPI_COMM_WORLD, dir, options)
  call cairn_protect(run, "step", step)
  call cairn_protect(run, "u", u) ! u[rows][n] of C
  call cairn_restore(run, resumed)
  if (rank == 0 .and. resumed) write (error_unit, '(a, i0)') "resumed at step ", step

  do while (step < steps)
    call cairn_point(run, stopped) ! all messages were received: a safe point
    if (stopped) exit
    call MPI_Sendrecv(u(:, 2), n, MPI_DOUBLE_PRECISION, up, 0, &
      u(:, rows), n, MPI_DOUBLE_PRECISION, down, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(u(:, rows - 1), n, MPI_DOUBLE_PRECISION, down, 1, &
      u(:, 1), n, MPI_DOUBLE_PRECISION, up, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    do i = 2, rows - 1
      do k = 2, n - 1
        next(k, i) = 0.25_real64 * (u(k, i - 1) + u(k, i + 1) + u(k - 1, i) + u(k + 1, i))
      end do
    end do
    u(2:n - 1, 2:rows - 1) = next(2:n - 1, 2:rows - 1)
    step = step + 1
  end do

  if (.not. stopped) then
    total = 0
    do i = 2, rows - 1
      do k = 1, n
        total = total + u(k, i)
      end do
    end do
    call MPI_Reduce(total, everything, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD)
    if (rank == 0) write (output_unit, '(a, es24.16e3)') "heat ", everything
    flush (output_unit)
    call cairn_finish(run)
  end if
  call cairn_close(run)
  call MPI_Finalize()

contains

  ! argument returns a number of the command line.
  integer function argument(i, otherwise)
    integer, intent(in) :: i, otherwise
    character(len=20) :: text
    argument = otherwise
    if (command_argument_count() < i) return
    call get_command_argument(i, text)
    read (text, *) argument
  end function argument
end program heat
