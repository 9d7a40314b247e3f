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

static void staging_init(uct_cuda_mp_staging_t *staging, CUdeviceptr base,
                         int device, int home, size_t slot_size)
{
    memset(staging, 0, sizeof(*staging));
    staging->base      = base;
    staging->device    = device;
    staging->home      = home;
    staging->slot_size = slot_size;
}

ucs_status_t uct_cuda_mp_staging_alloc_gpu(uct_cuda_mp_staging_t *staging,
                                           int device, size_t slot_size)
{
    ucs_status_t status;
    CUdeviceptr base;

    status = UCT_CUDA_CALL_NOLOG(cuMemAlloc, &base,
                                 UCT_CUDA_MP_STAGING_SLOTS * slot_size);
    if (status != UCS_OK) {
        return status;
    }

    staging_init(staging, base, device, device, slot_size);
    return UCS_OK;
}

ucs_status_t uct_cuda_mp_staging_alloc_host(uct_cuda_mp_staging_t *staging,
                                            int numa, int home,
                                            size_t slot_size)
{
    numa_policy_t policy;
    ucs_status_t status;
    void *base;

    numa_prefer(numa, &policy);
    status = UCT_CUDA_CALL_NOLOG(cuMemHostAlloc, &base,
                                 UCT_CUDA_MP_STAGING_SLOTS * slot_size,
                                 CU_MEMHOSTALLOC_PORTABLE);
    numa_restore(&policy);
    if (status != UCS_OK) {
        return status;
    }

    staging_init(staging, (CUdeviceptr)base, -1, home, slot_size);
    return UCS_OK;
}

void uct_cuda_mp_staging_free(uct_cuda_mp_staging_t *staging)
{
    if (staging->base == 0) {
        return;
    }

    if (staging->device >= 0) {
        (void)UCT_CUDA_CALL(cuMemFree, staging->base);
    } else {
        (void)UCT_CUDA_CALL(cuMemFreeHost, (void*)staging->base);
    }

    staging->base = 0;
}
