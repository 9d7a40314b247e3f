/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure messages between page-locked host memory and GPU 0 over k PCIe links:
 * GPU 0's own, and those of k - 1 other GPUs, through staging slots in their
 * memory. Chunks use the links in rotation. A call is a window of messages, one
 * behind another, as in MPI's bandwidth test.
 */
#include "byhand.h"

#include <stdio.h>
#include <stdint.h>
#include <string.h>

#define SLOTS     4
#define MIN_CHUNK ((size_t)512 << 10) /* default of chunks */
#define MAX_CHUNK ((size_t)8 << 20)

enum { TO_GPU, TO_HOST };

static const char *const directions[] = {"to-gpu", "to-host", NULL};

static size_t direction, links = 1, window = 4, asked_chunk, chunk, turn;

static const byhand_option_t options[] = {
    {"direction", "of the messages", &direction, 0, 0, directions},
    {"links", "PCIe links, GPU 0's first, 0 for all", &links, 0,
     BYHAND_MAX_GPUS, NULL},
    {"window", "messages of a call", &window, 1, 1024, NULL},
    {"chunk", "bytes of a chunk, 0 for four a link and message", &asked_chunk,
     0, (size_t)1 << 30, NULL},
    {NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "host_to_gpu", "Page-locked host memory and GPU 0 over several PCIe links.",
    "1M:256M", options, (size_t)1 << 30};

/* A link, named by its GPU */
static struct {
    CUstream    pcie, nvlink;
    CUdeviceptr slot[SLOTS];
    CUevent     filled[SLOTS], drained[SLOTS];
    size_t      next;
} link_of[BYHAND_MAX_GPUS];

static CUdeviceptr gpu, host; /* page-locked memory has one address */
static void *check;


static void copy(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                 CUstream stream)
{
    CU(MemcpyAsync(to, from, bytes, stream));
}

/* Move a chunk over the link of GPU i. */
static void move(int i, size_t at, size_t bytes)
{
    CUdeviceptr from     = (direction == TO_GPU) ? host + at : gpu + at;
    CUdeviceptr to       = (direction == TO_GPU) ? gpu + at : host + at;
    CUstream first, second;
    size_t slot;

    byhand_on(i);
    if (i == 0) {
        copy(to, from, bytes, link_of[0].pcie);
        return;
    }
    first  = (direction == TO_GPU) ? link_of[i].pcie : link_of[i].nvlink;
    second = (direction == TO_GPU) ? link_of[i].nvlink : link_of[i].pcie;
    slot   = link_of[i].next++ % SLOTS;
    CU(StreamWaitEvent(first, link_of[i].drained[slot], 0));
    copy(link_of[i].slot[slot], from, bytes, first);
    CU(EventRecord(link_of[i].filled[slot], first));
    CU(StreamWaitEvent(second, link_of[i].filled[slot], 0));
    copy(to, link_of[i].slot[slot], bytes, second);
    CU(EventRecord(link_of[i].drained[slot], second));
}

static void once(size_t size)
{
    size_t w, at, i;

    for (w = 0; w < window; ++w) {
        for (at = 0; at < size; at += chunk) {
            move(turn++ % links, at, (size - at < chunk) ? size - at : chunk);
        }
    }
    for (i = 0; i < links; ++i) {
        byhand_on(i);
        CU(StreamSynchronize(link_of[i].pcie));
        CU(StreamSynchronize(link_of[i].nvlink));
    }
}

static size_t chunk_of(size_t size)
{
    const size_t part = size / (4 * links);

    if (asked_chunk > 0) {
        return asked_chunk;
    }
    return (part < MIN_CHUNK) ? MIN_CHUNK :
           (part > MAX_CHUNK) ? MAX_CHUNK :
                                part;
}

static void prepare(size_t size)
{
    uint32_t *words = (uint32_t*)((direction == TO_GPU) ? (void*)host : check);
    size_t i;

    chunk = chunk_of(size);
    memset((direction == TO_GPU) ? check : (void*)host, 0, size);
    byhand_on(0);
    CU(MemcpyHtoD(gpu, (direction == TO_GPU) ? check : (void*)host, size));
    for (i = 0; i < size / sizeof(*words); ++i) {
        words[i] = byhand_element(i, size >> 12);
    }
    if (direction == TO_HOST) {
        CU(MemcpyHtoD(gpu, check, size));
    }
}

static int is_right(size_t size)
{
    if (direction == TO_GPU) {
        byhand_on(0);
        CU(MemcpyDtoH(check, gpu, size));
    }
    return memcmp((void*)host, check, size) == 0;
}

int main(int argc, char **argv)
{
    char label[128];
    size_t i, k, slot;

    byhand_begin(argc, argv, &program, 1);
    if (links == 0) {
        links = byhand_gpus;
    }
    if (links > (size_t)byhand_gpus) {
        byhand_die("--links: %zu, and there are %d GPUs", links, byhand_gpus);
    }
    host  = (CUdeviceptr)byhand_host_memory(byhand_max_size());
    check = byhand_host_memory(byhand_max_size());
    gpu   = byhand_gpu_memory(0, byhand_max_size());
    slot  = chunk_of(byhand_max_size());
    for (i = 0; i < links; ++i) {
        link_of[i].pcie   = byhand_stream(i);
        link_of[i].nvlink = byhand_stream(i);
        for (k = 0; (i > 0) && (k < SLOTS); ++k) {
            link_of[i].slot[k]    = byhand_gpu_memory(i, slot);
            link_of[i].filled[k]  = byhand_event(i);
            link_of[i].drained[k] = byhand_event(i);
        }
    }

    snprintf(label, sizeof(label), "%s, %zu links, window %zu, chunks %zu KiB "
             "(0: four a link)", directions[direction], links, window,
             asked_chunk >> 10);
    return byhand_run(label, window, prepare, once, is_right);
}
