! A program for the tests of module cairn with module mpi: its second rank asks
! for a stop, which ends all ranks in cairn_point; the next start resumes.
program stop_and_resume
  use cairn
  use mpi
  implicit none
  type(cairn_run) :: run
  integer, target :: step
  integer :: rank, failed, stat
  logical :: restored
  character(len=200) :: dir, message
  call get_command_argument(1, dir)
  call MPI_Init(failed)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, failed)
  call cairn_open_mpi(run, [MPI_COMM_WORLD, MPI_COMM_WORLD], stat=stat, errmsg=message)
  if (stat /= cairn_argument .or. index(message, "communicator") == 0) error stop "an array is no communicator"
  step = 0
  call cairn_open_mpi(run, MPI_COMM_WORLD, dir)
  if (cairn_rank(run) /= rank .or. cairn_ranks(run) /= 2) error stop "other ranks than MPI's"
  call cairn_protect(run, "step", step)
  call cairn_restore(run, restored)
  if (restored) then
    if (step /= 10) error stop "the step is not that of the stop"
    if (rank == 0) write (*, '(a)') "resumed"
    call cairn_finish(run)
    call cairn_close(run)
    call MPI_Finalize(failed)
    stop
  end if
  step = 10
  if (rank == 1) call cairn_request_stop(run)
  do ! without the argument stopped, a stop ends the program
    call cairn_point(run)
  end do
end program stop_and_resume
