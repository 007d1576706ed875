! cairn_open_mpi of module cairn, for programs that use an MPI library. Compile
! it and cairn_fortran_mpi.c with the MPI library's compilers.
submodule (cairn) cairn_mpi
  implicit none

  interface
    integer(c_int) function open_mpi(run, comm, dir, options) bind(C, name="cairn_f_open_mpi")
      import :: c_int, c_ptr, c_options, cairn_run
      type(cairn_run), intent(inout) :: run
      type(*), intent(in) :: comm(..)
      type(c_ptr), value :: dir
      type(c_options), intent(in) :: options
    end function open_mpi
  end interface

contains

  module procedure cairn_open_mpi
    call cairn_open_by(open_mpi, run, comm, dir, options, stat, errmsg)
  end procedure cairn_open_mpi
end submodule cairn_mpi
