/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An end of a copy: a GPU, host memory, host memory that the CPU may not touch,
 * a GPU that this process does not see, or none. A type of its own, so that the
 * compiler finds where an ordinal, an index and "not a GPU" are mixed up.
 */
#ifndef UCT_CUDA_BASE_END_H
#define UCT_CUDA_BASE_END_H

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


/** GPUs that topologies, plans and what is kept of links have room for. Copies
 *  of further ones are plain. */
#define UCT_CUDA_MAX_GPUS 16

/** Ends with a place in tables: those GPUs, and host memory. */
#define UCT_CUDA_NUM_ENDS (UCT_CUDA_MAX_GPUS + 1)


/** Zeroed memory is "none". The number is nobody's business but this file's. */
typedef struct {
    int16_t id; /**< GPU n: n + 1; 0: none; below: host, hidden, host VMM */
} uct_cuda_end_t;


static inline uct_cuda_end_t uct_cuda_end_none(void)
{
    const uct_cuda_end_t end = {0};

    return end;
}

static inline uct_cuda_end_t uct_cuda_end_host(void)
{
    const uct_cuda_end_t end = {-1};

    return end;
}

/** A GPU that this process does not see (CUDA_VISIBLE_DEVICES). */
static inline uct_cuda_end_t uct_cuda_end_hidden(void)
{
    const uct_cuda_end_t end = {-2};

    return end;
}

/**
 * Host memory made with cuMemCreate (a location of HOST_NUMA, say). GPUs reach
 * it as cuMemSetAccess has let them, and the CPU perhaps not at all: only the
 * driver may copy it. No plan has a place for it.
 */
static inline uct_cuda_end_t uct_cuda_end_host_vmm(void)
{
    const uct_cuda_end_t end = {-3};

    return end;
}

/** @param device  The driver's ordinal, from 0 on. */
static inline uct_cuda_end_t uct_cuda_end_gpu(int device)
{
    const uct_cuda_end_t end = {(int16_t)(device + 1)};

    return end;
}


static inline bool uct_cuda_end_equal(uct_cuda_end_t a, uct_cuda_end_t b)
{
    return a.id == b.id;
}

static inline bool uct_cuda_end_is_none(uct_cuda_end_t end)
{
    return end.id == 0;
}

static inline bool uct_cuda_end_is_host(uct_cuda_end_t end)
{
    return uct_cuda_end_equal(end, uct_cuda_end_host());
}

static inline bool uct_cuda_end_is_hidden(uct_cuda_end_t end)
{
    return uct_cuda_end_equal(end, uct_cuda_end_hidden());
}

static inline bool uct_cuda_end_is_host_vmm(uct_cuda_end_t end)
{
    return uct_cuda_end_equal(end, uct_cuda_end_host_vmm());
}

static inline bool uct_cuda_end_is_gpu(uct_cuda_end_t end)
{
    return end.id > 0;
}

/** Is it this very GPU? */
static inline bool uct_cuda_end_is_device(uct_cuda_end_t end, int device)
{
    return uct_cuda_end_equal(end, uct_cuda_end_gpu(device));
}

/** Ordinal of an end that is a GPU. */
static inline int uct_cuda_end_device(uct_cuda_end_t end)
{
    return end.id - 1;
}


/** Host memory, or one of the first GPUs: has it a place in tables? */
static inline bool uct_cuda_end_has_index(uct_cuda_end_t end)
{
    return uct_cuda_end_is_host(end) ||
           (uct_cuda_end_is_gpu(end) && (end.id <= UCT_CUDA_MAX_GPUS));
}

/** That place, below UCT_CUDA_NUM_ENDS: GPUs by ordinal, host memory last. */
static inline unsigned uct_cuda_end_index(uct_cuda_end_t end)
{
    return uct_cuda_end_is_host(end) ? UCT_CUDA_MAX_GPUS :
                                       (unsigned)end.id - 1;
}

static inline uct_cuda_end_t uct_cuda_end_at(unsigned index)
{
    return (index == UCT_CUDA_MAX_GPUS) ? uct_cuda_end_host() :
                                          uct_cuda_end_gpu((int)index);
}

/** It alone in a set of ends, a bit each. */
static inline uint32_t uct_cuda_end_bit(uct_cuda_end_t end)
{
    return 1u << uct_cuda_end_index(end);
}


/** "gpu2", "host", "host vmm", "hidden gpu" or "none". Returns @a buffer. */
const char *uct_cuda_end_str(uct_cuda_end_t end, char *buffer, size_t size);


END_C_DECLS

#endif
