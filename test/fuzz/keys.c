/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Fuzz the readers of keys on an emulated node: every key gives a status, and
 * no byte behind it is read. A key may only name this process or a child of it,
 * not files of other processes. The first byte selects whether the key belongs
 * to the child, whether the magic is corrected, and whether the rest is a key
 * or a list of changes (an offset and a value each) to the child's valid key,
 * which is mapped then.
 */

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/cuda_cma/cuda_cma_rkey.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/rkey.h>

#include <sanitizer/common_interface_defs.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define CHILD_MEMORY (1ul << 20)

/* Longest start, seconds */
#define START_LIMIT 60

typedef struct {
    volatile int                is_made;
    uct_cuda_node_packed_rkey_t key;
} shared_t;

static pid_t child;
static shared_t *shared;
static CUcontext context;
static uct_cuda_node_iface_addr_t self;

static void use_gpu(void)
{
    if ((UCT_CUDA_CALL(cuDevicePrimaryCtxRetain, &context, 0) != UCS_OK) ||
        (UCT_CUDA_CALL(cuCtxPushCurrent, context) != UCS_OK)) {
        abort(); /* no emulated node */
    }
}

/* Memory of another process, as long as this process lives */
static void export_memory(void)
{
    uct_cuda_node_memh_t *memh;
    CUdeviceptr address;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    use_gpu();
    if ((UCT_CUDA_CALL(cuMemAlloc, &address, CHILD_MEMORY) != UCS_OK) ||
        (uct_cuda_node_memh_create((void*)address, CHILD_MEMORY, &memh) !=
         UCS_OK) ||
        (uct_cuda_node_rkey_pack(memh, NULL, CHILD_MEMORY, &shared->key) !=
         UCS_OK)) {
        abort();
    }
    shared->is_made = 1;
    for (;;) {
        pause();
    }
}

/* Signal handler. It may allocate, as the program ends. */
static void end_late(int signal)
{
    fprintf(stderr, "keys: not started after %d s (signal %d)\n", START_LIMIT,
            signal);
    __sanitizer_print_stack_trace();
    kill(child, SIGKILL);
    _exit(EXIT_FAILURE);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    int status;

    fprintf(stderr, "keys: starting\n");
    signal(SIGALRM, end_late);
    alarm(START_LIMIT);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    child  = fork();
    if (child == 0) {
        export_memory();
    }
    while (!shared->is_made) {
        if (waitpid(child, &status, WNOHANG) == child) {
            fprintf(stderr, "keys: the child ended with status %#x\n", status);
            abort();
        }
        usleep(1000);
    }
    fprintf(stderr, "keys: a child has exported memory\n");
    use_gpu();
    uct_cuda_node_iface_addr_self(&self);
    alarm(0);
    signal(SIGALRM, SIG_DFL); /* libFuzzer's, then */
    fprintf(stderr, "keys: started\n");
    return 0;
}

static void try_node(uct_cuda_node_packed_rkey_t *packed, unsigned how)
{
    uct_cuda_node_rkey_t *rkey;
    CUdeviceptr mapped;

    if (how & 1) {
        packed->magic = UCT_CUDA_NODE_PACKED_RKEY_MAGIC;
    }
    packed->handle.pid    = (how & 2) ? child : getpid();
    packed->handle.pid_ns = self.pid_ns;
    if (uct_cuda_node_rkey_unpack(packed,
                                  (how & 4) ? uct_cuda_end_gpu(0) :
                                              uct_cuda_end_none(),
                                  &rkey) != UCS_OK) {
        return;
    }
    if (uct_cuda_node_rkey_get((uintptr_t)rkey) != rkey) {
        abort();
    }
    (void)uct_cuda_node_rkey_reaches(rkey, 0);
    (void)uct_cuda_node_rkey_map(rkey, packed->handle.base, &mapped);
    uct_cuda_node_rkey_destroy(rkey);
}

/* Map this process's valid key for the child's memory, which must succeed. A
   failure is tried once more, with log messages that say why. */
static uct_cuda_node_rkey_t *map_valid(const uct_cuda_node_packed_rkey_t *key)
{
    uct_cuda_node_rkey_t *rkey;
    CUdeviceptr mapped;
    int tries;

    for (tries = 0; tries < 2; ++tries) {
        if ((uct_cuda_node_rkey_unpack(key, uct_cuda_end_gpu(0), &rkey) ==
             UCS_OK) &&
            (uct_cuda_node_rkey_map(rkey, key->handle.base, &mapped) ==
             UCS_OK) &&
            (tries == 0)) {
            return rkey;
        }
        uct_cuda_log_set(NULL, UCT_CUDA_LOG_TRACE);
    }
    abort();
}

/* Map a valid key, a changed one of the same memory, and the first one
   again. */
static void try_changes(const uint8_t *changes, size_t size, unsigned how)
{
    uct_cuda_node_packed_rkey_t *key = malloc(sizeof(*key));
    uct_cuda_node_rkey_t *rkey;
    CUdeviceptr mapped;
    size_t i;

    *key = shared->key;
    rkey = map_valid(key);
    for (i = 0; i + 2 <= size; i += 2) {
        ((uint8_t*)key)[changes[i] % sizeof(*key)] = changes[i + 1];
    }
    try_node(key, how | 3);
    (void)uct_cuda_node_rkey_map(rkey, shared->key.handle.base, &mapped);
    uct_cuda_node_rkey_destroy(rkey);
    free(key);
}

static void try_host(uct_cuda_cma_rkey_t *packed, unsigned how)
{
    uct_rkey_t rkey;
    void *handle;

    if (how & 1) {
        packed->magic = UCT_CUDA_CMA_PACKED_MAGIC;
    }
    if (uct_cuda_cma_rkey_unpack(NULL, packed, UCS_SYS_DEVICE_ID_UNKNOWN, &rkey,
                                 &handle) == UCS_OK) {
        if ((uct_cuda_cma_rkey_get(rkey) == NULL) ||
            (uct_cuda_cma_rkey_release(NULL, rkey, handle) != UCS_OK)) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t room = ((size > 0) && (data[0] & 8)) ?
                                sizeof(uct_cuda_cma_rkey_t) :
                                sizeof(uct_cuda_node_packed_rkey_t);
    void *key         = calloc(1, room); /* exact size: reading beyond is
                                            detected */

    if (size > 1) {
        memcpy(key, data + 1, (size - 1 < room) ? size - 1 : room);
        if (data[0] & 16) {
            try_changes(data + 1, size - 1, data[0]);
        } else if (data[0] & 8) {
            try_host(key, data[0]);
        } else {
            try_node(key, data[0]);
        }
    }
    free(key);
    return 0;
}
