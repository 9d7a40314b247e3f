/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Two ranks exchange messages of GPU memory that they have not allocated: the
 * other rank's memory, imported by an IPC handle, the descriptor of cuMemCreate
 * memory, or a pool, and a variable of device code. Memory with a descriptor is
 * open to the importer's GPU only. Every byte is compared, also by the owner of
 * imported memory.
 *
 *   ucx_mp_imported [handle] [descriptor] [pool] [variable]    (default: all)
 */
#define _GNU_SOURCE
#include "driver.h"
#include "gpu.h"
#include "pattern.h"
#include "util.h"

#include <mpi.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define IMPORTED_SIZE   ((size_t)8 << 20)
#define IMPORTED_POISON 0x5a

enum {
    BY_HANDLE,
    BY_DESCRIPTOR,
    BY_POOL,
    VARIABLE,
    KINDS
};

static const char *const kind_names[] = {"handle", "descriptor", "pool",
                                         "variable"};

static int imported_rank, imported_wrong, imported_messages;

static void exchange(const void *mine, void *other, size_t size)
{
    MPI_Sendrecv(mine, (int)size, MPI_BYTE, !imported_rank, 0, other, (int)size,
                 MPI_BYTE, !imported_rank, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

/* Import the other rank's memory, which *owned_p is at its owner. */
static ucx_mp_ptr_t import_handle(ucx_mp_ptr_t *owned_p)
{
    ucx_mp_ptr_t imported;
    ucx_mp_handle_t mine, other;

    UCX_MP_DRIVER(alloc, owned_p, IMPORTED_SIZE);
    UCX_MP_DRIVER(ipc_get, &mine, *owned_p);
    exchange(&mine, &other, sizeof(mine));
    UCX_MP_DRIVER(ipc_open, &imported, other, 1);
    return imported;
}

static ucx_mp_ptr_t map(unsigned long long handle)
{
    ucx_mp_access_t access = {.location_type = 1, .flags = 3};
    ucx_mp_ptr_t ptr;

    UCX_MP_DRIVER(get_device, &access.location);
    UCX_MP_DRIVER(reserve, &ptr, IMPORTED_SIZE, 0, 0, 0);
    UCX_MP_DRIVER(map, ptr, IMPORTED_SIZE, 0, handle, 0);
    UCX_MP_DRIVER(set_access, ptr, IMPORTED_SIZE, &access, 1);
    return ptr;
}

/* Exchange descriptors. The other rank duplicates `fd`, which this closes.
   @return A descriptor of this process */
static void *exchange_descriptors(int fd)
{
    const int mine[2] = {getpid(), fd};
    int other[2], pidfd, copy;

    exchange(mine, other, sizeof(mine));
    pidfd = (int)syscall(SYS_pidfd_open, other[0], 0);
    copy  = (int)syscall(SYS_pidfd_getfd, pidfd, other[1], 0);
    if (copy < 0) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "cannot get a descriptor of rank %d: %m",
                   !imported_rank);
    }

    close(pidfd);
    MPI_Barrier(MPI_COMM_WORLD);
    close(fd);
    return (void*)(intptr_t)copy;
}

static ucx_mp_ptr_t import_descriptor(ucx_mp_ptr_t *owned_p)
{
    unsigned long long handle, imported;
    void *other;
    int fd;

    UCX_MP_DRIVER(create, &handle, IMPORTED_SIZE, &ucx_mp_driver.prop, 0);
    UCX_MP_DRIVER(fd_export, &fd, handle, 1, 0);
    other = exchange_descriptors(fd);
    UCX_MP_DRIVER(fd_import, &imported, other, 1);
    close((int)(intptr_t)other);
    *owned_p = map(handle);
    return map(imported);
}

