/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Messages of a pool's memory by a program with a context of its own, while the
 * GPU's primary context is inactive. Two ranks; every byte is compared.
 */
#include "util.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int ctx_sizes[] = {64, 5000, 70000, 3 << 20, 33 << 20};

static void *ctx_driver;

/* Call a driver function; end the program unless the result is 0. */
#define CTX_CALL(_name, _types, ...) \
    do { \
        int (*function_) _types = (int (*) _types)dlsym(ctx_driver, _name); \
        int result_ = (function_ == NULL) ? -1 : function_(__VA_ARGS__); \
        if (result_ != 0) { \
            ucx_mp_die(UCX_MP_EXIT_WRONG, "%s: %d", _name, result_); \
        } \
    } while (0)

static int ctx_message(int rank, int number, void *stream)
{
    const int size       = ctx_sizes[number];
    unsigned char *bytes = malloc(size);
    void *memory;
    int i, wrong = 0;

    if (bytes == NULL) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "out of memory");
    }

    CTX_CALL("cuMemAllocAsync", (void **, size_t, void *), &memory, size,
             stream);
    CTX_CALL("cuStreamSynchronize", (void *), stream);
    memset(bytes, 1 + number + 100 * rank, size);
    CTX_CALL("cuMemcpyHtoD_v2", (void *, const void *, size_t), memory, bytes,
             size);
    if (rank == 0) {
        MPI_Send(memory, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv(memory, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        CTX_CALL("cuMemcpyDtoH_v2", (void *, const void *, size_t), bytes,
                 memory, size);
        for (i = 0; i < size; ++i) {
            wrong += (bytes[i] != 1 + number);
        }
    }

    CTX_CALL("cuMemFreeAsync", (void *, void *), memory, stream);
    CTX_CALL("cuStreamSynchronize", (void *), stream);
    free(bytes);
    return wrong > 0;
}

int main(int argc, char **argv)
{
    const int count = (int)(sizeof(ctx_sizes) / sizeof(ctx_sizes[0]));
    int rank, size, gpus, i, wrong = 0, all;
    void *context, *stream;

    ucx_mp_program = "ucx_mp_context";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&rank, &size);
    ctx_driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if ((size != 2) || (ctx_driver == NULL)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs two ranks and a GPU");
    }

    CTX_CALL("cuInit", (unsigned), 0);
    CTX_CALL("cuDeviceGetCount", (int *), &gpus);
    CTX_CALL("cuCtxCreate_v2", (void **, unsigned, int), &context, 0,
             rank % gpus);
    CTX_CALL("cuStreamCreate", (void **, unsigned), &stream, 1);
    for (i = 0; i < count; ++i) {
        wrong += ctx_message(rank, i, stream);
    }

    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ucx_mp_context: %d messages, %d wrong\n", count, all);
    }
    return ucx_mp_finish(all > 0);
}
