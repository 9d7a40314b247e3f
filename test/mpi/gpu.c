/* SPDX-License-Identifier: BSD-3-Clause */

/* CUDA for the MPI programs, loaded at run time. */
#define _GNU_SOURCE
#include "driver.h"
#include "gpu.h"
#include "util.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UCX_MP_GPU_MANAGED_GLOBAL 1

static struct {
    void *lib;
    int present;
    int (*put)(ucx_mp_ptr_t dst, const void *src, size_t size);
    int (*get)(void *dst, ucx_mp_ptr_t src, size_t size);
} ucx_mp_gpu;

const char *const ucx_mp_mem_names[] = {"device", "host", "pinned", "managed",
                                        NULL};

const char *ucx_mp_gpu_error_name(int error)
{
    const char *name;

    if ((ucx_mp_driver.error_name(error, &name) != 0) || (name == NULL)) {
        return "unknown error";
    }
    return name;
}

static void ucx_mp_gpu_check(int error, const char *what, size_t size)
{
    if (error != 0) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "%s of %zu bytes failed: %s (%d)", what,
                   size, ucx_mp_gpu_error_name(error), error);
    }
}

int ucx_mp_gpu_local_rank(int rank)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK",
                                        "MPI_LOCALRANKID",
                                        "PMI_LOCAL_RANK",
                                        "MV2_COMM_WORLD_LOCAL_RANK",
                                        "SLURM_LOCALID"};
    const char *value;
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        value = getenv(names[i]);
        if ((value != NULL) && (*value >= '0') && (*value <= '9')) {
            return atoi(value);
        }
    }
    return rank;
}

int ucx_mp_gpu_load(char *why, size_t size)
{
    const ucx_mp_symbol_t symbols[] = {
        UCX_MP_DRIVER_BASE(UCX_MP_DRIVER_SYMBOL)
    };
    int error, count;
    void *lib;
    size_t i;

    lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (lib == NULL) {
        snprintf(why, size, "no CUDA driver: %s", dlerror());
        return 0;
    }
    for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); ++i) {
        *symbols[i].address_p = dlsym(lib, symbols[i].name);
        if (*symbols[i].address_p == NULL) {
            snprintf(why, size, "the CUDA driver has no %s", symbols[i].name);
            return 0;
        }
    }
    *(void**)&ucx_mp_gpu.put = dlsym(lib, "cuemu_put");
    *(void**)&ucx_mp_gpu.get = dlsym(lib, "cuemu_get");

    error = ucx_mp_driver.init(0);
    if (error != 0) {
        snprintf(why, size, "cuInit: %s (%d)", ucx_mp_gpu_error_name(error),
                 error);
        return 0;
    }
    error = ucx_mp_driver.device_count(&count);
    if ((error != 0) || (count == 0)) {
        snprintf(why, size, "the CUDA driver shows no GPU");
        return 0;
    }

    ucx_mp_gpu.lib     = lib;
    ucx_mp_gpu.present = 1;
    return count;
}

int ucx_mp_gpu_init(int local_rank, char *why, size_t size)
{
    const int count = ucx_mp_gpu_load(why, size);
    int device;
    void *ctx;

    if (count == 0) {
        return 0;
    }

    ucx_mp_gpu_check(ucx_mp_driver.device_get(&device, local_rank % count),
                     "cuDeviceGet", 0);
    ucx_mp_gpu_check(ucx_mp_driver.ctx_retain(&ctx, device),
                     "cuDevicePrimaryCtxRetain", 0);
    ucx_mp_gpu_check(ucx_mp_driver.ctx_set(ctx), "cuCtxSetCurrent", 0);
    return count;
}

int ucx_mp_gpu_require(int local_rank)
{
    char why[256];
    const int count = ucx_mp_gpu_init(local_rank, why, sizeof(why));

    if (count == 0) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs a GPU: %s", why);
    }
    return count;
}

void ucx_mp_gpu_enable_peers(void)
{
    void *ctxs[16];
    int count, i, k;

    ucx_mp_gpu_check(ucx_mp_driver.device_count(&count), "cuDeviceGetCount", 0);
    count = (count > 16) ? 16 : count;
    for (i = 0; i < count; ++i) {
        ucx_mp_gpu_check(ucx_mp_driver.ctx_retain(&ctxs[i], i),
                         "cuDevicePrimaryCtxRetain", 0);
    }

    for (i = 0; i < count; ++i) {
        ucx_mp_gpu_check(ucx_mp_driver.ctx_set(ctxs[i]), "cuCtxSetCurrent", 0);
        for (k = 0; k < count; ++k) {
            if (k != i) {
                (void)ucx_mp_driver.peer_enable(ctxs[k], 0);
            }
        }
    }
}

int ucx_mp_gpu_present(void)
{
    return ucx_mp_gpu.present;
}

void *ucx_mp_gpu_function(const char *name)
{
    return ucx_mp_gpu.present ? dlsym(ucx_mp_gpu.lib, name) : NULL;
}