static ucx_mp_ptr_t import_pool(ucx_mp_ptr_t *owned_p)
{
    ucx_mp_access_t access = {.location_type = 1, .flags = 3};
    void *pool             = ucx_mp_driver_pool(), *imported, *other_fd;
    ucx_mp_handle_t mine, other;
    ucx_mp_ptr_t ptr;
    int fd;

    UCX_MP_DRIVER(pool_export, &fd, pool, 1, 0);
    other_fd = exchange_descriptors(fd);
    UCX_MP_DRIVER(pool_import, &imported, other_fd, 1, 0);
    close((int)(intptr_t)other_fd);
    UCX_MP_DRIVER(get_device, &access.location);
    UCX_MP_DRIVER(pool_access, imported, &access, 1);
    UCX_MP_DRIVER(alloc_from_pool, owned_p, IMPORTED_SIZE, pool, NULL);
    UCX_MP_DRIVER(stream_synchronize, NULL);
    UCX_MP_DRIVER(pointer_export, &mine, *owned_p);
    exchange(&mine, &other, sizeof(mine));
    UCX_MP_DRIVER(pointer_import, &ptr, imported, &other);
    return ptr;
}

static ucx_mp_ptr_t find_variable(void)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .global .align 16 .b8 field[8388608];";
    ucx_mp_ptr_t ptr;
    void *module;
    size_t size;

    UCX_MP_DRIVER(module_load, &module, ptx);
    UCX_MP_DRIVER(module_global, &ptr, &size, module, "field");
    return ptr;
}

static void check(ucx_mp_ptr_t ptr, size_t size, uint64_t seed, int kind,
                  const char *what)
{
    imported_wrong |= ucx_mp_pattern_is_wrong(
            UCX_MP_MEM_DEVICE, (uint8_t*)ptr, size, seed, IMPORTED_POISON,
            "%s by %s", what, kind_names[kind]);
}

/* Rank 0 sends to rank 1, and the other way around. */
static void send_over(ucx_mp_ptr_t from, ucx_mp_ptr_t to, size_t size, int kind)
{
    const uint64_t seed = size + (uint64_t)kind;
    int sender;

    for (sender = 0; sender < 2; ++sender) {
        if (imported_rank == sender) {
            ucx_mp_pattern_fill(UCX_MP_MEM_DEVICE, (uint8_t*)from, size, seed);
            MPI_Send((void*)from, (int)size, MPI_BYTE, !sender, 0,
                     MPI_COMM_WORLD);
        } else {
            MPI_Recv((void*)to, (int)size, MPI_BYTE, sender, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            check(to, size, seed, kind, "message");
            ++imported_messages;
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void test_kind(int kind, ucx_mp_ptr_t plain)
{
    static const size_t sizes[] = {1, 1000, 8192, 300001, 1 << 20,
                                   IMPORTED_SIZE};
    ucx_mp_ptr_t owned = 0, ptr;
    size_t i;

    ptr = (kind == BY_HANDLE)     ? import_handle(&owned) :
          (kind == BY_DESCRIPTOR) ? import_descriptor(&owned) :
          (kind == BY_POOL)       ? import_pool(&owned) :
                                    find_variable();
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        send_over(ptr, plain, sizes[i], kind);
        send_over(plain, ptr, sizes[i], kind);
        if (owned != 0) {
            check(owned, sizes[i], sizes[i] + (uint64_t)kind, kind,
                  "owner's memory");
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static bool is_named(int kind, char **names)
{
    while ((*names != NULL) && strcmp(*names, kind_names[kind])) {
        ++names;
    }
    return *names != NULL;
}

int main(int argc, char **argv)
{
    ucx_mp_ptr_t plain;
    int size, kind;

    ucx_mp_program = "ucx_mp_imported";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&imported_rank, &size);
    if (size != 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs two ranks");
    }

    ucx_mp_gpu_require(imported_rank);
    ucx_mp_driver_load();

    if (argc == 1) { /* first what hooks on allocations have not seen */
        plain = find_variable();
        test_kind(VARIABLE, plain);
    }

    UCX_MP_DRIVER(alloc, &plain, IMPORTED_SIZE);
    for (kind = 0; kind < KINDS; ++kind) {
        if ((argc == 1) || is_named(kind, argv + 1)) {
            test_kind(kind, plain);
        }
    }

    if (imported_messages == 0) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "%s is no kind of memory", argv[1]);
    }

    printf("ucx_mp_imported: rank %d, %d messages, %s\n", imported_rank,
           imported_messages, imported_wrong ? "WRONG" : "0 wrong");
    return ucx_mp_finish(imported_wrong);
}
