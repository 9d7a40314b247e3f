! SPDX-License-Identifier: BSD-3-Clause
!
! Fortran's three ways to MPI, on GPU buffers: sums in place and not, a root's
! broadcast, and MPI_BOTTOM with an absolute address. What the GPUs did by
! themselves is counted.

module gpu
    use, intrinsic :: iso_c_binding
    implicit none

    integer, parameter :: count = 3000
    integer(c_int), parameter :: device = 0
    integer(c_size_t), parameter :: bytes = 4 * count
    real, target :: host(count)
    integer :: wrong = 0

    interface
        function ucx_mp_gpu_init(rank, why, size) bind(C) result(gpus)
            import
            integer(c_int), value :: rank
            character(kind=c_char) :: why(*)
            integer(c_size_t), value :: size
            integer(c_int) :: gpus
        end function
        function ucx_mp_mem_alloc(mem, size) bind(C) result(ptr)
            import
            integer(c_int), value :: mem
            integer(c_size_t), value :: size
            type(c_ptr) :: ptr
        end function
        subroutine ucx_mp_mem_write(mem, dst, src, size) bind(C)
            import
            integer(c_int), value :: mem
            type(c_ptr), value :: dst, src
            integer(c_size_t), value :: size
        end subroutine
        subroutine ucx_mp_mem_read(mem, dst, src, size) bind(C)
            import
            integer(c_int), value :: mem
            type(c_ptr), value :: dst, src
            integer(c_size_t), value :: size
        end subroutine
        function ucx_mp_on_gpus() bind(C) result(calls)
            import
            integer(c_long) :: calls
        end function
    end interface

contains

    subroutine fill(buffer, value)
        real, pointer, contiguous, intent(in) :: buffer(:)
        real, intent(in) :: value

        host = value
        call ucx_mp_mem_write(device, c_loc(buffer), c_loc(host), bytes)
    end subroutine

    subroutine expect(what, buffer, value)
        character(*), intent(in) :: what
        real, pointer, contiguous, intent(in) :: buffer(:)
        real, intent(in) :: value

        host = -1
        call ucx_mp_mem_read(device, c_loc(host), c_loc(buffer), bytes)
        if (any(host /= value)) then
            print '(3a,f8.1,a,f8.1)', 'ucx_mp_f08: ', what, ': ', host(1), &
                ', not ', value
            wrong = wrong + 1
        end if
    end subroutine

end module

subroutine by_mpif(send, recv, rank, ranks)
    use gpu
    implicit none
    include 'mpif.h'
    real, pointer, contiguous, intent(in) :: send(:), recv(:)
    integer, intent(in) :: rank, ranks
    real :: total
    integer :: ierror

    total = real(ranks * (ranks + 1) / 2)
    call fill(send, real(rank + 1))
    call fill(recv, real(rank + 1))
    call MPI_ALLREDUCE(send, recv, count, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, &
                       ierror)
    call expect('mpif.h', recv, total)
    call fill(recv, real(rank + 1))
    call MPI_ALLREDUCE(MPI_IN_PLACE, recv, count, MPI_REAL, MPI_SUM, &
                       MPI_COMM_WORLD, ierror)
    call expect('mpif.h, in place', recv, total)
end subroutine

subroutine by_mpi(send, recv, rank, ranks)
    use gpu
    use mpi
    implicit none
    real, pointer, contiguous, intent(in) :: send(:), recv(:)
    integer, intent(in) :: rank, ranks
    integer(MPI_ADDRESS_KIND) :: address(1)
    integer :: ierror, there, lengths(1), types(1)

    call fill(send, real(rank + 1))
    call fill(recv, 0.)
    call MPI_SCAN(send, recv, count, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierror)
    call expect('use mpi, a scan', recv, real((rank + 1) * (rank + 2) / 2))

    address = transfer(c_loc(recv), address)
    lengths = count
    types   = MPI_REAL
    call MPI_TYPE_CREATE_STRUCT(1, lengths, address, types, there, ierror)
    call MPI_TYPE_COMMIT(there, ierror)
    call fill(recv, real(7 * rank))
    call MPI_BCAST(MPI_BOTTOM, 1, there, ranks - 1, MPI_COMM_WORLD, ierror)
    call expect('use mpi, at MPI_BOTTOM', recv, real(7 * (ranks - 1)))
    call MPI_TYPE_FREE(there, ierror)
