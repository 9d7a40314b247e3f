/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure a copy from GPU 0 to GPU 1 without peer access: through page-locked
 * memory, chunk by chunk, with both PCIe links busy at once; or as the driver
 * does it.
 */
#include "byhand.h"

#include <stdint.h>
#include <string.h>

#define MAX_SLOTS 16

static const char *const ways[] = {"pipeline", "driver", NULL};

static size_t by_driver, chunk = (size_t)4 << 20, slots = 4;

static const byhand_option_t options[] = {
    {"way", "through slots, or by the driver", &by_driver, 0, 0, ways},
    {"chunk", "bytes of a slot", &chunk, 4096, (size_t)64 << 20, NULL},
    {"slots", "chunks on their way", &slots, 1, MAX_SLOTS, NULL},
    {NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "staged_copy", "A copy from GPU 0 to GPU 1 without peer access.", "1M:256M",
    options, (size_t)1 << 30};

static CUdeviceptr from, to;
static CUstream stream[2];
static CUevent filled[MAX_SLOTS], drained[MAX_SLOTS];
static char *slot[MAX_SLOTS];
static uint32_t *words;


static void once_by_driver(size_t size)
{
    byhand_on(0);
    CU(MemcpyPeerAsync(to, byhand_contexts[1], from, byhand_contexts[0], size,
                       stream[0]));
    CU(StreamSynchronize(stream[0]));
}

static void once(size_t size)
{
    size_t offset, bytes, i;

    if (by_driver) {
        once_by_driver(size);
        return;
    }

    for (offset = 0; offset < size; offset += bytes) {
        i     = (offset / chunk) % slots;
        bytes = (size - offset < chunk) ? size - offset : chunk;
        byhand_on(0);
        if (offset >= chunk * slots) {
            CU(StreamWaitEvent(stream[0], drained[i], 0));
        }
        CU(MemcpyAsync((uintptr_t)slot[i], from + offset, bytes, stream[0]));
        CU(EventRecord(filled[i], stream[0]));
        byhand_on(1);
        CU(StreamWaitEvent(stream[1], filled[i], 0));
        CU(MemcpyAsync(to + offset, (uintptr_t)slot[i], bytes, stream[1]));
        CU(EventRecord(drained[i], stream[1]));
    }

    CU(StreamSynchronize(stream[1]));
}

static void prepare(size_t size)
{
    size_t i;

    byhand_on(1);
    memset(words, 0, size);
    CU(MemcpyHtoD(to, words, size));
    for (i = 0; i < size / sizeof(*words); ++i) {
        words[i] = byhand_element(i, size >> 12);
    }
    byhand_on(0);
    CU(MemcpyHtoD(from, words, size));
}

static int is_right(size_t size)
{
    byhand_on(1);
    return byhand_holds(to, words, size);
}

int main(int argc, char **argv)
{
    size_t i;

    byhand_begin_apart(argc, argv, &program, 2);
    from  = byhand_gpu_memory(0, byhand_max_size());
    to    = byhand_gpu_memory(1, byhand_max_size());
    words = byhand_host_memory(byhand_max_size());
    for (i = 0; i < 2; ++i) {
        stream[i] = byhand_stream((int)i);
    }
    for (i = 0; i < slots; ++i) {
        byhand_on(0);
        slot[i]    = byhand_host_memory(chunk);
        filled[i]  = byhand_event(0);
        drained[i] = byhand_event(1);
    }

    return byhand_run(by_driver ? "by the driver" : "over both links", 1,
                      prepare, once, is_right);
}