void ucx_mp_gpu_functions(const ucx_mp_symbol_t *symbols, size_t count)
{
    size_t i;

    for (i = 0; i < count; ++i) {
        *symbols[i].address_p = ucx_mp_gpu_function(symbols[i].name);
        if (*symbols[i].address_p == NULL) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "the CUDA driver has no %s",
                       symbols[i].name);
        }
    }
}

/* --------------------------------------------------------------- allocators */

enum { ALLOC, VMM, PIECES, LARGE, CLOSED, REMOTE, POOL, ASYNC, RANDOM };

static const char *const ucx_mp_allocators[] = {
    "alloc", "vmm", "pieces", "large", "closed", "remote", "pool", "async",
    "random", NULL};

/* GPU memory of another allocator than cuMemAlloc, for its end */
typedef struct ucx_mp_block ucx_mp_block_t;

struct ucx_mp_block {
    ucx_mp_block_t  *next;
    ucx_mp_ptr_t ptr;
    size_t          mapped;   /* bytes; 0: of a pool */
    size_t          reserved; /* bytes */
};

static ucx_mp_block_t *ucx_mp_blocks;
static char ucx_mp_blocks_lock;

static void ucx_mp_blocks_begin(void)
{
    while (__atomic_test_and_set(&ucx_mp_blocks_lock, __ATOMIC_ACQUIRE)) {
    }
}

static void ucx_mp_blocks_end(void)
{
    __atomic_clear(&ucx_mp_blocks_lock, __ATOMIC_RELEASE);
}

static int ucx_mp_allocator(void)
{
    static unsigned drawn;
    const char *name = getenv("MP_TEST_ALLOCATOR");
    int kind         = ALLOC;

    while ((name != NULL) && (strcmp(name, ucx_mp_allocators[kind]) != 0)) {
        if (ucx_mp_allocators[++kind] == NULL) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "MP_TEST_ALLOCATOR: no allocator "
                       "'%s'", name);
        }
    }
    return (kind == RANDOM) ? (int)(ucx_mp_hash(__atomic_add_fetch(
                                            &drawn, 1, __ATOMIC_RELAXED)) %
                                    RANDOM) :
                              kind;
}

/* Return the next GPU that the current context's GPU can access, or itself */
static int ucx_mp_gpu_next(void)
{
    const int self = ucx_mp_driver.prop.location;
    int count, next = self, can = 0;

    ucx_mp_gpu_check(ucx_mp_driver.device_count(&count), "cuDeviceGetCount", 0);
    do {
        next = (next + 1) % count;
        if (next != self) {
            UCX_MP_DRIVER(can_access_peer, &can, self, next);
        }
    } while (!can && (next != self));
    return next;
}

static void ucx_mp_gpu_map(ucx_mp_block_t *block, int kind, size_t size)
{
    const size_t granule = (size_t)2 << 20;
    const size_t unit    = (kind == LARGE) ? 10 * granule : granule;
    const size_t whole   = (size + unit - 1) / unit * unit;
    const int self       = ucx_mp_driver.prop.location;

    /* as in PyTorch's segments, there is room behind the last piece */
    block->reserved = 2 * whole;
    block->mapped   = whole;
    UCX_MP_DRIVER(reserve, &block->ptr, block->reserved, 0, 0, 0);
    ucx_mp_driver.prop.handle_types = (kind != CLOSED);
    ucx_mp_driver.prop.location     = (kind == REMOTE) ? ucx_mp_gpu_next() :
                                                         self;
    ucx_mp_driver_map(block->ptr, whole,
                      ((kind == PIECES) || (kind == LARGE)) ? unit : whole);
    ucx_mp_driver.prop.handle_types = 1;
    ucx_mp_driver.prop.location     = self;
}

static void ucx_mp_gpu_take(ucx_mp_block_t *block, int kind, size_t size)
{
    static void *pools[64];
    void **pool = &pools[ucx_mp_driver.prop.location % 64];

    if (kind == ASYNC) {
        UCX_MP_DRIVER(alloc_async, &block->ptr, size, NULL);
    } else {
        if (*pool == NULL) {
            *pool = ucx_mp_driver_pool();
        }
        UCX_MP_DRIVER(alloc_from_pool, &block->ptr, size, *pool, NULL);
    }
    UCX_MP_DRIVER(stream_synchronize, NULL);
}

static ucx_mp_ptr_t ucx_mp_gpu_alloc(size_t size)
{
    const int kind = ucx_mp_allocator();
    ucx_mp_ptr_t ptr;
    ucx_mp_block_t *block;

    if (kind == ALLOC) {
        ucx_mp_gpu_check(ucx_mp_driver.alloc(&ptr, size), "cuMemAlloc", size);
        return ptr;
    }

    block = calloc(1, sizeof(*block));
    if (block == NULL) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "out of memory");
    }
    ucx_mp_blocks_begin();
    ucx_mp_driver_load(); /* for the current context's GPU */
    if ((kind == POOL) || (kind == ASYNC)) {
        ucx_mp_gpu_take(block, kind, size);
    } else {
        ucx_mp_gpu_map(block, kind, size);
    }
    block->next   = ucx_mp_blocks;
    ucx_mp_blocks = block;
    ucx_mp_blocks_end();
    return block->ptr;
}

