/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocating staging memory. */
#include <uct/cuda/multipath/staging.h>

#include <uct/cuda/base/log.h>

#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>


#define NUMA_MASK_BITS 1024
#define NUMA_MASK_WORD (8 * sizeof(unsigned long))


typedef struct {
    int           is_saved;
    int           mode;
    unsigned long mask[NUMA_MASK_BITS / NUMA_MASK_WORD];
} numa_policy_t;


/* Prefer a node for pages that this thread makes resident. Best effort: a
 * container may forbid it, and memory elsewhere is only slower. */
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

static ucs_status_t alloc_host(int numa, size_t size, CUdeviceptr *base_p)
{
    numa_policy_t policy;
    ucs_status_t status;
    void *base = NULL;

    numa_prefer(numa, &policy);
    status  = UCT_CUDA_CALL_NOLOG(cuMemHostAlloc, &base, size,
                                  CU_MEMHOSTALLOC_PORTABLE);
    *base_p = (CUdeviceptr)base;
    numa_restore(&policy);
    return status;
}

ucs_status_t uct_cuda_mp_staging_alloc(uct_cuda_mp_staging_t *staging,
                                       uct_cuda_end_t end, int numa, int home,
                                       size_t slot_size)
{
    const size_t size = UCT_CUDA_MP_STAGING_SLOTS * slot_size;
    ucs_status_t status;
    CUdeviceptr base;

    status = uct_cuda_end_is_gpu(end) ?
                     UCT_CUDA_CALL_NOLOG(cuMemAlloc, &base, size) :
                     alloc_host(numa, size, &base);
    if (status == UCS_OK) {
        memset(staging, 0, sizeof(*staging));
        staging->base      = base;
        staging->end       = end;
        staging->home      = home;
        staging->slot_size = slot_size;
    }

    return status;
}

void uct_cuda_mp_staging_free(uct_cuda_mp_staging_t *staging)
{
    if (staging->base == 0) {
        return;
    }

    if (uct_cuda_end_is_gpu(staging->end)) {
        (void)UCT_CUDA_CALL(cuMemFree, staging->base);
    } else {
        (void)UCT_CUDA_CALL(cuMemFreeHost, (void*)staging->base);
    }

    staging->base = 0;
}
