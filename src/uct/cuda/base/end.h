/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * End of a copy: a GPU, host memory, host memory not accessible to the CPU, a
 * GPU hidden from this process, or none. A separate type lets the compiler
 * detect confusion of ordinals, indices and "no GPU".
 */
#ifndef UCT_CUDA_BASE_END_H
#define UCT_CUDA_BASE_END_H

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Maximum GPUs in topologies, plans and records of links. Copies of further
 *  GPUs are plain copies. */
#define UCT_CUDA_MAX_GPUS 16

/** Ends with an index: those GPUs, and host memory. */
#define UCT_CUDA_NUM_ENDS (UCT_CUDA_MAX_GPUS + 1)


/** Kinds of ends. */
typedef enum {
    UCT_CUDA_END_NONE,
    UCT_CUDA_END_GPU,
    UCT_CUDA_END_HOST,
    UCT_CUDA_END_HIDDEN,  /**< GPU hidden from this process
                               (CUDA_VISIBLE_DEVICES) */
    /** Host memory from cuMemCreate (for example with a location of HOST_NUMA).
     *  GPUs access it as set by cuMemSetAccess, and the CPU perhaps not at all:
     *  only the driver may copy it. Plans do not support it. */
    UCT_CUDA_END_HOST_VMM
} uct_cuda_end_kind_t;


/** Zeroed memory means "none". */
typedef struct {
    uct_cuda_end_kind_t kind;
    int                 device; /**< Ordinal of a GPU */
} uct_cuda_end_t;


static inline uct_cuda_end_t uct_cuda_end_none(void)
{
    const uct_cuda_end_t end = {UCT_CUDA_END_NONE, 0};

    return end;
}

static inline uct_cuda_end_t uct_cuda_end_host(void)
{
    const uct_cuda_end_t end = {UCT_CUDA_END_HOST, -1};

    return end;
}

static inline uct_cuda_end_t uct_cuda_end_hidden(void)
{
    const uct_cuda_end_t end = {UCT_CUDA_END_HIDDEN, -1};

    return end;
}

static inline uct_cuda_end_t uct_cuda_end_host_vmm(void)
{
    const uct_cuda_end_t end = {UCT_CUDA_END_HOST_VMM, -1};

    return end;
}

/**
 * Return the end of a GPU. @param device  Ordinal of the driver
 */
static inline uct_cuda_end_t uct_cuda_end_gpu(int device)
{
    const uct_cuda_end_t end = {UCT_CUDA_END_GPU, device};

    return end;
}


static inline bool uct_cuda_end_equal(uct_cuda_end_t a, uct_cuda_end_t b)
{
    return (a.kind == b.kind) && (a.device == b.device);
}

static inline bool uct_cuda_end_is_none(uct_cuda_end_t end)
{
    return end.kind == UCT_CUDA_END_NONE;
}

static inline bool uct_cuda_end_is_host(uct_cuda_end_t end)
{
    return end.kind == UCT_CUDA_END_HOST;
}

static inline bool uct_cuda_end_is_hidden(uct_cuda_end_t end)
{
    return end.kind == UCT_CUDA_END_HIDDEN;
}

static inline bool uct_cuda_end_is_host_vmm(uct_cuda_end_t end)
{
    return end.kind == UCT_CUDA_END_HOST_VMM;
}

static inline bool uct_cuda_end_is_gpu(uct_cuda_end_t end)
{
    return end.kind == UCT_CUDA_END_GPU;
}

/** Return whether the end is this GPU. */
static inline bool uct_cuda_end_is_device(uct_cuda_end_t end, int device)
{
    return uct_cuda_end_equal(end, uct_cuda_end_gpu(device));
}

/** Return the ordinal of a GPU end. */
static inline int uct_cuda_end_device(uct_cuda_end_t end)
{
    return end.device;
}


/** Return whether an end has an index: host memory, or one of the first
 *  GPUs. */
static inline bool uct_cuda_end_has_index(uct_cuda_end_t end)
{
    return uct_cuda_end_is_host(end) ||
           (uct_cuda_end_is_gpu(end) && (end.device < UCT_CUDA_MAX_GPUS));
}

/** Return the index, below UCT_CUDA_NUM_ENDS: GPUs by ordinal, host memory
 *  last. */
static inline unsigned uct_cuda_end_index(uct_cuda_end_t end)
{
    return uct_cuda_end_is_host(end) ? UCT_CUDA_MAX_GPUS :
                                       (unsigned)end.device;
}

static inline uct_cuda_end_t uct_cuda_end_at(unsigned index)
{
    return (index == UCT_CUDA_MAX_GPUS) ? uct_cuda_end_host() :
                                          uct_cuda_end_gpu((int)index);
}

/** Return the mask with this end only. */
static inline uint32_t uct_cuda_end_bit(uct_cuda_end_t end)
{
    return 1u << uct_cuda_end_index(end);
}


/**
 * Format an end as "gpu2", "host", "host vmm", "hidden gpu" or "none". Returns
 * @a buffer.
 */
const char *uct_cuda_end_str(uct_cuda_end_t end, char *buffer, size_t size);

/**
 * Parse the name of an end with an index, "gpu2" or "host" in either case.
 *
 * @return false: another word, or a GPU without an index.
 */
bool uct_cuda_end_parse(const char *word, uct_cuda_end_t *end_p);


END_C_DECLS

#endif
