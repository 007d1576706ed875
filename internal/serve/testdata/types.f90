! A program for the tests of module cairn: variables of all types, arrays that
! cannot be protected, and a file.
!
!     types DIR FILE
!
! The first start saves a checkpoint and changes everything; the second one
! restores it and checks every value.
program types
  use cairn
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env
  implicit none
  integer, parameter :: quad = max(selected_real_kind(30), kind(1d0)), extended = selected_real_kind(18)
  integer, parameter :: wide = selected_int_kind(30), ucs4 = selected_char_kind("ISO_10646")
  type, bind(C) :: particle
    integer(c_int) :: id
    real(c_double) :: at(3)
  end type particle
  type :: tree
    integer :: id
    real, allocatable :: values(:)
  end type tree
  interface
    subroutine end_now(status) bind(C, name="_exit")
      import :: c_int
      integer(c_int), value :: status
    end subroutine end_now
  end interface
  type(cairn_run) :: run
  integer, target :: step
  integer(int8), target :: i1
  integer(int16), target :: i2(3)
  integer(int64), target :: i8
  integer(wide), target :: i16
  real(real32), target :: r4
  real(real64), target :: u(4, 3, 2)
  real(real64), allocatable, target :: lower(:, :), none(:), unset(:)
  real(real64), pointer :: p(:)
  real(extended), target :: r10
  real(quad), target :: r16(2)
  complex(real32), target :: c4
  complex(real64), target :: c8(2)
  logical, target :: l
  logical(c_bool), target :: b(2)
  character(len=5), target :: words(2)
  character(len=:), allocatable, target :: text
  character(kind=ucs4, len=2), target :: wide_text
  type(particle), target :: particles(2)
  type(tree), target :: t
  type(c_ptr), target :: address
  character(len=200) :: dir, file
  character(len=300) :: message
  integer :: stat, i, rank, out
  integer(int64) :: extents(3)
  logical :: restored

  call cairn_point(run, stat=stat, errmsg=message)
  call refused("not open")
  call cairn_protect(run, "step", step, stat, message)
  call refused("not open")
  call get_command_argument(1, dir)
  call get_command_argument(2, file)
  call cairn_open(run, "/dev/null/ckpt", stat=stat, errmsg=message)
  call expect(stat < 0 .and. len_trim(message) > 0, "a directory that cannot be")
  call cairn_open(run, dir, cairn_options(every=1000000, keep=3))
  call cairn_stored(run, "u", rank, extents)
  if (rank >= 0) call expect(rank == 3 .and. all(extents == shape(u)), "cairn_stored")
  if (rank >= 0) then
    call cairn_stored(run, "none", rank, extents)
    call expect(rank == 1 .and. extents(1) == 0, "cairn_stored of an array without elements")
  end if

  allocate (lower(-1:1, 5:6), none(0))
  text = "Fortran"
  call fill(1)
  call cairn_protect(run, "step", step)
  call cairn_protect(run, "i1", i1)
  call cairn_protect(run, "i2", i2)
  call cairn_protect(run, "i8 ", i8)
  call cairn_protect(run, "i16", i16)
  call cairn_protect(run, "r4", r4)
  call cairn_protect(run, "u", u)
  call cairn_protect(run, "lower", lower)
  call cairn_protect(run, "none", none)
  call cairn_protect(run, "r10", r10)
  call cairn_protect(run, "r16", r16)
  call cairn_protect(run, "c4", c4)
  call cairn_protect(run, "c8", c8)
  call cairn_protect(run, "l", l)
  call cairn_protect(run, "b", b)
  call cairn_protect(run, "words", words)
  call cairn_protect(run, "text", text)
  call cairn_protect(run, "wide_text", wide_text)
  call cairn_protect_bytes(run, "particles", particles)

  call cairn_protect(run, "x", u(:, 2, :), stat, message)
  call refused("not contiguous")
  call cairn_protect(run, "x", u(4:1:-1, 1, 1), stat, message)
  call refused("not contiguous")
  call cairn_protect(run, "x", particles%id, stat, message)
  call refused("not contiguous")
  call cairn_protect(run, "x", unset, stat, message)
  call refused("not allocated")
  nullify (p)
  call cairn_protect(run, "x", p, stat, message)
  call refused("not associated")
  call cairn_protect(run, "x", particles, stat, message)
  call refused("cairn_protect_bytes")
  call cairn_protect(run, "x", t, stat, message)
  call refused("cairn_protect_bytes")
  call cairn_protect(run, "x", address, stat, message)
  call refused("address")
  call cairn_protect(run, "", step, stat, message)
  call refused("a name has 1 to 200 bytes")
  call cairn_unprotect(run, "") ! else cairn_restore fails
  call cairn_protect(run, "a/b", step, stat, message)
  call refused("no '/'")
  call cairn_unprotect(run, "a/b")
  call assumed_size(u)
  call cairn_restore(run, stat=stat, errmsg=message)
  call refused("""x"" has no address; the state is incomplete")
  call cairn_unprotect(run, "x") ! what was refused is not left out in silence
  p => u(:, 1, 1) ! a section without gaps
  call cairn_protect(run, "section", p)
  call cairn_unprotect(run, "section")
  call cairn_unprotect(run, "section", stat, message)
  call refused("section")
  call cairn_point(run, stat=stat, errmsg=message)
  call refused("cairn_restore")

  call cairn_protect_file(run, file)
  open (newunit=out, file=file, position="append")
  call cairn_restore(run, stat=stat, errmsg=message)
  call refused("is open")
  close (out)
  call cairn_restore(run, restored)
  open (newunit=out, file=file, position="append")
  if (restored) then
    call check()
    write (out, '(a)') "resumed"
    call cairn_finish(run)
    call cairn_close(run)
    write (*, '(a)') "restored"
    flush (output_unit)
    call end_now(0_c_int) ! nothing may be left in the file's buffer
  end if
  write (out, '(a)') "first" ! it is in the unit's buffer when the checkpoint is saved
  call cairn_begin(run)
  call cairn_add(run, "u")
  u = 0 ! the checkpoint has it as it was
  call cairn_add(run, "x", stat, message)
  call refused('"x"')
  call cairn_commit(run)
  call cairn_wait(run)
  call expect(cairn_last(run) == 1, "cairn_last")
  call cairn_point(run, stat=stat)
  call expect(stat == cairn_ok, "cairn_point")
  write (out, '(a)') "second"
  call fill(2)
  call cairn_close(run)
  write (*, '(a)') "saved"

contains

  subroutine fill(k)
    integer, intent(in) :: k
    step = k
    i1 = int(-k, int8)
    i2 = int([k, 2, 3], int16)
    i8 = 2_int64**40 + k
    i16 = 2_wide**100 + k
    r4 = 0.5 * k
    u = reshape([(real(i, real64) * k, i=1, 24)], shape(u))
    lower = reshape([(real(i, real64) + k, i=1, 6)], shape(lower))
    r10 = 1.0_extended / (3 * k)
    r16 = [1.0_quad / (7 * k), 2.0_quad]
    c4 = cmplx(k, 2)
    c8 = [cmplx(k, 3, real64), cmplx(4, k, real64)]
    l = k == 1
    b = [k == 1, k == 2]
    words = merge(["hello", "world"], ["HELLO", "WORLD"], k == 1)
    text = merge("Fortran", "FORTRAN", k == 1)
    wide_text = repeat(char(int(z"263A") + k, ucs4), 2)
    do i = 1, 2
      particles(i) = particle(i * k, [1.0_c_double, 2.0_c_double, real(k, c_double)])
    end do
  end subroutine fill

  subroutine check()
    call expect(step == 1 .and. i1 == -1 .and. all(i2 == [1, 2, 3]), "integers")
    call expect(i8 == 2_int64**40 + 1 .and. i16 == 2_wide**100 + 1, "wide integers")
    call expect(r4 == 0.5 .and. all(u == reshape([(real(i, real64), i=1, 24)], shape(u))), "reals")
    call expect(lbound(lower, 1) == -1 .and. lower(-1, 5) == 2 .and. lower(1, 6) == 7, "lower bounds")
    call expect(r10 == 1.0_extended / 3 .and. r16(1) == 1.0_quad / 7, "wide reals")
    call expect(c4 == (1, 2) .and. c8(1) == (1, 3) .and. c8(2) == (4, 1), "complex")
    call expect(l .and. b(1) .and. .not. b(2), "logical")
    call expect(words(1) == "hello" .and. words(2) == "world" .and. text == "Fortran", "characters")
    call expect(wide_text == repeat(char(int(z"263A") + 1, ucs4), 2), "wide characters")
    call expect(particles(2)%id == 2 .and. particles(2)%at(3) == 1, "bytes of derived types")
  end subroutine check

  subroutine assumed_size(a)
    real(real64), target :: a(4, *)
    call cairn_protect(run, "x", a, stat, message)
    call refused("assumed-size")
  end subroutine assumed_size

  subroutine refused(why)
    character(len=*), intent(in) :: why
    call expect(stat < 0 .and. index(message, why) > 0, "want " // why // ", have " // trim(message))
  end subroutine refused

  subroutine expect(right, what)
    logical, intent(in) :: right
    character(len=*), intent(in) :: what
    if (right) return
    write (error_unit, '(2a)') "wrong: ", what
    error stop
  end subroutine expect
end program types
