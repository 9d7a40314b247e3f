/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocating staging memory. */
#include <uct/cuda/run/staging.h>

#include <uct/cuda/base/device_memory.h>
#include <uct/cuda/base/host/host_block.h>
#include <uct/cuda/base/log.h>

#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>


#define NUMA_MASK_BITS 1024
#define NUMA_MASK_WORD (8 * sizeof(unsigned long))


typedef struct {
    int           is_saved;
    int           mode;
    unsigned long mask[NUMA_MASK_BITS / NUMA_MASK_WORD];
} numa_policy_t;


/* Prefer a NUMA node for pages touched by this thread, until
 * numa_restore(saved). Best effort: a container may forbid it, and memory
 * elsewhere is only slower. */
static void numa_prefer(int numa, numa_policy_t *saved)
{
    unsigned long mask[NUMA_MASK_BITS / NUMA_MASK_WORD] = {0};

    saved->is_saved = (syscall(SYS_get_mempolicy, &saved->mode, saved->mask,
                               (unsigned long)NUMA_MASK_BITS, NULL, 0ul) == 0);
    if (!saved->is_saved) {
        return;
    }

    mask[numa / NUMA_MASK_WORD] = 1ul << (numa % NUMA_MASK_WORD);
    if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask,
                (unsigned long)NUMA_MASK_BITS) != 0) {
        saved->is_saved = 0;
    }
}

static void numa_restore(const numa_policy_t *saved)
{
    if (saved->is_saved) {
        (void)syscall(SYS_set_mempolicy, saved->mode, saved->mask,
                      (unsigned long)NUMA_MASK_BITS);
    }
}

/* Log errors except lack of memory: other paths may do */
static ucs_status_t check(const char *call, CUresult result, size_t size)
{
    const ucs_status_t status = uct_cuda_status(result);

    if ((status != UCS_OK) && (status != UCS_ERR_NO_MEMORY)) {
        uct_cuda_warn("no staging memory: %s of %zu bytes failed: %s",
                      call, size,
                      uct_cuda_result_name(result));
    }

    return status;
}

/* Allocate page-locked memory on a NUMA node if possible.
 *
 * Touch the pages first, then lock them: while the driver locks memory it
 * blocks all calls of the process, 30 ms for 64 MiB if it must touch the pages
 * as well (cuMemHostAlloc), 3 ms if not (2 x H200, test/byhand/setup) */
static ucs_status_t alloc_host(int numa, size_t size, CUdeviceptr *base_p)
{
    void *base = uct_cuda_host_map(size);
    numa_policy_t policy;
    ucs_status_t status;

    if (base == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    (void)madvise(base, size, MADV_HUGEPAGE);
    numa_prefer(numa, &policy);
    memset(base, 0, size);
    numa_restore(&policy);
    status = check("cuMemHostRegister()",
                   uct_cuda_driver_get()->cuMemHostRegister(
                           base, size, CU_MEMHOSTREGISTER_PORTABLE),
                   size);
    if (status != UCS_OK) {
        (void)munmap(base, size);
        return status;
    }

    *base_p = (CUdeviceptr)base;
    return UCS_OK;
}

ucs_status_t uct_cuda_run_staging_alloc(uct_cuda_run_staging_t *staging,
                                        uct_cuda_end_t end, int numa, int home,
                                        size_t slot_size)
{
    const size_t size = UCT_CUDA_PLAN_STAGING_SLOTS * slot_size;
    ucs_status_t status;
    CUdeviceptr base;

    status = uct_cuda_end_is_gpu(end) ?
                     check("cuMemAlloc()",
                           uct_cuda_driver_get()->cuMemAlloc(&base, size),
                           size) :
                     alloc_host(numa, size, &base);
    if (status == UCS_OK) {
        memset(staging, 0, sizeof(*staging));
        staging->base      = base;
        staging->end       = end;
        staging->home      = home;
        staging->owner     = getpid();
        staging->slot_size = slot_size;
    }

    return status;
}

/* Unmap host memory, except in a forked child: it does not have the memory, and
 * may have other memory at its address */
static void unmap_host(const uct_cuda_run_staging_t *staging)
{
    if (staging->owner == getpid()) {
        (void)munmap((void*)staging->base,
                     UCT_CUDA_PLAN_STAGING_SLOTS * staging->slot_size);
    }
}

void uct_cuda_run_staging_free(uct_cuda_run_staging_t *staging)
{
    if (staging->base == 0) {
        return;
    }

    if (uct_cuda_end_is_gpu(staging->end)) {
        UCT_CUDA_DEVICE_MEMORY_FREE(staging->base, false);
    } else {
        (void)UCT_CUDA_CALL(cuMemHostUnregister, (void*)staging->base);
        unmap_host(staging);
    }

    staging->base = 0;
}

void uct_cuda_run_staging_lose(uct_cuda_run_staging_t *staging)
{
    if ((staging->base != 0) && uct_cuda_end_is_host(staging->end)) {
        unmap_host(staging);
    }

    staging->base = 0;
}
