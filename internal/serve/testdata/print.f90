! A program for the tests of module cairn: it prints a line per step, and is killed once.
program print_steps
  use cairn
  use iso_c_binding
  implicit none
  interface
    integer(c_int) function c_raise(sig) bind(C, name="raise")
      import :: c_int
      integer(c_int), value :: sig
    end function c_raise
  end interface
  type(cairn_run) :: run
  integer, target :: step
  integer :: ignored
  logical :: restored
  character(len=200) :: dir
  call get_command_argument(1, dir)
  step = 0
  call cairn_open(run, dir)
  call cairn_protect(run, "step", step)
  call cairn_restore(run, restored)
  do while (step < 1000)
    call cairn_point(run)
    if (step == 500) call cairn_checkpoint(run)
    if (step == 900 .and. .not. restored) ignored = c_raise(9)
    write (*, '(a, i0)') "step ", step
    step = step + 1
  end do
  call cairn_finish(run)
  call cairn_close(run)
end program print_steps
