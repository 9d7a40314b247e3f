/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure a process's copies between two of its GPUs without access between its
 * primary contexts, so that its own cuCtxEnablePeerAccess() still succeeds
 * afterwards. The buffers belong to the primary contexts (P0, P1); C0 and C1
 * are additional contexts of the same GPUs. Each method runs in a process of
 * its own, since access stays enabled.
 */
#include "byhand.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAY_PLAIN,
    WAY_PLAIN_PEER,
    WAY_ENABLED,
    WAY_WINDOW,
    WAY_PUSH,
    WAY_PUSH_PEER,
    WAY_PUSH_BOTH,
    WAY_PULL,
    WAY_PULL_PEER,
    WAY_FURTHER,
    WAY_FURTHER_P0,
    WAY_MIXED,
    WAY_OUT,
    WAY_IN_C1,
    WAY_IN_P1,
    WAY_IN_PEER,
    WAY_IPC
};

static const char *const ways[] = {"plain",   "plain-peer", "enabled",
                                   "window",  "push",       "push-peer",
                                   "push-both", "pull",     "pull-peer",
                                   "further", "further-p0", "mixed",
                                   "out",     "in-c1",      "in-p1",
                                   "in-peer", "ipc",        NULL};

static size_t way;

static const byhand_option_t options[] = {
    {"way", "see below", &way, 0, 0, ways},
    {NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "own_process",
    "Copies of P0's memory (GPU 0) to P1's (GPU 1) in one process, \"A > B\" "
    "for access\nof context A to memory of context B:\n"
    "  plain       nothing is enabled, P0's stream (plain-peer: "
    "cuMemcpyPeerAsync)\n"
    "  enabled     P0 > P1, as a program does it; window: around each copy\n"
    "  push        C0 > P1, C0's stream (push-both: and C0 > P0)\n"
    "  pull        C1 > P0, C1's stream\n"
    "  further     C0 > C1, C1 > C0, C0's stream (further-p0: P0's)\n"
    "  mixed       P0 > C1, P0's stream\n"
    "  out         P0 > C1, P0's stream, to memory of C1\n"
    "  in-c1       memory of C1 to P1's, C1's stream (in-p1: P1's, in-peer: "
    "cuMemcpyPeerAsync)\n"
    "  ipc         P1's memory by an IPC handle opened in C0",
    "1M,64M", options, (size_t)1 << 30};

static CUcontext further[2]; /* C0, C1 */
static CUcontext runs_in;    /* context of the copy */
static CUdeviceptr from, to, goal, between;
static CUstream stream;
static uint32_t *words;


static void enable(const char *what, CUcontext context, CUcontext peer)
{
    CUresult result;

    CU(CtxSetCurrent(context));
    result = cu.CtxEnablePeerAccess(peer, 0);
    printf("# %s: %d\n", what, (int)result);
}

static CUcontext make_further(int gpu)
{
    CU(CtxCreate(&further[gpu], 0, gpu));
    return further[gpu];
}

/* Enable access as the program would do afterwards, and print the result. */
static void enable_as_program(void)
{
    if ((way != WAY_ENABLED) && (way != WAY_WINDOW)) {
        enable("afterwards P0 > P1", byhand_contexts[0], byhand_contexts[1]);
        enable("afterwards P1 > P0", byhand_contexts[1], byhand_contexts[0]);
    }
}

static void open_ipc(void)
{
    CUipcMemHandle handle;
    CUresult result;

    CU(CtxSetCurrent(byhand_contexts[1]));
    CU(IpcGetMemHandle(&handle, to));
    CU(CtxSetCurrent(further[0]));
    result = cu.IpcOpenMemHandle(&goal, handle, 1);
    printf("# cuIpcOpenMemHandle in C0: %d\n", (int)result);
    if (result != CUDA_SUCCESS) {
        enable_as_program();
        exit(0);
    }
}

static void get_ready(void)
{
    const CUcontext p0 = byhand_contexts[0], p1 = byhand_contexts[1];

    goal    = to;
    runs_in = p0;
    switch (way) {
    case WAY_ENABLED:
        enable("P0 > P1", p0, p1);
        break;
    case WAY_PUSH:
    case WAY_PUSH_PEER:
    case WAY_PUSH_BOTH:
        runs_in = make_further(0);
        enable("C0 > P1", further[0], p1);
        if (way == WAY_PUSH_BOTH) {
            enable("C0 > P0", further[0], p0);
        }
        break;
    case WAY_PULL:
    case WAY_PULL_PEER:
        runs_in = make_further(1);
        enable("C1 > P0", further[1], p0);
        break;
    case WAY_FURTHER:
    case WAY_FURTHER_P0:
        make_further(0);
        make_further(1);
        enable("C0 > C1", further[0], further[1]);
        enable("C1 > C0", further[1], further[0]);
        runs_in = (way == WAY_FURTHER) ? further[0] : p0;
        break;
    case WAY_MIXED:
    case WAY_OUT:
        make_further(1);
        enable("P0 > C1", p0, further[1]);
        break;
    case WAY_IN_C1:
    case WAY_IN_PEER:
        runs_in = make_further(1);
        break;
    case WAY_IN_P1:
        make_further(1);
        runs_in = p1;
        break;
    case WAY_IPC:
        runs_in = make_further(0);
        open_ipc();
        break;
    default:
        break;
    }

    if ((way == WAY_OUT) || (way == WAY_IN_C1) || (way == WAY_IN_P1) ||
        (way == WAY_IN_PEER)) {
        CU(CtxSetCurrent(further[1]));
        CU(MemAlloc(&between, byhand_max_size()));
        if (way == WAY_OUT) {
            goal = between;
        } else {
            from = between;
        }
    }
    CU(CtxSetCurrent(runs_in));
    CU(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

/* Print whether a context has an address for this memory, as the module
   asks. */
static void say_pointer(const char *what, CUcontext context, CUdeviceptr memory)
{
    CUdeviceptr address = 0;
    CUresult result;

    CU(CtxSetCurrent(context));
    result = cu.PointerGetAttribute(&address,
                                    CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                    memory);
    printf("# the copy's context has %s: %d\n", what, (int)result);
}

static void once(size_t size)
{
    const CUcontext p0 = byhand_contexts[0], p1 = byhand_contexts[1];

    CU(CtxSetCurrent(runs_in));
    if (way == WAY_WINDOW) {
        CU(CtxEnablePeerAccess(p1, 0));
    }
    if ((way == WAY_PLAIN_PEER) || (way == WAY_PUSH_PEER) ||
        (way == WAY_PULL_PEER)) {
        CU(MemcpyPeerAsync(goal, p1, from, p0, size, stream));
    } else if (way == WAY_IN_PEER) {
        CU(MemcpyPeerAsync(goal, p1, from, further[1], size, stream));
    } else {
        CU(MemcpyAsync(goal, from, size, stream));
    }
    CU(StreamSynchronize(stream));
    if (way == WAY_WINDOW) {
        CU(CtxDisablePeerAccess(p1));
    }
}

static CUcontext owner(CUdeviceptr memory)
{
    return (memory == between) ? further[1] :
           (memory == to)      ? byhand_contexts[1] :
                                 byhand_contexts[0];
}

static void prepare(size_t size)
{
    size_t k;

    CU(CtxSetCurrent(owner((way == WAY_IPC) ? to : goal)));
    memset(words, 0, size);
    CU(MemcpyHtoD((way == WAY_IPC) ? to : goal, words, size));
    for (k = 0; k < size / sizeof(*words); ++k) {
        words[k] = byhand_element(k, size >> 12);
    }
    CU(CtxSetCurrent(owner(from)));
    CU(MemcpyHtoD(from, words, size));
    CU(CtxSynchronize());
}

static int is_right(size_t size)
{
    const CUdeviceptr memory = (way == WAY_IPC) ? to : goal;

    CU(CtxSetCurrent(owner(memory)));
    return byhand_holds(memory, words, size);
}

int main(int argc, char **argv)
{
    int status;

    byhand_begin_apart(argc, argv, &program, 2);
    from  = byhand_gpu_memory(0, byhand_max_size());
    to    = byhand_gpu_memory(1, byhand_max_size());
    words = byhand_host_memory(byhand_max_size());
    get_ready();
    say_pointer("the source", runs_in, from);
    say_pointer("the destination", runs_in, goal);
    status = byhand_run(ways[way], 1, prepare, once, is_right);
    enable_as_program();
    return status;
}
