/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure messages between pageable host memory and a GPU by the driver alone,
 * which copies with the calling thread: GPU 0, in its own context ("own"); GPU
 * 1, in GPU 0's ("across", as cuda_ipc does in a process without a context on
 * the peer's GPU) or in GPU 1's ("there"); or GPU 1 through slots in GPU 0's
 * memory ("staged", as UCP does with the stock module). A call is a window of
 * messages, one behind another. Bind it to one core.
 */
#include "byhand.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 4

enum { TO_GPU, TO_HOST };
enum { OWN, ACROSS, THERE, STAGED };

static const char *const directions[] = {"to-gpu", "to-host", NULL};
static const char *const ways[] = {"own", "across", "there", "staged", NULL};

static size_t direction, way, window = 4;

static const byhand_option_t options[] = {
    {"direction", "of the messages", &direction, 0, 0, directions},
    {"way", "GPU, and whose context copies", &way, 0, 0, ways},
    {"window", "messages of a call", &window, 1, 1024, NULL},
    {NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "pageable", "Pageable host memory and a GPU, by the driver alone.",
    "1M:64M", options, (size_t)1 << 30};

static CUdeviceptr gpu, slots[SLOTS];
static CUstream pcie, nvlink;
static CUevent filled[SLOTS], drained[SLOTS];
static char *host, *check; /* pageable */


static int gpu_of(void)
{
    return (way == OWN) ? 0 : 1;
}

static void copy(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    CU(MemcpyAsync(to, from, size, stream));
}

static void staged(size_t size, size_t slot)
{
    const CUdeviceptr memory = (CUdeviceptr)(uintptr_t)host;
    const int to_gpu         = (direction == TO_GPU);
    CUstream first           = to_gpu ? pcie : nvlink;
    CUstream second          = to_gpu ? nvlink : pcie;

    CU(StreamWaitEvent(first, drained[slot], 0));
    copy(slots[slot], to_gpu ? memory : gpu, size, first);
    CU(EventRecord(filled[slot], first));
    CU(StreamWaitEvent(second, filled[slot], 0));
    copy(to_gpu ? gpu : memory, slots[slot], size, second);
    CU(EventRecord(drained[slot], second));
}

static void once(size_t size)
{
    const CUdeviceptr memory = (CUdeviceptr)(uintptr_t)host;
    size_t w;

    for (w = 0; w < window; ++w) {
        if (way == STAGED) {
            staged(size, w % SLOTS);
        } else {
            copy((direction == TO_GPU) ? gpu : memory,
                 (direction == TO_GPU) ? memory : gpu, size, pcie);
        }
    }
    CU(StreamSynchronize(pcie));
    CU(StreamSynchronize(nvlink));
}

static void prepare(size_t size)
{
    const int to_gpu = (direction == TO_GPU);
    uint32_t *words  = (uint32_t*)(to_gpu ? host : check);
    size_t i;

    memset(to_gpu ? check : host, 0, size);
    CU(MemcpyHtoD(gpu, to_gpu ? check : host, size));
    for (i = 0; i < size / sizeof(*words); ++i) {
        words[i] = byhand_element(i, (int)(size >> 12));
    }
    if (!to_gpu) {
        CU(MemcpyHtoD(gpu, check, size));
    }
    CU(CtxSynchronize());
}

static int is_right(size_t size)
{
    if (direction == TO_GPU) {
        CU(MemcpyDtoH(check, gpu, size));
    }
    return memcmp(host, check, size) == 0;
}

int main(int argc, char **argv)
{
    char label[128];
    int on, i;

    byhand_begin(argc, argv, &program, 1);
    if (gpu_of() >= byhand_gpus) {
        byhand_die("--way %s: there is one GPU", ways[way]);
    }
    host  = calloc(1, byhand_max_size());
    check = calloc(1, byhand_max_size());
    if ((host == NULL) || (check == NULL)) {
        byhand_die("no memory");
    }
    gpu    = byhand_gpu_memory(gpu_of(), byhand_max_size());
    on     = (way == THERE) ? 1 : 0;
    pcie   = byhand_stream(on);
    nvlink = byhand_stream(on);
    for (i = 0; (way == STAGED) && (i < SLOTS); ++i) {
        slots[i]   = byhand_gpu_memory(0, byhand_max_size());
        filled[i]  = byhand_event(0);
        drained[i] = byhand_event(0);
    }
    byhand_on(on);
    snprintf(label, sizeof(label), "pageable, %s, %s, window %zu",
             directions[direction], ways[way], window);
    return byhand_run(label, (double)window, prepare, once, is_right);
}
