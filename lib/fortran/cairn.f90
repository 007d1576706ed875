! Module cairn: checkpoints for Fortran programs.
!
!     use cairn
!     type(cairn_run) :: run
!     logical :: stopped
!     call cairn_open(run, "ckpt", cairn_options(every=600))
!     call cairn_protect(run, "step", step)
!     call cairn_protect(run, "u", u)
!     call cairn_restore(run)
!     do while (step < steps)
!       call cairn_point(run, stopped)        ! saves when a checkpoint is due
!       if (stopped) exit                     ! saved: end now, resume later
!       ...
!     end do
!     if (.not. stopped) call cairn_finish(run)   ! only when the work is done
!     call cairn_close(run)
!
! Every procedure that can fail has the optional arguments stat and errmsg. With
! stat, an error sets it to a negative number. Without stat, an error ends the
! program with its text on the standard error. cairn.h describes all calls.
!
! The compiler must know that Cairn reads and writes the variables: give them the
! target attribute.
module cairn
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit, int64, output_unit
  implicit none
  private
  public :: cairn_run, cairn_options
  public :: cairn_open, cairn_open_mpi, cairn_protect, cairn_protect_bytes, cairn_unprotect, cairn_protect_file
  public :: cairn_stored, cairn_restore, cairn_point, cairn_checkpoint, cairn_save, cairn_wait
  public :: cairn_begin, cairn_add, cairn_commit, cairn_cancel, cairn_request, cairn_request_stop
  public :: cairn_last, cairn_rank, cairn_ranks, cairn_finish, cairn_close
  public :: cairn_open_by ! only for cairn_mpi.f90

  ! Values of stat.
  integer, parameter, public :: cairn_ok = 0, cairn_restored = 1, cairn_stopped = 2, cairn_saved = 3
  integer, parameter, public :: cairn_error = -1, cairn_argument = -2, cairn_notsaved = -3, cairn_mismatch = -4
  integer, parameter, public :: cairn_corrupt = -5, cairn_finished = -6, cairn_inuse = -7, cairn_nohelper = -8
  integer, parameter, public :: cairn_nomemory = -9

  ! cairn_run is a program's connection to its checkpoints.
  type, bind(C) :: cairn_run
    private
    type(c_ptr) :: handle = c_null_ptr         ! libcairn's
    type(c_ptr) :: files = c_null_ptr          ! a file_list
    type(c_funptr) :: finalize = c_null_funptr ! called when a stop ends the program
  end type cairn_run

  ! cairn_options are those of cairn.h. Zero means the default of each.
  type :: cairn_options
    real(c_double) :: every = 0              ! seconds between checkpoints
    integer(int64) :: every_points = 0       ! points between checkpoints
    real(c_double) :: mtbf = 0               ! seconds between failures
    integer :: keep = 0                      ! newest checkpoints to keep
    integer :: max_bases = 0                 ! older files that a checkpoint may need
    integer(int64) :: memory = 0             ! bound on the helper's memory for copies, in bytes
    character(len=16) :: compression = ""    ! "none", "zstd" or "gzip"
    logical :: fresh = .false.               ! consent to discard an earlier run
    logical :: no_signals = .false.          ! leave SIGTERM and SIGUSR1 alone
    logical :: no_tracking = .false.         ! needed for memory that a device writes
    logical :: group = .false.
    logical :: any_owner = .false.
    character(len=:), allocatable :: helper  ! path of the cairn command
    character(len=:), allocatable :: tiers   ! where checkpoints are kept besides, as 'cairn run --tiers'
  end type cairn_options

  ! c_options is cairn_options of cairn.h.
  type, bind(C) :: c_options
    integer(c_size_t) :: struct_size = 0
    real(c_double) :: every = 0
    integer(c_int64_t) :: every_points = 0
    real(c_double) :: mtbf = 0
    integer(c_int) :: keep = 0, max_bases = 0
    integer(c_int64_t) :: memory = 0
    type(c_ptr) :: compression = c_null_ptr
    integer(c_int) :: fresh = 0, no_signals = 0, no_tracking = 0, group = 0, any_owner = 0
    type(c_ptr) :: helper = c_null_ptr, tiers = c_null_ptr
  end type c_options

  ! protected_file is a file of the program, which libcairn has opened, too.
  type :: protected_file
    character(len=:), allocatable :: path
    type(c_ptr) :: stream = c_null_ptr
  end type protected_file

  type :: file_list
    type(protected_file), allocatable :: file(:)
  end type file_list

  interface
    ! cairn_protect makes a scalar or an array of any intrinsic type part of the
    ! state. Its memory must be contiguous, and must stay where it is. Called
    ! again with the same name, it changes the address or the shape. The file
    ! shows an array with its dimensions reversed, as C has them.
    subroutine cairn_protect(run, name, data, stat, errmsg) bind(C, name="cairn_f_protect")
      import :: cairn_run, c_int, c_char
      type(cairn_run), intent(in) :: run
      character(kind=c_char, len=*), intent(in) :: name
      type(*), target, asynchronous :: data(..)
      integer(c_int), intent(out), optional :: stat
      character(kind=c_char, len=*), intent(inout), optional :: errmsg
    end subroutine cairn_protect

    ! cairn_protect_bytes is cairn_protect for derived types. It stores the bytes
    ! as they are. The type must have no pointer and no allocatable component.
    subroutine cairn_protect_bytes(run, name, data, stat, errmsg) bind(C, name="cairn_f_protect_bytes")
      import :: cairn_run, c_int, c_char
      type(cairn_run), intent(in) :: run
      character(kind=c_char, len=*), intent(in) :: name
      type(*), target, asynchronous :: data(..)
      integer(c_int), intent(out), optional :: stat
      character(kind=c_char, len=*), intent(inout), optional :: errmsg
    end subroutine cairn_protect_bytes

    ! cairn_open_mpi is cairn_open for the processes of a communicator, of module
    ! mpi (an integer) or mpi_f08. It is collective. Call it after MPI_Init, and
    ! cairn_close before MPI_Finalize. cairn_mpi.f90 has it.
    module subroutine cairn_open_mpi(run, comm, dir, options, stat, errmsg)
      type(cairn_run), intent(out) :: run
      type(*), intent(in) :: comm(..)
      character(len=*), intent(in), optional :: dir
      type(cairn_options), intent(in), optional :: options
      integer, intent(out), optional :: stat
      character(len=*), intent(inout), optional :: errmsg
    end subroutine cairn_open_mpi
  end interface

  interface ! libcairn
    integer(c_int) function c_open(run, dir, options) bind(C, name="cairn_open")
      import :: c_int, c_ptr, c_options
      type(c_ptr), intent(out) :: run
      type(c_ptr), value :: dir
      type(c_options), intent(in) :: options
    end function c_open

    integer(c_int) function c_restore(run) bind(C, name="cairn_restore")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function c_restore

    integer(c_int) function c_point(run) bind(C, name="cairn_point")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function c_point

    integer(c_int) function c_checkpoint(run) bind(C, name="cairn_checkpoint")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function c_checkpoint

    integer(c_int) function c_save(run) bind(C, name="cairn_save")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function c_save

    integer(c_int) function c_wait(run) bind(C, name="cairn_wait")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function c_wait

    integer(c_int) function c_begin(run) bind(C, name="cairn_begin")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function c_begin

    integer(c_int) function c_commit(run) bind(C, name="cairn_commit")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function c_commit

    integer(c_int) function c_rank(run) bind(C, name="cairn_rank")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function c_rank

    integer(c_int) function c_ranks(run) bind(C, name="cairn_ranks")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function c_ranks

    integer(c_int) function c_close(run) bind(C, name="cairn_close")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function c_close

    integer(c_int) function c_unprotect(run, name) bind(C, name="cairn_unprotect")
      import :: c_int, c_ptr, c_char
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: name(*)
    end function c_unprotect

    integer(c_int) function c_add(run, name) bind(C, name="cairn_add")
      import :: c_int, c_ptr, c_char
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: name(*)
    end function c_add

    subroutine c_request(run) bind(C, name="cairn_request")
      import :: c_ptr
      type(c_ptr), value :: run
    end subroutine c_request

    subroutine c_request_stop(run) bind(C, name="cairn_request_stop")
      import :: c_ptr
      type(c_ptr), value :: run
    end subroutine c_request_stop

    subroutine c_cancel(run) bind(C, name="cairn_cancel")
      import :: c_ptr
      type(c_ptr), value :: run
    end subroutine c_cancel

    integer(c_int) function c_stored(run, name, element, most, dims) bind(C, name="cairn_stored")
      import :: c_int, c_ptr, c_char, c_size_t
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: element
      integer(c_int), value :: most
      integer(c_size_t), intent(out) :: dims(*)
    end function c_stored

    subroutine c_before_save(run, hook, context) bind(C, name="cairn_before_save")
      import :: c_ptr, c_funptr
      type(c_ptr), value :: run
      type(c_funptr), value :: hook
      type(c_ptr), value :: context
    end subroutine c_before_save

    integer(c_int64_t) function c_last(run) bind(C, name="cairn_last")
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: run
    end function c_last

    type(c_ptr) function c_fopen(run, path, mode) bind(C, name="cairn_fopen")
      import :: c_ptr, c_char
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: path(*), mode(*)
    end function c_fopen

    integer(c_int) function c_finish(run, status) bind(C, name="cairn_finish")
      import :: c_int, c_ptr
      type(c_ptr), value :: run
      integer(c_int), value :: status
    end function c_finish

    type(c_ptr) function c_error(run) bind(C, name="cairn_error")
      import :: c_ptr
      type(c_ptr), value :: run
    end function c_error

    integer(c_int) function c_fclose(stream) bind(C, name="fclose")
      import :: c_int, c_ptr
      type(c_ptr), value :: stream
    end function c_fclose

    subroutine c_exit(status) bind(C, name="exit")
      import :: c_int
      integer(c_int), value :: status
    end subroutine c_exit

    integer(c_size_t) function c_strlen(text) bind(C, name="strlen")
      import :: c_size_t, c_ptr
      type(c_ptr), value :: text
    end function c_strlen
  end interface

  abstract interface
    integer(c_int) function with_run(run) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: run
    end function with_run

    subroutine no_arguments() bind(C)
    end subroutine no_arguments

    integer(c_int) function opener(run, comm, dir, options) bind(C)
      import :: c_int, c_ptr, c_options, cairn_run
      type(cairn_run), intent(inout) :: run
      type(*), intent(in) :: comm(..)
      type(c_ptr), value :: dir
      type(c_options), intent(in) :: options
    end function opener
  end interface