end subroutine

subroutine by_mpi_f08(send, recv, rank, ranks)
    use gpu
    use mpi_f08
    implicit none
    real, pointer, contiguous, intent(in) :: send(:), recv(:)
    integer, intent(in) :: rank, ranks
    type(MPI_Comm) :: comm
    type(MPI_Request) :: request
    character(MPI_MAX_ERROR_STRING) :: text
    integer :: error, length, far

    call MPI_Comm_dup(MPI_COMM_WORLD, comm)
    call fill(recv, real(rank + 1))
    call MPI_Allreduce(MPI_IN_PLACE, recv, count, MPI_REAL, MPI_MAX, comm)
    call expect('mpi_f08, in place', recv, real(ranks))
    call fill(recv, real(7 * rank))
    call MPI_Bcast(recv, count, MPI_REAL, ranks - 1, comm)
    call expect('mpi_f08, a broadcast', recv, real(7 * (ranks - 1)))
    call fill(send, real(rank + 1))
    call fill(recv, 0.)
    far = mod(rank + 1, ranks)
    call MPI_Sendrecv(send, count, MPI_REAL, far, 1, recv, count, MPI_REAL, &
                      mod(rank + ranks - 1, ranks), 1, comm, MPI_STATUS_IGNORE)
    call expect('mpi_f08, a message', recv, real(mod(rank + ranks - 1, ranks) &
                                                 + 1))

    call MPI_Iallreduce(send, recv, count, MPI_REAL, MPI_MAX, comm, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call expect('mpi_f08, a request', recv, real(ranks))
    call MPI_Comm_free(comm)
end subroutine

program ucx_mp_f08
    use gpu
    use mpi
    implicit none
    interface
        subroutine by_mpif(send, recv, rank, ranks)
            real, pointer, contiguous, intent(in) :: send(:), recv(:)
            integer, intent(in) :: rank, ranks
        end subroutine
        subroutine by_mpi(send, recv, rank, ranks)
            real, pointer, contiguous, intent(in) :: send(:), recv(:)
            integer, intent(in) :: rank, ranks
        end subroutine
        subroutine by_mpi_f08(send, recv, rank, ranks)
            real, pointer, contiguous, intent(in) :: send(:), recv(:)
            integer, intent(in) :: rank, ranks
        end subroutine
    end interface
    real, pointer, contiguous :: send(:), recv(:)
    character(kind=c_char) :: why(256)
    integer :: rank, ranks, ierror, all

    call MPI_INIT(ierror)
    call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierror)
    call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, ierror)
    if (ucx_mp_gpu_init(rank, why, 256_c_size_t) == 0) then
        print '(a)', 'ucx_mp_f08: needs a GPU'
        call MPI_ABORT(MPI_COMM_WORLD, 2, ierror)
    end if
    call c_f_pointer(ucx_mp_mem_alloc(device, bytes), send, [count])
    call c_f_pointer(ucx_mp_mem_alloc(device, bytes), recv, [count])

    call by_mpif(send, recv, rank, ranks)
    call by_mpi(send, recv, rank, ranks)
    call by_mpi_f08(send, recv, rank, ranks)

    call MPI_ALLREDUCE(wrong, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, &
                       ierror)
    if (rank == 0) then
        print '(a,i0,a,i0,a)', 'ucx_mp_f08: ', ucx_mp_on_gpus(), &
            ' calls by GPUs, ', all, ' wrong'
    end if
    call MPI_FINALIZE(ierror)
    if (all > 0) stop 1
end program
