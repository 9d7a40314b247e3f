/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Host memory of rank 0, sent to and received from a GPU buffer of rank 1
 * repeatedly, so that a transport might page-lock it. Then it is freed, in each
 * possible way, and other memory gets the same address. Compares every byte,
 * and asks the driver whether it treats memory as locked: then copies of the
 * new memory would use the old pages.
 */
#define _GNU_SOURCE
#include "driver.h"
#include "gpu.h"
#include "pattern.h"
#include "util.h"

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define REMAP_SIZE   ((size_t)32 << 20)
#define REMAP_OFFSET 100 /* offset of the message in its pages */
#define REMAP_USES   6
#define REMAP_POISON 0x5a
#define REMAP_LOCKED 1   /* CU_MEMORYTYPE_HOST */
#define REMAP_TYPE   2   /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */

enum {
    REMAP_UNMAP,    /* munmap, mmap */
    REMAP_OVER,     /* mmap over it */
    REMAP_DONTNEED, /* madvise: other pages at the same address */
    REMAP_MOVE,     /* mremap to another place, mmap */
    REMAP_PART,     /* munmap of a part, mmap */
    REMAP_FORK,     /* a child unmaps its copy, the parent goes on */
    REMAP_LAST
};

static const char *const remap_names[] = {"munmap",    "mmap over",
                                          "madvise",   "mremap",
                                          "part of it", "fork"};

static int remap_rank, remap_wrong, remap_locked;

/* Return whether the driver treats an address as page-locked memory. */
static int remap_is_locked(const void *ptr)
{
    unsigned type = 0;

    return (ucx_mp_driver.pointer_attribute(&type, REMAP_TYPE,
                                            (uintptr_t)ptr) == 0) &&
           (type == REMAP_LOCKED);
}

static void remap_check(ucx_mp_mem_t mem, const uint8_t *buf, uint64_t seed,
                        const char *what)
{
    remap_wrong |= ucx_mp_pattern_is_wrong(mem, buf, REMAP_SIZE, seed,
                                           REMAP_POISON, "%s", what);
}

/* Send there and back, with a new pattern each time. */
static void remap_exchange(uint8_t *host, uint8_t *device, uint64_t seed,
                           const char *what)
{
    if (remap_rank == 0) {
        ucx_mp_pattern_fill(UCX_MP_MEM_HOST, host, REMAP_SIZE, seed);
        MPI_Send(host, (int)REMAP_SIZE, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        memset(host, REMAP_POISON, REMAP_SIZE);
        MPI_Recv(host, (int)REMAP_SIZE, MPI_BYTE, 1, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        remap_check(UCX_MP_MEM_HOST, host, seed + 1, what);
    } else {
        MPI_Recv(device, (int)REMAP_SIZE, MPI_BYTE, 0, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        remap_check(UCX_MP_MEM_DEVICE, device, seed, what);
        ucx_mp_pattern_fill(UCX_MP_MEM_DEVICE, device, REMAP_SIZE, seed + 1);
        MPI_Send(device, (int)REMAP_SIZE, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

static void remap_map(uint8_t *at, size_t size)
{
    if (mmap(at, size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "mmap: %m");
    }
}

/* Free the memory, and put other memory in its place. */
static void remap_change(int how, uint8_t *pages, size_t size)
{
    const size_t part = REMAP_SIZE / 4;
    uint8_t *moved    = NULL;
    pid_t child;

    switch (how) {
    case REMAP_UNMAP:
        munmap(pages, size);
        remap_map(pages, size);
        break;
    case REMAP_OVER:
        remap_map(pages, size);
        break;
    case REMAP_DONTNEED:
        madvise(pages, size, MADV_DONTNEED);
        break;
    case REMAP_MOVE:
        moved = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        moved = mremap(pages, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, moved);
        remap_map(pages, size);
        munmap(moved, size);
        break;
    case REMAP_PART:
        munmap(pages + part, part);
        remap_map(pages + part, part);
        break;
    case REMAP_FORK:
        child = fork();
        if (child == 0) {
            munmap(pages, size);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        return;
    default:
        break;
    }

    if (remap_is_locked(pages + part + REMAP_OFFSET)) {
        ucx_mp_report("WRONG, %s: memory that has just come passes for locked",
                      remap_names[how]);
        remap_wrong = 1;
    }
}

int main(int argc, char **argv)
{
    const size_t size = REMAP_SIZE + 4096;
    uint8_t *pages = NULL, *device = NULL;
    int how, i, ranks, wrong = 0;

    ucx_mp_program = "ucx_mp_remap";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&remap_rank, &ranks);
    if (ranks != 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "two ranks are needed");
    }
    ucx_mp_gpu_require(remap_rank);
    ucx_mp_driver_load();

    if (remap_rank == 0) {
        pages = mmap(NULL, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    } else {
        device = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, REMAP_SIZE);
    }

    for (how = 0; how < REMAP_LAST; ++how) {
        for (i = 0; i < REMAP_USES; ++i) {
            remap_exchange(pages + REMAP_OFFSET, device,
                           (uint64_t)(1000 * how + 10 * i), remap_names[how]);
        }

        if (remap_rank == 0) {
            remap_locked += remap_is_locked(pages + REMAP_OFFSET);
            remap_change(how, pages, size);
        }
        remap_exchange(pages + REMAP_OFFSET, device,
                       (uint64_t)(1000 * how + 500), remap_names[how]);
    }

    if (remap_rank == 0) {
        munmap(pages, size);
    } else {
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, device);
    }

    MPI_Reduce(&remap_wrong, &wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (remap_rank == 0) {
        printf("ucx_mp_remap: %d ways, %d of them with locked memory, %d "
               "wrong\n", REMAP_LAST, remap_locked, wrong);
    }
    return ucx_mp_finish(remap_wrong);
}
