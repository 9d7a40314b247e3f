/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Run kernels without a GPU: parse PTX text into decoded instructions and
 * execute them for all threads of a block in step.
 *
 * The interpreter knows the PTX that nvcc makes of plain kernels: integers of
 * all sizes, float and double, half and bfloat16 as numbers, all state spaces,
 * atomics, barriers, warp shuffles and votes, calls of functions. It does not
 * know recursion, textures, tensor cores or clusters, and refuses a module with
 * any of these by name and line. Terms are those of "Parallel Thread Execution
 * ISA", NVIDIA.
 *
 * The interpreter does not depend on the driver. It reaches memory through a
 * function of the caller.
 */
#ifndef CUEMU_PTX_H_
#define CUEMU_PTX_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUEMU_PTX_ERROR_SIZE 256
#define CUEMU_PTX_MAX_PLACES 32

typedef struct cuemu_ptx_module cuemu_ptx_module_t;
typedef struct cuemu_ptx_kernel cuemu_ptx_kernel_t;

/* A variable of the module: .global or .const */
typedef struct {
    const char *name;
    uint64_t    size;     /* bytes */
    uint64_t    align;
    const void *init;     /* `size` bytes; NULL: zeros */
    uint64_t    address;  /* address of the memory allocated by the caller */
    int         managed;  /* also accessible by the host */
} cuemu_ptx_global_t;

typedef struct {
    const char *name;
    unsigned    num_params;
    uint32_t    params_size;     /* bytes, all parameters */
    uint32_t    shared_size;     /* bytes, static */
    uint32_t    local_size;      /* bytes a thread */
    unsigned    max_threads;     /* limit of a block's threads; 0: not given */
    unsigned    num_registers;   /* virtual registers */
    unsigned    num_instructions;
} cuemu_ptx_info_t;

typedef enum {
    CUEMU_PTX_OK = 0,
    CUEMU_PTX_NO_MEMORY,
    CUEMU_PTX_SYNTAX,        /* not PTX */
    CUEMU_PTX_NOT_KNOWN,     /* valid PTX, not supported here */
    CUEMU_PTX_BAD_ADDRESS,   /* a run-time error, as the next two */
    CUEMU_PTX_MISALIGNED,
    CUEMU_PTX_TRAP,
    CUEMU_PTX_ASSERT,
    CUEMU_PTX_DEADLOCK,      /* threads wait for others, and none can run */
    CUEMU_PTX_TIMEOUT        /* more instructions than the launch allows */
} cuemu_ptx_status_t;

/*
 * Parse a module; `lazy`: each of its kernels on its first use, as in a long
 * module. On SYNTAX, NOT_KNOWN or NO_MEMORY `error` (CUEMU_PTX_ERROR_SIZE
 * bytes) holds one sentence with the line.
 */
cuemu_ptx_status_t cuemu_ptx_load(const char *text, size_t size, int lazy,
                                  cuemu_ptx_module_t **module_p, char *error);
void cuemu_ptx_unload(cuemu_ptx_module_t *module);

/* Return the kernel of this name, or with `name` NULL the index-th one; NULL if
   the module has no such kernel. */
cuemu_ptx_kernel_t *cuemu_ptx_kernel(cuemu_ptx_module_t *module,
                                     const char *name, unsigned index);

/* Parse a kernel on its first use. If it is refused, `error`
   holds one sentence. */
cuemu_ptx_status_t cuemu_ptx_kernel_parse(cuemu_ptx_kernel_t *kernel,
                                          char *error);
void cuemu_ptx_kernel_info(const cuemu_ptx_kernel_t *kernel,
                           cuemu_ptx_info_t *info);

/* Set the offset and the size of a parameter, both in bytes. */
void cuemu_ptx_kernel_param(const cuemu_ptx_kernel_t *kernel, unsigned index,
                            uint32_t *offset_p, uint32_t *size_p);

/* Return the index-th variable, NULL past the last one. The caller sets all
   addresses before anything runs. */
cuemu_ptx_global_t *cuemu_ptx_global(cuemu_ptx_module_t *module,
                                     unsigned index);

/* Store addresses in initial values: call it once all addresses are set, and
   before copying initial values. */
void cuemu_ptx_link(cuemu_ptx_module_t *module);

/* Memory that a kernel may use: begin <= address < end */
typedef struct cuemu_ptx_range {
    uint64_t begin, end;
    char    *memory;    /* where `begin` is; NULL: not accessible */
    int      writable;
    int      place;     /* bytes count for this place, < MAX_PLACES */
} cuemu_ptx_range_t;

typedef struct {
    uint64_t read[CUEMU_PTX_MAX_PLACES];    /* bytes */
    uint64_t written[CUEMU_PTX_MAX_PLACES];
    uint64_t instructions;                  /* times threads */
    uint64_t blocks;
    uint64_t slept;                         /* ns, of the longest block */
} cuemu_ptx_count_t;

/* Grid and block are in threads and blocks: x, y, z. */
typedef struct {
    unsigned    grid[3], block[3];
    uint32_t    dynamic_shared;     /* bytes */
    const void *params;             /* params_size bytes */
    uint64_t    first, last;        /* blocks to run, first <= i < last; block
                                       i is x + grid.x * (y + grid.y * z) */
    int         dry;                /* count only: no store is made */
    int         together;           /* blocks may wait for each other */
    uint64_t    workspace;          /* zeros for their barrier (%envreg1, 2) */
    uint64_t    max_instructions;   /* times threads; 0: any number */

    /* Find the range around an address. Called again for each page of
       CUEMU_PTX_PAGE bytes, so ranges may be larger. */
    void      (*map)(void *arg, uint64_t address, cuemu_ptx_range_t *range);
    void       *arg;
    uint64_t  (*clock)(void *arg);  /* nanoseconds; NULL: no clock */
} cuemu_ptx_launch_t;

#define CUEMU_PTX_PAGE 65536

/*
 * Run blocks of a kernel, one after the other unless `together`, and add to
 * `count`. Several
 * threads may run blocks of a kernel at the same time. Returns OK, NO_MEMORY,
 * or a run-time error with a sentence in `error` that names kernel, line, block
 * and thread.
 */
cuemu_ptx_status_t cuemu_ptx_run(const cuemu_ptx_kernel_t *kernel,
                                 const cuemu_ptx_launch_t *launch,
                                 cuemu_ptx_count_t *count, char *error);

#ifdef __cplusplus
}
#endif

#endif