contains

  ! cairn_open starts a run whose checkpoints are kept in a directory. Without
  ! dir, 'cairn run' says where.
  subroutine cairn_open(run, dir, options, stat, errmsg)
    type(cairn_run), intent(out) :: run
    character(len=*), intent(in), optional :: dir
    type(cairn_options), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(kind=c_char, len=:), allocatable, target :: path, compression, helper, tiers
    type(c_options) :: o
    integer(c_int) :: rc
    call pack_options(o, path, compression, helper, tiers, dir, options)
    rc = c_open(run%handle, text_or_null(path), o)
    call opened(run, int(rc), stat, errmsg)
  end subroutine cairn_open

  ! cairn_open_by opens a run with a function of C.
  subroutine cairn_open_by(open_comm, run, comm, dir, options, stat, errmsg)
    procedure(opener) :: open_comm
    type(cairn_run), intent(out) :: run
    type(*), intent(in) :: comm(..)
    character(len=*), intent(in), optional :: dir
    type(cairn_options), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(kind=c_char, len=:), allocatable, target :: path, compression, helper, tiers
    type(c_options) :: o
    integer(c_int) :: rc
    call pack_options(o, path, compression, helper, tiers, dir, options)
    rc = open_comm(run, comm, text_or_null(path), o)
    if (rc < 0 .and. .not. c_associated(run%handle)) then
      call report(run, int(rc), stat, errmsg, "cairn_open_mpi needs a communicator of module mpi or mpi_f08, and memory")
    else
      call opened(run, int(rc), stat, errmsg)
    end if
  end subroutine cairn_open_by

  ! opened ends an open: what failed leaves nothing behind.
  subroutine opened(run, rc, stat, errmsg)
    type(cairn_run), intent(inout) :: run
    integer, intent(in) :: rc
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer(c_int) :: ignored
    call report(run, rc, stat, errmsg)
    if (rc < 0) then
      ignored = c_close(run%handle)
      run%handle = c_null_ptr
      return
    end if
    call c_before_save(run%handle, c_funloc(flush_files), c_null_ptr)
  end subroutine opened

  ! pack_options converts options to C. The strings must live as long as o.
  subroutine pack_options(o, path, compression, helper, tiers, dir, options)
    type(c_options), intent(out) :: o
    character(kind=c_char, len=:), allocatable, target, intent(out) :: path, compression, helper, tiers
    character(len=*), intent(in), optional :: dir
    type(cairn_options), intent(in), optional :: options
    path = ""
    if (present(dir)) path = trim(dir)
    path = path // c_null_char
    o%struct_size = c_sizeof(o)
    if (.not. present(options)) return
    o%every = options%every
    o%every_points = options%every_points
    o%mtbf = options%mtbf
    o%keep = int(options%keep, c_int)
    o%max_bases = int(options%max_bases, c_int)
    o%memory = options%memory
    compression = trim(options%compression) // c_null_char
    o%compression = text_or_null(compression)
    o%fresh = merge(1_c_int, 0_c_int, options%fresh)
    o%no_signals = merge(1_c_int, 0_c_int, options%no_signals)
    o%no_tracking = merge(1_c_int, 0_c_int, options%no_tracking)
    o%group = merge(1_c_int, 0_c_int, options%group)
    o%any_owner = merge(1_c_int, 0_c_int, options%any_owner)
    if (allocated(options%helper)) then
      helper = trim(options%helper) // c_null_char
      o%helper = text_or_null(helper)
    end if
    if (allocated(options%tiers)) then
      tiers = trim(options%tiers) // c_null_char
      o%tiers = text_or_null(tiers)
    end if
  end subroutine pack_options

  type(c_ptr) function text_or_null(text)
    character(kind=c_char, len=*), intent(in), target :: text
    text_or_null = c_null_ptr
    if (text(1:1) /= c_null_char) text_or_null = c_loc(text)
  end function text_or_null

  ! cairn_unprotect takes a variable out of the state.
  subroutine cairn_unprotect(run, name, stat, errmsg)
    type(cairn_run), intent(in) :: run
    character(len=*), intent(in) :: name
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call report(run, int(c_unprotect(run%handle, trim(name) // c_null_char)), stat, errmsg)
  end subroutine cairn_unprotect

  ! cairn_protect_file makes a file that the program writes part of the state: a
  ! restart cuts it back to its length at the checkpoint. Call it before
  ! cairn_restore, and open the file after cairn_restore with position="append".
  ! The file is created; a run that does not resume empties it.
  subroutine cairn_protect_file(run, path, stat, errmsg)
    type(cairn_run), intent(inout) :: run
    character(len=*), intent(in) :: path
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(file_list), pointer :: list
    type(protected_file) :: f
    f%path = trim(path)
    if (is_open(f%path)) then
      call report(run, cairn_argument, stat, errmsg, &
        "file " // f%path // " is open: call cairn_protect_file and cairn_restore before you open it")
      return
    end if
    f%stream = c_fopen(run%handle, f%path // c_null_char, "w+" // c_null_char)
    if (.not. c_associated(f%stream)) then
      call report(run, cairn_error, stat, errmsg)
      return
    end if
    if (.not. c_associated(run%files)) then
      allocate (list)
      allocate (list%file(0))
      run%files = c_loc(list)
      call c_before_save(run%handle, c_funloc(flush_files), run%files)
    end if
    call c_f_pointer(run%files, list)
    list%file = [list%file, f]
    call report(run, cairn_ok, stat, errmsg)
  end subroutine cairn_protect_file

  ! flush_files writes what the program's units have in their buffers: unit *, which
  ! 'cairn run' makes part of the state, and those of protected files.
  integer(c_int) function flush_files(context) bind(C)
    type(c_ptr), value :: context
    type(file_list), pointer :: list
    integer :: i, unit, failed
    flush_files = 0
    flush (output_unit, iostat=failed)
    if (.not. c_associated(context)) return
    call c_f_pointer(context, list)
    do i = 1, size(list%file)
      inquire (file=list%file(i)%path, number=unit)
      if (unit == -1) cycle
      flush (unit, iostat=failed)
      if (failed /= 0) flush_files = 1
    end do
  end function flush_files

  logical function is_open(path)
    character(len=*), intent(in) :: path
    inquire (file=path, opened=is_open)
  end function is_open

  ! cairn_stored tells what the checkpoint holds under a name, before
  ! cairn_restore: the rank and the extents, in the order of Fortran. The rank is
  ! -1 if there is no checkpoint, or no such variable in it.
  subroutine cairn_stored(run, name, rank, extents, stat, errmsg)
    type(cairn_run), intent(in) :: run
    character(len=*), intent(in) :: name
    integer, intent(out) :: rank
    integer(int64), intent(out), optional :: extents(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer(c_size_t) :: dims(32)
    integer :: i
    dims = 0
    rank = int(c_stored(run%handle, trim(name) // c_null_char, c_null_ptr, size(dims, kind=c_int), dims))
    if (rank < 0 .and. rank /= cairn_mismatch) then
      call report(run, rank, stat, errmsg)
      rank = -1
      return
    end if
    rank = max(rank, -1)
    if (present(extents)) then
      extents = 0
      do i = 1, min(rank, size(extents))
        extents(i) = dims(rank - i + 1)
      end do
    end if
    call report(run, cairn_ok, stat, errmsg)
  end subroutine cairn_stored

  ! cairn_restore puts the newest good checkpoint's values into the protected
  ! variables. restored is false if there is no checkpoint.
  subroutine cairn_restore(run, restored, stat, errmsg)
    type(cairn_run), intent(in) :: run
    logical, intent(out), optional :: restored
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(file_list), pointer :: list
    integer :: rc, i
    if (present(restored)) restored = .false.
    if (c_associated(run%files)) then
      call c_f_pointer(run%files, list)
      do i = 1, size(list%file)
        if (.not. is_open(list%file(i)%path)) cycle
        call report(run, cairn_argument, stat, errmsg, "file " // list%file(i)%path // " is open: open it after cairn_restore")
        return
      end do
    end if
    rc = call_with(c_restore, run)
    if (present(restored)) restored = rc == cairn_restored
    call report(run, rc, stat, errmsg)
  end subroutine cairn_restore

  ! cairn_point is called where the state is consistent. It saves when a
  ! checkpoint is due. stopped: the state is saved, and the program should end.
  ! If the caller passes neither stopped nor stat, a stop ends the program here.
  ! Without stat, a checkpoint that fails is reported, and the program continues.
  subroutine cairn_point(run, stopped, stat, errmsg)
    type(cairn_run), intent(inout) :: run
    logical, intent(out), optional :: stopped
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    procedure(no_arguments), pointer :: finalize
    integer :: rc
    rc = call_with(c_point, run)
    if (present(stopped)) stopped = rc == cairn_stopped
    if (present(stat)) stat = rc
    if (rc >= 0 .and. rc /= cairn_stopped) return
    if (rc == cairn_notsaved .and. .not. present(stat)) then
      write (error_unit, '(2a)') "cairn: ", error_text(run)
      if (present(errmsg)) errmsg = error_text(run)
    else if (rc /= cairn_stopped) then
      call report(run, rc, stat, errmsg)
    else if (.not. present(stopped) .and. .not. present(stat)) then
      call cairn_close(run)
      if (c_associated(run%finalize)) then
        call c_f_procpointer(run%finalize, finalize)
        call finalize()
      end if
      stop
    end if
  end subroutine cairn_point

  ! cairn_checkpoint saves now, and returns when the checkpoint is durable.
  subroutine cairn_checkpoint(run, stat, errmsg)
    type(cairn_run), intent(in) :: run
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call report(run, call_with(c_checkpoint, run), stat, errmsg)
  end subroutine cairn_checkpoint

  ! cairn_save begins a checkpoint, and returns when the program may change its
  ! variables. cairn_wait waits until it is durable.
  subroutine cairn_save(run, stat, errmsg)
    type(cairn_run), intent(in) :: run
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call report(run, call_with(c_save, run), stat, errmsg)
  end subroutine cairn_save

  subroutine cairn_wait(run, stat, errmsg)
    type(cairn_run), intent(in) :: run
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call report(run, call_with(c_wait, run), stat, errmsg)
  end subroutine cairn_wait

  ! cairn_begin, cairn_add and cairn_commit take a checkpoint of variables that
  ! become ready one after the other. cairn_cancel forgets what was begun.
  subroutine cairn_begin(run, stat, errmsg)
    type(cairn_run), intent(in) :: run
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call report(run, call_with(c_begin, run), stat, errmsg)
  end subroutine cairn_begin

  subroutine cairn_add(run, name, stat, errmsg)
    type(cairn_run), intent(in) :: run
    character(len=*), intent(in) :: name
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call report(run, int(c_add(run%handle, trim(name) // c_null_char)), stat, errmsg)
  end subroutine cairn_add

  subroutine cairn_commit(run, stat, errmsg)
    type(cairn_run), intent(in) :: run
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call report(run, call_with(c_commit, run), stat, errmsg)
  end subroutine cairn_commit

  subroutine cairn_cancel(run)
    type(cairn_run), intent(in) :: run
    call c_cancel(run%handle)
  end subroutine cairn_cancel

  ! cairn_request makes the next point save.
  subroutine cairn_request(run)
    type(cairn_run), intent(in) :: run
    call c_request(run%handle)
  end subroutine cairn_request

  ! cairn_request_stop makes the next point save and stop.
  subroutine cairn_request_stop(run)
    type(cairn_run), intent(in) :: run
    call c_request_stop(run%handle)
  end subroutine cairn_request_stop

  ! cairn_last returns the index of the newest durable checkpoint; 0: none yet.
  integer(int64) function cairn_last(run)
    type(cairn_run), intent(in) :: run
    cairn_last = c_last(run%handle)
  end function cairn_last

  ! cairn_rank and cairn_ranks return who this process is among how many.
  integer function cairn_rank(run)
    type(cairn_run), intent(in) :: run
    cairn_rank = int(c_rank(run%handle))
  end function cairn_rank

  integer function cairn_ranks(run)
    type(cairn_run), intent(in) :: run
    cairn_ranks = int(c_ranks(run%handle))
  end function cairn_ranks

  ! cairn_finish says that the work is done: the next start is told so. Without
  ! it, the next start resumes.
  subroutine cairn_finish(run, status, stat, errmsg)
    type(cairn_run), intent(in) :: run
    integer, intent(in), optional :: status
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer(c_int) :: code
    if (flush_files(run%files) /= 0) then
      call report(run, cairn_error, stat, errmsg, &
        "what the program has written to a file cannot be flushed: the run has not finished")
      return
    end if
    code = 0
    if (present(status)) code = int(status, c_int)
    call report(run, int(c_finish(run%handle, code)), stat, errmsg)
  end subroutine cairn_finish

  ! cairn_close waits for a checkpoint that is being written, and ends the run.
  subroutine cairn_close(run, stat, errmsg)
    type(cairn_run), intent(inout) :: run
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(file_list), pointer :: list
    integer(c_int) :: rc, ignored
    integer :: i
    rc = c_close(run%handle)
    run%handle = c_null_ptr
    if (c_associated(run%files)) then
      call c_f_pointer(run%files, list)
      do i = 1, size(list%file)
        ignored = c_fclose(list%file(i)%stream)
      end do
      deallocate (list)
      run%files = c_null_ptr
    end if
    call report(run, int(rc), stat, errmsg, "the last checkpoint was not saved")
  end subroutine cairn_close

  ! call_with calls a function of libcairn, if the run is open.
  integer function call_with(f, run)
    procedure(with_run) :: f
    type(cairn_run), intent(in) :: run
    call_with = cairn_argument
    if (c_associated(run%handle)) call_with = int(f(run%handle))
  end function call_with

  ! report ends a call: with stat, or with the program's end.
  subroutine report(run, rc, stat, errmsg, text)
    type(cairn_run), intent(in) :: run
    integer, intent(in) :: rc
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: text
    character(len=:), allocatable :: t
    if (present(stat)) stat = rc
    if (rc >= 0) return
    if (present(text)) then
      t = text
    else
      t = error_text(run)
    end if
    if (present(errmsg)) errmsg = t
    if (present(stat)) return
    write (error_unit, '(2a)') "cairn: ", t
    call c_exit(1_c_int) ! error stop would also print where
  end subroutine report

  function error_text(run) result(text)
    type(cairn_run), intent(in) :: run
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: c(:)
    type(c_ptr) :: p
    integer :: i
    text = "the run is not open: call cairn_open first"
    if (.not. c_associated(run%handle)) return
    p = c_error(run%handle)
    call c_f_pointer(p, c, [c_strlen(p)])
    text = repeat(" ", size(c))
    do i = 1, size(c)
      text(i:i) = c(i)
    end do
  end function error_text
end module cairn
