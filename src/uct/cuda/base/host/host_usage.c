/* SPDX-License-Identifier: BSD-3-Clause */
/* A table by address; buffers that share a slot drive each other out. */
#include <uct/cuda/base/host/host_usage.h>


/*
 * Measured on 4 x H200: cuMemHostRegister takes 358, 1655, 3946 us for 1, 16,
 * 64 MiB (unlocking is another thread's work); a copy of pageable memory runs
 * at a CPU thread's 12 GB/s, of locked memory at the PCIe link's 55.
 */
#define LOCK_TIME          0.3e-3  /* seconds */
#define LOCK_TIME_PER_BYTE 0.06e-9 /* seconds */
#define SAVED_PER_BYTE     (1 / 12e9 - 1 / 55e9)

/* Part of the price that has to be lost first. Messages come from the same
 * buffers mostly: large ones are locked when they come for the second time. */
#define PATIENCE 0.5

/* Wait for so many times the usual loss after a refusal */
#define REFUSED_FACTOR 1000

#define PAGE_SHIFT 12


static unsigned slot_of(uintptr_t address)
{
    const uint64_t page = address >> PAGE_SHIFT;

    return (unsigned)((page * UINT64_C(0x9e3779b97f4a7c15)) >> 55) %
           UCT_CUDA_HOST_USAGE_SLOTS;
}

static double price(size_t length)
{
    return LOCK_TIME + ((double)length * LOCK_TIME_PER_BYTE);
}

bool uct_cuda_host_usage_add(uct_cuda_host_usage_t *usage, uintptr_t address,
                             size_t length, bool at_once)
{
    const unsigned slot = slot_of(address);

    if (usage->slots[slot].address != address) {
        usage->slots[slot].address = address;
        usage->slots[slot].lost    = 0;
    }

    if ((usage->slots[slot].lost >= PATIENCE * price(length)) ||
        (at_once && (usage->slots[slot].lost >= 0))) {
        return true;
    }

    usage->slots[slot].lost += (double)length * SAVED_PER_BYTE;
    return false;
}

void uct_cuda_host_usage_refused(uct_cuda_host_usage_t *usage,
                                 uintptr_t address, size_t length)
{
    const unsigned slot = slot_of(address);

    usage->slots[slot].address = address;
    usage->slots[slot].lost    = -REFUSED_FACTOR * price(length);
}

void uct_cuda_host_usage_forget(uct_cuda_host_usage_t *usage, uintptr_t start,
                                uintptr_t end)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_HOST_USAGE_SLOTS; ++i) {
        if ((usage->slots[i].address >= start) &&
            (usage->slots[i].address < end)) {
            usage->slots[i].address = 0;
            usage->slots[i].lost    = 0;
        }
    }
}