static void ucx_mp_gpu_free(ucx_mp_ptr_t ptr)
{
    ucx_mp_block_t **link = &ucx_mp_blocks, *block;

    ucx_mp_blocks_begin();
    while (((block = *link) != NULL) && (block->ptr != ptr)) {
        link = &block->next;
    }
    if (block != NULL) {
        *link = block->next;
    }
    ucx_mp_blocks_end();

    if (block == NULL) {
        ucx_mp_gpu_check(ucx_mp_driver.free(ptr), "cuMemFree", 0);
    } else if (block->mapped == 0) {
        UCX_MP_DRIVER(free_async, ptr, NULL);
        UCX_MP_DRIVER(stream_synchronize, NULL);
    } else {
        UCX_MP_DRIVER(unmap, ptr, block->mapped);
        UCX_MP_DRIVER(unreserve, ptr, block->reserved);
    }
    free(block);
}


void *ucx_mp_mem_alloc(ucx_mp_mem_t mem, size_t size)
{
    ucx_mp_ptr_t devptr = 0;
    void *ptr              = NULL;

    switch (mem) {
    case UCX_MP_MEM_DEVICE:
        return (void*)(uintptr_t)ucx_mp_gpu_alloc(size);
    case UCX_MP_MEM_MANAGED:
        ucx_mp_gpu_check(ucx_mp_driver.alloc_managed(&devptr, size,
                                                  UCX_MP_GPU_MANAGED_GLOBAL),
                         "cuMemAllocManaged", size);
        return (void*)(uintptr_t)devptr;
    case UCX_MP_MEM_PINNED:
        ucx_mp_gpu_check(ucx_mp_driver.alloc_host(&ptr, size), "cuMemAllocHost",
                         size);
        return ptr;
    default:
        ptr = malloc(size);
        if (ptr == NULL) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "malloc of %zu bytes failed", size);
        }
        return ptr;
    }
}

void ucx_mp_mem_free(ucx_mp_mem_t mem, void *ptr)
{
    switch (mem) {
    case UCX_MP_MEM_DEVICE:
        ucx_mp_gpu_free((uintptr_t)ptr);
        break;
    case UCX_MP_MEM_MANAGED:
        ucx_mp_gpu_check(ucx_mp_driver.free((uintptr_t)ptr), "cuMemFree", 0);
        break;
    case UCX_MP_MEM_PINNED:
        ucx_mp_gpu_check(ucx_mp_driver.host_free(ptr), "cuMemFreeHost", 0);
        break;
    default:
        free(ptr);
        break;
    }
}

void ucx_mp_mem_write(ucx_mp_mem_t mem, void *dst, const void *src,
                      size_t size)
{
    if (size == 0) {
        return;
    }
    if (mem != UCX_MP_MEM_DEVICE) {
        memcpy(dst, src, size);
        return;
    }
    ucx_mp_gpu_check(ucx_mp_driver.copy_htod((uintptr_t)dst, src, size),
                     "cuMemcpyHtoD", size);
    /* a copy from pageable memory may return before its bytes arrive */
    ucx_mp_gpu_check(ucx_mp_driver.ctx_synchronize(), "cuMemcpyHtoD", size);
}

void ucx_mp_mem_read(ucx_mp_mem_t mem, void *dst, const void *src, size_t size)
{
    if (size == 0) {
        return;
    }
    if (mem != UCX_MP_MEM_DEVICE) {
        memcpy(dst, src, size);
        return;
    }
    ucx_mp_gpu_check(ucx_mp_driver.copy_dtoh(dst, (uintptr_t)src, size),
                     "cuMemcpyDtoH", size);
}

void ucx_mp_mem_put(ucx_mp_mem_t mem, void *dst, const void *src, size_t size)
{
    if ((mem != UCX_MP_MEM_DEVICE) || (ucx_mp_gpu.put == NULL) ||
        (ucx_mp_gpu.put((uintptr_t)dst, src, size) != 0)) {
        ucx_mp_mem_write(mem, dst, src, size);
    }
}

void ucx_mp_mem_get(ucx_mp_mem_t mem, void *dst, const void *src, size_t size)
{
    if ((mem != UCX_MP_MEM_DEVICE) || (ucx_mp_gpu.get == NULL) ||
        (ucx_mp_gpu.get(dst, (uintptr_t)src, size) != 0)) {
        ucx_mp_mem_read(mem, dst, src, size);
    }
}

void ucx_mp_mem_set(ucx_mp_mem_t mem, void *dst, int value, size_t size)
{
    if (size == 0) {
        return;
    }
    if (mem != UCX_MP_MEM_DEVICE) {
        memset(dst, value, size);
        return;
    }
    ucx_mp_gpu_check(ucx_mp_driver.memset((uintptr_t)dst, value, size),
                     "cuMemsetD8", size);
    ucx_mp_gpu_check(ucx_mp_driver.ctx_synchronize(), "cuMemsetD8", size);
}

int ucx_mp_gpu_emulated(void)
{
    return ucx_mp_gpu.present && (getenv("CUEMU_NODE") != NULL);
}
